"""Ranks of MPI save what they have as one checkpoint, and read what other ranks have saved.

ranks.py save STEP SEED | ranks.py check STEP SEED: of the same bytes, cut by however many ranks.
"""

import sys

import numpy
from mpi4py import MPI

import terral

comm = MPI.COMM_WORLD
what, step, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
ALL = 1_000_003
cuts = [ALL * rank // comm.size for rank in range(comm.size + 1)]
mine = slice(cuts[comm.rank], cuts[comm.rank + 1])
whole = numpy.random.default_rng(seed).integers(0, 256, ALL, dtype="u1")
points = terral.Checkpoints("ranks", keep=2)
if what == "save":
    points.save(step, whole[mine], comm)
elif what == "fail":
    # One of them has nothing that is in one piece: all know.
    data = whole[mine] if comm.rank != comm.size - 1 else whole[mine][::2]
    try:
        points.save(step, data, comm)
    except (OSError, ValueError) as error:
        print(f"rank {comm.rank}: {error}", flush=True)
else:
    last = points.restart()
    into = numpy.empty(mine.stop - mine.start, dtype="u1")
    got = last.readinto_at(into, mine.start)
    assert (last.step, last.size_bytes, got) == (step, ALL, into.size), last.step
    assert (into == whole[mine]).all()
comm.Barrier()
if comm.rank == 0:
    print(what, "well", flush=True)
