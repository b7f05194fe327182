"""What stands for ssh where users are not root: on each machine a door, which runs a command as
whoever asks for it. `door.py serve SOCKET` is root's, in the machine's namespaces; `door.py ask
SOCKET COMMAND` passes its standard streams there, and ends as the command has ended."""

import os
import signal
import socket
import struct
import sys

COMMAND_MAX = 1 << 16


def run(asked):
    _, uid, gid = struct.unpack("3i", asked.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    words, streams, _, _ = socket.recv_fds(asked, COMMAND_MAX, 3)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child = os.fork()
    if child == 0:
        for at, stream in enumerate(streams):
            os.dup2(stream, at)
        os.closerange(3, 64)
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
        environment = {"PATH": os.environ["PATH"], "HOME": "/tmp", "TERRAL_INSTANCE": ""}
        os.execve("/bin/sh", ["sh", "-c", words.decode()], environment)
    for stream in streams:
        os.close(stream)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    asked.send(bytes([status if status >= 0 else 128 - status]))


def serve(path):
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    door = socket.socket(socket.AF_UNIX)
    door.bind(path)
    os.chmod(path, 0o666)
    door.listen()
    while True:
        asked, _ = door.accept()
        if os.fork() == 0:
            door.close()
            run(asked)
            os._exit(0)
        asked.close()


def ask(path, words):
    with socket.socket(socket.AF_UNIX) as asked:
        asked.connect(path)
        socket.send_fds(asked, [words.encode()], [0, 1, 2])
        answer = asked.recv(1)
    return answer[0] if answer else 255


if sys.argv[1] == "serve":
    serve(sys.argv[2])
else:
    sys.exit(ask(sys.argv[2], " ".join(sys.argv[3:])))
