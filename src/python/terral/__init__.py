"""Checkpoints and objects in Terral, for Python programs.

A program needs none of this to use Terral: `terral run` serves its ordinary file calls. This is for
programs that want checkpoints that are whole or not there, whoever is killed when::

    import terral

    all = terral.Checkpoints("run7", keep=2)
    with all.writer(step) as file:          # or all.save(step, array, comm=MPI.COMM_WORLD)
        torch.save(state, file)

    last = all.restart()                    # None if there is none
    if last is not None:
        state = torch.load(last)

It calls the C library, whose header (`terral.h`) says what each call does: units are bytes, what fails
is an `OSError` with the errno of the header and a message for people. Calls may be made from any
thread; Python's lock is released meanwhile.
"""

from .checkpoints import Checkpoint, Checkpoints, Part, Restart
from .connection import Connection, Server, connect
from .objects import LEAST_LOADED, Address, Container, Object, Status, derived_id, random_id

__all__ = [
    "LEAST_LOADED",
    "Address",
    "Checkpoint",
    "Checkpoints",
    "Connection",
    "Container",
    "Object",
    "Part",
    "Restart",
    "Server",
    "Status",
    "connect",
    "derived_id",
    "random_id",
]
