"""Objects: bytes that are found by an address instead of a name (docs/objects.md)."""

import contextlib
import ctypes
import struct
from typing import NamedTuple

from . import _library
from ._buffers import memory_of
from ._library import Extent, Handle, Holder, calls, path_bytes
from .connection import Connection

_TYPES = {"i": "=q", "r": "=d"}

# The machine that has more memory free, of two chosen at random.
LEAST_LOADED = "least-loaded"


class Address(NamedTuple):
    """Which object of a container: 128 bits, and the machine on which it was created."""

    id: int
    server: int = 0


class Status(NamedTuple):
    """How an object is. `owed_bytes` are what the permanent directory does not have yet; `safe`: it
    has the object whole, as it is now."""

    size_bytes: int
    modified_ns: int
    memory_bytes: int
    owed_bytes: int
    sealed: bool
    safe: bool


def _id_to(number):
    if not 0 <= number < 1 << 128:
        raise ValueError("an id has 128 bits")
    return _library.ObjectId(number >> 64, number & (1 << 64) - 1)


def _id_of(raw):
    return raw.high << 64 | raw.low


def address_of(raw):
    """An address as Python has it."""
    return Address(_id_of(raw.id), raw.server)


def address_to(address):
    """An address as the library has it. An id alone is one of the first machine."""
    number, server = (address, 0) if isinstance(address, int) else address
    return _library.Address(_id_to(number), server)


def random_id():
    """An id that nobody else has."""
    raw = _library.ObjectId()
    calls.object_id_random(ctypes.byref(raw))
    return _id_of(raw)


def derived_id(job, rank, step):
    """An id that all derive who know job, rank and step."""
    raw = _library.ObjectId()
    calls.object_id_derive(job.encode(), rank, step, ctypes.byref(raw))
    return _id_of(raw)


class Object(Holder):
    """An open object; `Container.create` and `Container.open` give one."""

    def __init__(self, raw):
        super().__init__(Handle(raw, calls.object_close))

    @property
    def address(self):
        """Where it is found."""
        raw = _library.Address()
        calls.object_address(self.handle.raw, ctypes.byref(raw))
        return address_of(raw)

    def read(self, length, at=0):
        """Bytes from `at` on; fewer than `length` only at the end."""
        bytes_ = bytearray(length)
        return bytes(memoryview(bytes_)[: self.readinto(bytes_, at)])

    def readinto(self, into, at=0):
        """As `read`, into memory that there is; gives how many bytes."""
        with memory_of(into, writable=True) as (memory, length):
            return calls.object_read(self.handle.raw, memory, length, at)

    def write(self, data, at=0):
        """Writes all of it at `at`; a gap before it reads as zeros."""
        with memory_of(data) as (memory, length):
            calls.object_write(self.handle.raw, memory, length, at)

    def readinto_vector(self, extents, into):
        """Reads extents, pairs of where and how many bytes, into memory one after the other; gives
        how many bytes were in the object. What is beyond its end is zeros."""
        with memory_of(into, writable=True) as (memory, length):
            raw = _extents(extents)
            return calls.object_read_vector(self.handle.raw, raw, len(raw), memory, length)

    def write_vector(self, extents, data):
        """Writes data, packed, to extents in their order."""
        with memory_of(data) as (memory, length):
            raw = _extents(extents)
            calls.object_write_vector(self.handle.raw, raw, len(raw), memory, length)

    def submit_read(self, extents, into):
        """As `readinto_vector`, meanwhile: a `Request`, which has the memory until it is done."""
        return Request(self, calls.object_submit_read, extents, memory_of(into, writable=True))

    def submit_write(self, extents, data):
        """As `write_vector`, meanwhile: a `Request`, which has the data until it is done."""
        return Request(self, calls.object_submit_write, extents, memory_of(data))

    def update_id(self):
        """Its update id: greater after each change of it, by whoever on whatever machine; maybe
        also without one, as when its server was killed."""
        id_ = ctypes.c_uint64()
        calls.object_update_id(self.handle.raw, ctypes.byref(id_))
        return id_.value

    def write_if(self, update_id, extents, data):
        """Writes data as `write_vector` does if it has this update id still, all of it or nothing;
        gives the one that it has then. Raises BlockingIOError if somebody has changed it."""
        id_ = ctypes.c_uint64(update_id)
        with memory_of(data) as (memory, length):
            raw = _extents(extents)
            calls.object_write_if(
                self.handle.raw, ctypes.byref(id_), raw, len(raw), memory, length
            )
        return id_.value

    def punch(self, at, length):
        """Makes bytes zeros, as far as the object is long."""
        calls.object_punch(self.handle.raw, at, length)

    def truncate(self, size_bytes):
        """Makes it this long."""
        calls.object_truncate(self.handle.raw, size_bytes)

    def sync(self):
        """Returns when what was written survives this process and the server being killed."""
        calls.object_sync(self.handle.raw)

    def set_attribute(self, key, value):
        """Sets an attribute: an int of 64 bits, a float, a str or bytes; None removes it."""
        kind, encoded = _encoded(value)
        with memory_of(encoded) as (memory, length):
            said = None if value is None else memory
            calls.object_set_attribute(self.handle.raw, key.encode(), kind, said, length)

    def attribute(self, key):
        """An attribute, of the type as which it was set. Raises OSError (ENODATA) if there is
        none."""
        kind, room = ctypes.c_int(), ctypes.create_string_buffer(8 << 10)
        length = calls.object_attribute(
            self.handle.raw, key.encode(), ctypes.byref(kind), room, len(room)
        )
        return _decoded(chr(kind.value), room.raw[:length])

    def attributes(self):
        """The keys of all."""
        keys = []

        def each(_context, key):
            keys.append(key.decode())
            return 0

        calls.object_attributes(self.handle.raw, _library.KEY_CALLBACK(each), None)
        return keys


class Request:
    """A read or write that was submitted."""

    def __init__(self, of, submit, extents, memory):
        raw = _extents(extents)
        self._held = contextlib.ExitStack()
        self._raw, self._result = None, None
        try:
            at, length = self._held.enter_context(memory)
            self._raw = submit(of.handle.raw, raw, len(raw), at, length)
        except BaseException:
            self._held.close()
            raise

    def done(self):
        """Whether `wait` waits no longer."""
        return self._raw is None or calls.object_test(self._raw) == 1

    def wait(self, timeout=None):
        """Waits, so many seconds at most, and gives how many bytes it was, as often as it is
        called. Raises TimeoutError if it is not done by then; else what went wrong, once."""
        if self._raw is None:
            return self._result
        most = -1 if timeout is None else int(timeout * 1000)
        try:
            self._result = calls.object_wait(self._raw, most)
        except TimeoutError:
            raise
        except BaseException:
            self._over()
            raise
        self._over()
        return self._result

    def _over(self):
        self._raw = None
        self._held.close()

    def __del__(self):
        # The memory is not given back before nobody uses it any more.
        try:
            self.wait()
        except (OSError, AttributeError):
            pass


def _extents(extents):
    each = [Extent(at, length) for at, length in extents]
    return (Extent * len(each))(*each)


def _encoded(value):
    if value is None:
        return ord("b"), b""
    if isinstance(value, (bytes, bytearray)):
        return ord("b"), bytes(value)
    if isinstance(value, str):
        return ord("t"), value.encode()
    if isinstance(value, float):
        return ord("r"), struct.pack(_TYPES["r"], value)
    if isinstance(value, int):
        return ord("i"), struct.pack(_TYPES["i"], value)
    raise TypeError("an attribute is an int, a float, a str or bytes")


def _decoded(kind, encoded):
    if kind in _TYPES:
        return struct.unpack(_TYPES[kind], encoded)[0]
    return encoded.decode() if kind == "t" else encoded


class Container(Holder):
    """What objects are in, and the same users may use."""

    def __init__(self, raw, connection):
        super().__init__(Handle(raw, calls.container_close))
        self._connection = connection

    @classmethod
    def make(cls, name, mode=0o755, connection=None):
        """Makes one. Listings do not show it until it is bound to a path."""
        connection = connection or Connection()
        raw = calls.container_create(connection.handle.raw, path_bytes(name), mode)
        return cls(raw, connection)

    @classmethod
    def named(cls, name, connection=None):
        """One that was made, by its name."""
        connection = connection or Connection()
        return cls(calls.container_open(connection.handle.raw, path_bytes(name)), connection)

    @classmethod
    def at(cls, path, connection=None):
        """One that was bound, by its path."""
        connection = connection or Connection()
        return cls(calls.container_at(connection.handle.raw, path_bytes(path)), connection)

    def create(self, id=None, on=None):
        """Creates an object on this machine, or on another machine of the run (`on`: the number of
        its server, or `LEAST_LOADED`), and opens it. Without an id, a random one. Raises FileExistsError if there is
        one of this id there, FileNotFoundError if there is no such server."""
        raw = None if id is None else ctypes.byref(_id_to(id))
        if on is None:
            return Object(calls.object_create(self.handle.raw, raw))
        if on == LEAST_LOADED:
            return Object(calls.object_create_least_loaded(self.handle.raw, raw))
        return Object(calls.object_create_on(self.handle.raw, on, raw))

    def create_striped(self, count=0, stripe_bytes=2 << 20, id=None):
        """Creates an object whose bytes go round over `count` machines (0: all), `stripe_bytes` at a
        time, from this one on. It is one object; `terral.h` says what is not done in one step."""
        raw = None if id is None else ctypes.byref(_id_to(id))
        return Object(calls.object_create_striped(self.handle.raw, count, stripe_bytes, raw))

    def copy(self, address, to):
        """Has an object on another machine as well, with the bytes that it has now; gives the
        address of the copy."""
        raw, copy = address_to(address), _library.Address()
        calls.object_copy(self.handle.raw, ctypes.byref(raw), to, ctypes.byref(copy))
        return address_of(copy)

    def open(self, address, writes=False):
        """Opens an object of any machine. Raises PermissionError if it is to be written, and is
        sealed."""
        raw = address_to(address)
        return Object(calls.object_open(self.handle.raw, ctypes.byref(raw), int(writes)))

    def __iter__(self):
        """The addresses of all objects, by server and id, as they were when it began."""
        found = []

        def each(_context, raw):
            found.append(address_of(raw.contents))
            return 0

        calls.container_list(self.handle.raw, _library.ADDRESS_CALLBACK(each), None)
        return iter(found)

    def stat(self, address):
        """How an object is, and whether it is safe."""
        raw, status = address_to(address), _library.Status()
        calls.object_stat(self.handle.raw, ctypes.byref(raw), ctypes.byref(status))
        return Status(
            status.size_bytes,
            status.modified_ns,
            status.memory_bytes,
            status.owed_bytes,
            bool(status.sealed),
            bool(status.safe),
        )

    def seal(self, address):
        """Makes an object immutable. Raises OSError (EBUSY) while it is open for writing."""
        calls.object_seal(self.handle.raw, ctypes.byref(address_to(address)))

    def discard(self, address):
        """Removes an object; who has it open keeps it."""
        calls.object_remove(self.handle.raw, ctypes.byref(address_to(address)))

    def link(self, address, path):
        """Gives an object a name beside its address."""
        raw = address_to(address)
        calls.object_bind(self.handle.raw, ctypes.byref(raw), path_bytes(path))

    def move(self, address, path):
        """Makes an object a file of this name, in the place of what has it."""
        raw = address_to(address)
        calls.object_move(self.handle.raw, ctypes.byref(raw), path_bytes(path))

    def bind(self, path):
        """Gives the container a path, with all that is in it, in one step."""
        calls.container_bind(self.handle.raw, path_bytes(path))

    def flush(self):
        """Has all that was written brought to the permanent directory, without waiting."""
        calls.container_flush(self.handle.raw)

    def remove(self):
        """Removes it and all objects in it."""
        calls.container_remove(self.handle.raw)
