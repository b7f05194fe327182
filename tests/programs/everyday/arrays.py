"""numpy's ways to save and load; run in an empty directory."""
import os

import numpy as np

a = np.arange(100000).reshape(100, 1000)
np.save("a.npy", a)
print((a == np.load("a.npy")).all())
np.savez("a.npz", a=a, b=a * 2)
print(np.load("a.npz")["b"].sum())
np.savez_compressed("c.npz", a=a)
print(np.load("c.npz")["a"].shape)
np.savetxt("a.txt", a[:10])
print(np.loadtxt("a.txt").sum(), np.genfromtxt("a.txt").shape)
a.tofile("raw")
print(np.fromfile("raw", dtype=a.dtype).sum())
print(np.load("a.npy", mmap_mode="r")[5, 5])
private = np.load("a.npy", mmap_mode="c")
private[0, 0] = 5
print(private[0, 0], np.load("a.npy")[0, 0])
stored = np.memmap("mapped", dtype="i8", mode="w+", shape=(700, 1000))
stored[:] = 3
stored[5, 6] = 7
stored.flush()
again = np.memmap("mapped", dtype="i8", mode="r+", shape=(700, 1000))
again[699, 999] = 8
del again
print(stored[699, 999], np.fromfile("mapped", dtype="i8").sum(), os.path.getsize("mapped"))
with open("two", "wb") as f:
    np.save(f, a)
    np.save(f, a + 1)
with open("two", "rb") as f:
    print(np.load(f).sum(), np.load(f).sum())
os.remove("a.npz")  # They carry the time.
os.remove("c.npz")
