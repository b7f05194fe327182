"""Makes, writes, reads, moves and removes files of a directory of its own for some seconds, and says
how many there were, the longest that any call took (ms), and whether all is there."""

import os
import sys
import time

me, stop = sys.argv[1], sys.argv[2]
os.mkdir(f"/terral/of.{me}")
os.chdir(f"/terral/of.{me}")
longest, number = 0, 0


def timed(call, *words):
    global longest
    begin = time.monotonic()
    result = call(*words)
    longest = max(longest, time.monotonic() - begin)
    return result


end = time.monotonic() + 30
while not os.path.exists(stop) and time.monotonic() < end:
    file = timed(os.open, f"f{number}", os.O_RDWR | os.O_CREAT)
    timed(os.write, file, b"%05d" % (number % 100000) * 1000)
    assert timed(os.pread, file, 5, 2500) == b"%05d" % (number % 100000)
    os.close(file)
    timed(os.rename, f"f{number}", f"g{number}")
    assert timed(os.stat, f"g{number}").st_size == 5000
    if number >= 100:
        timed(os.unlink, f"g{number - 100}")
    number += 1
there = {f"g{one}" for one in range(max(0, number - 100), number)}
print(me, number, round(longest * 1000), set(os.listdir(".")) == there, flush=True)
