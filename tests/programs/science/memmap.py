"""Ranks store through one numpy map each, in their own part of one file."""

import os

import numpy
from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size, part = world.rank, world.size, 300_001
if rank == 0:
    numpy.memmap("mapped", dtype="<i4", mode="w+", shape=(size * part,)).flush()
world.barrier()
whole = numpy.memmap("mapped", dtype="<i4", mode="r+", shape=(size * part,))
whole[rank * part : (rank + 1) * part] = numpy.arange(part, dtype="<i4") * (rank + 1)
whole.flush()
world.barrier()
theirs = (rank + 1) % size
expected = numpy.arange(part, dtype="<i4") * (theirs + 1)
assert (whole[theirs * part : (theirs + 1) * part] == expected).all(), "what another rank stored"
if rank == 0:
    print("stored and seen", os.stat("mapped").st_size)
