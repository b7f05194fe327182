"""Tensors saved and read by safetensors, whose library enters the kernel by itself."""
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

tensors = {f"t{i}": np.arange(1000 * (i + 1), dtype=np.float32).reshape(-1, 10) for i in range(20)}
save_file(tensors, "model.safetensors", metadata={"made": "here"})
back = load_file("model.safetensors")
assert all((back[k] == v).all() for k, v in tensors.items())
with safe_open("model.safetensors", framework="np") as f:
    print(sorted(f.keys()), f.metadata())
    print(f.get_tensor("t3").sum(), f.get_slice("t4")[5:7].sum())
os.mkdir("d")


def one(i):
    save_file({"x": np.full(500, i)}, f"d/{i}.safetensors")
    save_file({"x": np.full(700, i)}, f"d/{i}.safetensors")
    with safe_open(f"d/{i}.safetensors", framework="np") as f:
        return int(f.get_tensor("x").sum())


with ThreadPoolExecutor(4) as pool:
    print(list(pool.map(one, range(50))))
try:
    safe_open("nothing", framework="np")
except OSError as error:
    print(type(error).__name__, error)
print(sorted(os.listdir("d"))[:5], oct(os.stat("model.safetensors").st_mode))
