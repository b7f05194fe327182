"""A connection to a server of this machine."""

import os

from ._library import Handle, Holder, calls


class Connection(Holder):
    """To the server of an instance. To connect again costs little: a process has one session."""

    def __init__(self, instance=None):
        """`instance`: its name, or its directory; None: what $TERRAL_INSTANCE says, which
        `terral run` sets.

        Raises ConnectionError or PermissionError (`terral.h` says when).
        """
        said = None if instance is None else os.fsencode(instance)
        super().__init__(Handle(calls.connect(said), calls.disconnect))


def connect(instance=None):
    """As `Connection(instance)`."""
    return Connection(instance)
