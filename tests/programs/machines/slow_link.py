"""A link of a machine that is slow: slow_link.py PID LINK BRIDGE SECONDS ADDRESS

The machine (of process PID) has LINK as its network; what it sends comes to BRIDGE, in the network of
this process, so many SECONDS later, and what is sent to it as late. Nothing is lost or put before.
Says "ready", and ends when it is killed.
"""

import collections, ctypes, fcntl, os, select, struct, subprocess, sys, time

TUNSETIFF, IFF_TAP, IFF_NO_PI, CLONE_NEWNET = 0x400454CA, 2, 0x1000, 0x40000000


def enter(path):
    libc = ctypes.CDLL(None, use_errno=True)
    with open(path) as network:
        if libc.setns(network.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), path)


def ip(*words):
    subprocess.run(["ip", *words], check=True)


def tap(name):
    made = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(made, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    return made


pid, link, bridge, seconds, address = sys.argv[1:]
here = os.open("/proc/self/ns/net", os.O_RDONLY)
enter(f"/proc/{pid}/ns/net")
inside = tap(link)
ip("addr", "add", address, "dev", link)
ip("link", "set", link, "up")
enter(f"/proc/self/fd/{here}")
outside = tap(f"slow{pid}")
ip("link", "set", f"slow{pid}", "master", bridge)
ip("link", "set", f"slow{pid}", "up")
print("ready", flush=True)

ways = {inside: (outside, collections.deque()), outside: (inside, collections.deque())}
while True:
    due = [waiting[0][0] for _, waiting in ways.values() if waiting]
    wait = max(0.0, min(due) - time.monotonic()) if due else None
    for one in select.select(list(ways), [], [], wait)[0]:
        try:
            frame = os.read(one, 1 << 16)
        except BlockingIOError:
            continue
        ways[one][1].append((time.monotonic() + float(seconds), frame))
    for to, waiting in ways.values():
        while waiting and waiting[0][0] <= time.monotonic():
            try:
                os.write(to, waiting.popleft()[1])
            except OSError:
                pass  # As a switch does whose other end has no room.
