"""A connection to a server of this machine."""

import ctypes
import os
from typing import NamedTuple

from . import _library
from ._library import Handle, Holder, calls


class Server(NamedTuple):
    """A server of the run; `number` as in addresses of objects."""

    number: int
    host: str
    memory_bytes: int
    used_bytes: int


def _server(raw):
    return Server(raw.number, os.fsdecode(raw.host), raw.memory_bytes, raw.used_bytes)


class Connection(Holder):
    """To the server of an instance. To connect again costs little: a process has one session."""

    def __init__(self, instance=None):
        """`instance`: its name, or its directory; None: what $TERRAL_INSTANCE says, which
        `terral run` sets.

        Raises ConnectionError or PermissionError (`terral.h` says when).
        """
        said = None if instance is None else os.fsencode(instance)
        super().__init__(Handle(calls.connect(said), calls.disconnect))

    def servers(self):
        """The servers of the run that keep files and answer within two seconds: where an object
        can be created, and how much memory is left there. All are asked."""
        room = 0
        while True:
            raw = (_library.Server * room)()
            count = calls.servers(self.handle.raw, raw, room)
            if count <= room:
                return [_server(one) for one in raw[:count]]
            room = count

    def least_loaded(self):
        """The number of the one of them that has more memory free, of two chosen at random."""
        number = ctypes.c_uint64()
        calls.least_loaded(self.handle.raw, ctypes.byref(number))
        return number.value


def connect(instance=None):
    """As `Connection(instance)`."""
    return Connection(instance)
