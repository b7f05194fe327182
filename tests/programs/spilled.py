"""Writes, reads, cuts and appends at random, in two files at once, which must stay alike.

The first is larger than the memory of the server that has it; what that says once it is full is a
line of output."""

import json
import mmap
import os
import random
import subprocess
import sys

SIZE = 200 << 20
seed = int(os.environ.get("TERRAL_TEST_SEED", os.getpid()))
print("seed", seed, file=sys.stderr)
chance = random.Random(seed)
pair = [os.open(path, os.O_RDWR | os.O_CREAT, 0o644) for path in sys.argv[1:3]]


def each(act):
    first, second = [act(fd) for fd in pair]
    assert first == second, "they differ"


def write(at, length):
    data = chance.randbytes(min(length, 4096)) * (length // 4096 + 1)
    each(lambda fd: os.pwrite(fd, data[:length], at))


for at in range(0, SIZE, 1 << 20):
    write(at, 1 << 20)
instance = os.path.basename(os.environ["TERRAL_INSTANCE"])
status = [os.environ["TERRAL"], "status", "--json", "--instance", instance]
print(json.dumps(json.loads(subprocess.check_output(status))), flush=True)
end = SIZE
for turn in range(600):
    at, length = chance.randrange(end), chance.choice([1, 100, 4096, 70000, 3 << 20])
    what = chance.random()
    if what < 0.45:
        each(lambda fd: os.pread(fd, length, at))
    elif what < 0.85:
        write(at, length)
        end = max(end, at + length)
    elif what < 0.93:
        each(lambda fd: os.lseek(fd, 0, os.SEEK_END))
        write(end, length)
        end += length
    elif what < 0.95:
        end = chance.randrange(end * 3 // 4, end) + 1
        each(lambda fd: os.ftruncate(fd, end))
    elif what < 0.97:
        end += chance.randrange(5 << 20)
        each(lambda fd: os.ftruncate(fd, end))
    else:
        at -= at % mmap.PAGESIZE
        length = min(length, end - at)

        def through_map(fd, at=at, length=length, byte=turn % 251):
            with mmap.mmap(fd, length, offset=at) as area:
                seen = area[:]
                area[length // 2] = byte
            return seen

        each(through_map)
for at in range(0, end, 1 << 20):
    each(lambda fd: os.pread(fd, 1 << 20, at))
