"""The C library, its calls as `terral.h` declares them, and its errors as `OSError`.

Not here: what the calls mean.
"""

import ctypes
import os
import shutil
from ctypes import POINTER, c_char_p, c_int, c_int64, c_size_t, c_ssize_t, c_uint32, c_uint64
from ctypes import c_void_p
from pathlib import Path

NAME = "libterral.so"


class ObjectId(ctypes.Structure):
    """`struct terral_object_id`"""

    _fields_ = [("high", c_uint64), ("low", c_uint64)]


class Address(ctypes.Structure):
    """`struct terral_address`"""

    _fields_ = [("id", ObjectId), ("server", c_uint64)]


class Extent(ctypes.Structure):
    """`struct terral_extent`"""

    _fields_ = [("at", c_uint64), ("length", c_uint64)]


class Status(ctypes.Structure):
    """`struct terral_object_status`"""

    _fields_ = [
        ("size_bytes", c_uint64),
        ("modified_ns", c_uint64),
        ("memory_bytes", c_uint64),
        ("owed_bytes", c_uint64),
        ("sealed", c_uint32),
        ("safe", c_uint32),
        ("reserved", c_uint64 * 3),
    ]


class Part(ctypes.Structure):
    """`struct terral_part`"""

    _fields_ = [("address", Address), ("at", c_uint64), ("length", c_uint64)]


class Server(ctypes.Structure):
    """`struct terral_server`"""

    _fields_ = [
        ("number", c_uint64),
        ("memory_bytes", c_uint64),
        ("used_bytes", c_uint64),
        ("host", ctypes.c_char * 72),
    ]


# A callback gives 0 to go on.
ADDRESS_CALLBACK = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(Address))
KEY_CALLBACK = ctypes.CFUNCTYPE(c_int, c_void_p, c_char_p)

# What a call gives (c_void_p: a handle; None: nothing, and it cannot fail), and what it takes.
_CALLS = {
    "connect": (c_void_p, [c_char_p]),
    "disconnect": (None, [c_void_p]),
    "checkpoints_open": (c_void_p, [c_void_p, c_char_p, c_size_t, c_uint32]),
    "checkpoints_close": (None, [c_void_p]),
    "checkpoints_copies": (c_int, [c_void_p, c_size_t]),
    "checkpoint_begin": (c_void_p, [c_void_p, c_uint64]),
    "checkpoint_join": (c_void_p, [c_void_p, c_uint64, c_uint64]),
    "checkpoint_attempt": (c_int, [c_void_p, POINTER(c_uint64)]),
    "checkpoint_dump": (
        c_int,
        [c_void_p, c_uint32, c_int64, c_void_p, c_size_t, POINTER(Part)],
    ),
    "checkpoint_create": (c_void_p, [c_void_p, c_uint32, c_int64]),
    "checkpoint_end": (c_int, [c_void_p, POINTER(Part), c_size_t]),
    "checkpoint_leave": (None, [c_void_p]),
    "checkpoint_abandon": (c_int, [c_void_p]),
    "restart_open": (c_void_p, [c_void_p, c_int64]),
    "restart_step": (c_int, [c_void_p, POINTER(c_uint64)]),
    "restart_size": (c_int, [c_void_p, POINTER(c_uint64)]),
    "restart_read": (c_ssize_t, [c_void_p, c_void_p, c_size_t, c_int64]),
    "restart_close": (None, [c_void_p]),
    "container_create": (c_void_p, [c_void_p, c_char_p, c_uint32]),
    "container_open": (c_void_p, [c_void_p, c_char_p]),
    "container_at": (c_void_p, [c_void_p, c_char_p]),
    "container_bind": (c_int, [c_void_p, c_char_p]),
    "container_remove": (c_int, [c_void_p]),
    "container_flush": (c_int, [c_void_p]),
    "container_close": (None, [c_void_p]),
    "container_list": (c_int, [c_void_p, ADDRESS_CALLBACK, c_void_p]),
    "object_id_random": (c_int, [POINTER(ObjectId)]),
    "object_id_derive": (c_int, [c_char_p, c_uint64, c_uint64, POINTER(ObjectId)]),
    "object_create": (c_void_p, [c_void_p, POINTER(ObjectId)]),
    "object_create_on": (c_void_p, [c_void_p, c_uint64, POINTER(ObjectId)]),
    "object_create_striped": (c_void_p, [c_void_p, c_uint64, c_uint64, POINTER(ObjectId)]),
    "object_create_least_loaded": (c_void_p, [c_void_p, POINTER(ObjectId)]),
    "object_copy": (c_int, [c_void_p, POINTER(Address), c_uint64, POINTER(Address)]),
    "servers": (c_ssize_t, [c_void_p, POINTER(Server), c_size_t]),
    "least_loaded": (c_int, [c_void_p, POINTER(c_uint64)]),
    "object_open": (c_void_p, [c_void_p, POINTER(Address), c_int]),
    "object_close": (c_int, [c_void_p]),
    "object_address": (c_int, [c_void_p, POINTER(Address)]),
    "object_read": (c_ssize_t, [c_void_p, c_void_p, c_size_t, c_int64]),
    "object_write": (c_int, [c_void_p, c_void_p, c_size_t, c_int64]),
    "object_read_vector": (
        c_ssize_t,
        [c_void_p, POINTER(Extent), c_size_t, c_void_p, c_size_t],
    ),
    "object_write_vector": (c_int, [c_void_p, POINTER(Extent), c_size_t, c_void_p, c_size_t]),
    "object_submit_read": (
        c_void_p,
        [c_void_p, POINTER(Extent), c_size_t, c_void_p, c_size_t],
    ),
    "object_submit_write": (
        c_void_p,
        [c_void_p, POINTER(Extent), c_size_t, c_void_p, c_size_t],
    ),
    "object_test": (c_int, [c_void_p]),
    "object_wait": (c_ssize_t, [c_void_p, c_int64]),
    "object_update_id": (c_int, [c_void_p, POINTER(c_uint64)]),
    "object_write_if": (
        c_int,
        [c_void_p, POINTER(c_uint64), POINTER(Extent), c_size_t, c_void_p, c_size_t],
    ),
    "object_punch": (c_int, [c_void_p, c_int64, c_int64]),
    "object_truncate": (c_int, [c_void_p, c_int64]),
    "object_sync": (c_int, [c_void_p]),
    "object_set_attribute": (c_int, [c_void_p, c_char_p, c_int, c_void_p, c_size_t]),
    "object_attribute": (c_ssize_t, [c_void_p, c_char_p, POINTER(c_int), c_void_p, c_size_t]),
    "object_attributes": (c_int, [c_void_p, KEY_CALLBACK, c_void_p]),
    "object_stat": (c_int, [c_void_p, POINTER(Address), POINTER(Status)]),
    "object_seal": (c_int, [c_void_p, POINTER(Address)]),
    "object_remove": (c_int, [c_void_p, POINTER(Address)]),
    "object_bind": (c_int, [c_void_p, POINTER(Address), c_char_p]),
    "object_move": (c_int, [c_void_p, POINTER(Address), c_char_p]),
}


def _places():
    """Where the library may be, the most certain first."""
    said = os.environ.get("TERRAL_LIBRARY")
    if said:
        return [said]
    # As `make install`, and pip, have it: PREFIX/lib/terral/python/terral below PREFIX/lib. What is
    # so many folders above elsewhere may be anybody's.
    above = Path(__file__).resolve().parents[3]
    places = [above / NAME] if above.name == "lib" else []
    program = shutil.which("terral")
    if program:
        folder = Path(program).resolve().parent
        places += [folder / NAME, folder.parent / "lib" / NAME]
    return [str(place) for place in places if place.exists()] + [NAME]


def _load():
    for place in _places():
        try:
            return ctypes.CDLL(place, use_errno=True)
        except OSError as error:
            last = error
    raise ImportError(
        f"terral: {last}: set TERRAL_LIBRARY to the path of {NAME}, which `make install` puts into "
        "PREFIX/lib"
    )


_library = _load()
_library.terral_error.restype = c_char_p
_library.terral_error.argtypes = []


def _failed():
    said = _library.terral_error().decode(errors="replace")
    return OSError(ctypes.get_errno(), said)


def _handle(result, _call, _arguments):
    if result is None:
        raise _failed()
    return result


def _number(result, _call, _arguments):
    if result < 0:
        raise _failed()
    return result


def _declare(name, gives, takes):
    call = getattr(_library, f"terral_{name}")
    call.restype, call.argtypes = gives, takes
    if gives is c_void_p:
        call.errcheck = _handle
    elif gives is not None:
        call.errcheck = _number
    return call


class _Calls:
    """Each call of the library, by its name without `terral_`."""

    def __init__(self):
        for name, (gives, takes) in _CALLS.items():
            setattr(self, name, _declare(name, gives, takes))


calls = _Calls()


def path_bytes(path):
    """A path as the library takes it.

    Raises ValueError if there is a zero byte in it.
    """
    said = os.fsencode(path)
    if b"\0" in said:
        raise ValueError("a zero byte in a path")
    return said


class Handle:
    """Something of the library that is given back once."""

    def __init__(self, raw, give_back):
        self._raw, self._give_back = raw, give_back

    @property
    def raw(self):
        """What the library calls it. Raises ValueError once it was given back."""
        if self._raw is None:
            raise ValueError("it is closed")
        return self._raw

    def taken(self):
        """Gives it away: whoever has it gives it back."""
        raw, self._raw = self.raw, None
        return raw

    def close(self):
        """Gives it back, if that was not done."""
        raw, self._raw = self._raw, None
        if raw is not None:
            self._give_back(raw)

    def __del__(self):
        try:
            self.close()
        except (AttributeError, OSError):
            pass


class Holder:
    """What has a `Handle`, and gives it back at the end of a `with`."""

    def __init__(self, handle):
        self.handle = handle

    def close(self):
        """Gives it back. What was opened through it stays open, and what was written stays."""
        self.handle.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
