"""A file, several maps of it, and what they must hold: random calls, checked against a byte array.

    maps.py FILE SEED SECONDS COPY

Ends with the file's content, as it should be, in COPY.
"""
import mmap
import os
import random
import sys
import time

MAX = 24 << 20
PAGE = 4096


class Model:
    def __init__(self, name, seed):
        self.name, self.random, self.maps = name, random.Random(seed), []
        self.fd, self.bytes = os.open(name, os.O_RDWR | os.O_CREAT), bytearray()

    def check(self, found, expected, what):
        if found == expected:
            return
        pairs = enumerate(zip(found, expected))
        at = next((at for at, (a, b) in pairs if a != b), -1)
        sys.exit(f"{what}: {len(found)} bytes, not {len(expected)}; the first other one at {at}")

    def some(self, most):
        return bytes([self.random.randrange(1, 256)]) * most

    def write(self):
        at = self.random.randrange(MAX)
        new = self.some(min(self.random.randrange(1, 1 << self.random.randrange(1, 22)), MAX - at))
        os.pwrite(self.fd, new, at)
        self.bytes.extend(bytes(max(0, at - len(self.bytes))))
        self.bytes[at : at + len(new)] = new

    def map(self):
        if not self.bytes:
            return
        stores = self.random.random() < 0.5
        at = self.random.randrange(len(self.bytes)) // PAGE * PAGE
        length = self.random.randrange(1, len(self.bytes) - at + 1)
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if stores else 0)
        made = mmap.mmap(self.fd, length, mmap.MAP_SHARED, protection, offset=at)
        self.maps.append((made, at, length, stores))
        if len(self.maps) > 4:
            self.unmap()

    def unmap(self):
        if self.maps:
            self.maps.pop(self.random.randrange(len(self.maps)))[0].close()

    def use_map(self):
        if not self.maps:
            return
        made, at, length, stores = self.random.choice(self.maps)
        size = len(self.bytes)
        inside = max(0, min(length, size - at))
        if stores and inside > 0:
            first = self.random.randrange(inside)
            new = self.some(min(self.random.randrange(1, 100000), inside - first))
            made[first : first + len(new)] = new
            self.bytes[at + first : at + first + len(new)] = new
        self.check(made[:inside], self.bytes[at : at + inside], "map")
        self.check(made[inside:length].strip(b"\0"), b"", "map beyond the end")

    def truncate(self):
        size = self.random.choice([0, self.random.randrange(MAX)])
        os.ftruncate(self.fd, size)
        del self.bytes[size:]
        self.bytes.extend(bytes(size - len(self.bytes)))

    def read(self):
        at = self.random.randrange(MAX)
        self.check(os.pread(self.fd, 3 << 20, at), self.bytes[at : at + (3 << 20)], "read")

    def open_again(self):
        os.close(self.fd)
        if self.random.random() < 0.3:
            while self.maps:
                self.unmap()
            os.unlink(self.name)
            self.bytes = bytearray()
        self.fd = os.open(self.name, os.O_RDWR | os.O_CREAT)


def main():
    name, seed, seconds, copy = sys.argv[1:]
    model, end = Model(name, int(seed)), time.monotonic() + float(seconds)
    calls = [model.write] * 6 + [model.map] * 4 + [model.use_map] * 6 + [model.read] * 2
    calls += [model.unmap, model.truncate, model.open_again]
    while time.monotonic() < end:
        model.random.choice(calls)()
    while model.maps:
        model.unmap()
    model.check(os.pread(model.fd, MAX + 1, 0), model.bytes, "in the end")
    with open(copy, "wb") as file:
        file.write(model.bytes)


main()
