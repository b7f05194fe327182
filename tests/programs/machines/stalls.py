"""Makes names in a directory, so many, and says when they are there; then makes, writes, reads, moves
and removes files of another directory of its own, and makes and removes one in the directory of
each other machine, until it is told to stop. Says how often, the longest that any call took (ms) in
its own and in the others', and whether all is there."""

import os
import sys
import time

me, stop, names, others = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]
os.mkdir(f"/terral/names.{me}")
for name in range(names):
    os.close(os.open(f"/terral/names.{me}/n{name}", os.O_WRONLY | os.O_CREAT))
os.mkdir(f"/terral/of.{me}")
os.chdir(f"/terral/of.{me}")
longest, number = {"own": 0, "others": 0}, 0


def timed(whose, call, *words):
    begin = time.monotonic()
    result = call(*words)
    longest[whose] = max(longest[whose], time.monotonic() - begin)
    return result


open(f"{stop}.{me}", "x").close()
while not all(os.path.exists(f"{stop}.{one}") for one in [me, *others]):
    time.sleep(0.01)
end = time.monotonic() + 60
while not os.path.exists(stop) and time.monotonic() < end:
    file = timed("own", os.open, f"f{number}", os.O_RDWR | os.O_CREAT)
    timed("own", os.write, file, b"%05d" % (number % 100000) * 1000)
    assert timed("own", os.pread, file, 5, 2500) == b"%05d" % (number % 100000)
    os.close(file)
    timed("own", os.rename, f"f{number}", f"g{number}")
    assert timed("own", os.stat, f"g{number}").st_size == 5000
    if number >= 100:
        timed("own", os.unlink, f"g{number - 100}")
    for other in others:
        path = f"/terral/names.{other}/of.{me}"
        os.close(timed("others", os.open, path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        timed("others", os.unlink, path)
    number += 1
there = {f"g{one}" for one in range(max(0, number - 100), number)}
is_there = set(os.listdir(".")) == there and len(os.listdir(f"/terral/names.{me}")) >= names
own, of_others = (round(longest[whose] * 1000) for whose in ["own", "others"])
print(me, number, own, of_others, is_there, flush=True)
