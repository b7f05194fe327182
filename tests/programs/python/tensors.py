"""Trains a small model and saves it at each step, until it is killed; goes on from the latest.

tensors.py STEPS SECONDS: computes for so long at each step; prints from where it goes on, each step
that is saved, and at the end what it has learned.
"""

import sys
import time

import torch

import terral

torch.manual_seed(1)
torch.set_num_threads(1)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
points = terral.Checkpoints("training", keep=2)
begin, last = 0, points.restart()
if last is not None:
    state = torch.load(last)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    begin = last.step
print("from", begin, flush=True)
for step in range(begin + 1, int(sys.argv[1]) + 1):
    generator = torch.Generator().manual_seed(step)
    inputs = torch.rand(32, 64, generator=generator)
    optimizer.zero_grad()
    (model(inputs) - inputs.flip(1)).square().mean().backward()
    optimizer.step()
    with points.writer(step) as file:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    time.sleep(float(sys.argv[2]))
    print("saved", step, flush=True)
print("learned", float(sum(p.double().abs().sum() for p in model.parameters())))
