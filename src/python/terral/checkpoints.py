"""Checkpoints: each process writes its bytes, one gives them one name; the latest is always whole.

The bytes of all processes are numbered through, so any number of processes reads them back.
"""

import contextlib
import ctypes
import io
from typing import NamedTuple

from . import _library
from ._buffers import memory_of
from ._library import Handle, Holder, calls, path_bytes
from .connection import Connection
from .objects import Address, Object, address_of, address_to


#: Small writes are gathered up to so many bytes.
_GATHERED = 1 << 20


class Part(NamedTuple):
    """What a process has written: where, and which bytes of all those are."""

    address: Address
    at: int
    length: int


class Checkpoint:
    """One that is being written; `Checkpoints.begin` and `Checkpoints.join` give one."""

    def __init__(self, raw):
        self.handle = Handle(raw, calls.checkpoint_leave)

    @property
    def attempt(self):
        """What the others join with."""
        attempt = ctypes.c_uint64()
        calls.checkpoint_attempt(self.handle.raw, ctypes.byref(attempt))
        return attempt.value

    def dump(self, rank, at, data):
        """Writes bytes that are those from `at` on, of the bytes of all; gives its `Part`. Raises
        FileNotFoundError if another checkpoint was begun meanwhile."""
        part = _library.Part()
        with memory_of(data) as (memory, length):
            calls.checkpoint_dump(
                self.handle.raw, rank, at, memory, length, ctypes.byref(part)
            )
        return Part(address_of(part.address), part.at, part.length)

    def create(self, rank, at):
        """The object for such bytes, to be written piece by piece."""
        return Object(calls.checkpoint_create(self.handle.raw, rank, at))

    def end(self, parts):
        """Ends it, with the parts of all; from then on it is the latest. Raises OSError if they
        leave a gap (EINVAL), or one was not written (EPROTO)."""
        each = [_library.Part(address_to(part.address), part.at, part.length) for part in parts]
        raw = (_library.Part * len(each))(*each)
        calls.checkpoint_end(self.handle.taken(), raw, len(each))

    def leave(self):
        """Of those who joined: nothing more comes."""
        self.handle.close()

    def abandon(self):
        """Removes what was written."""
        calls.checkpoint_abandon(self.handle.taken())


class _Writer(io.BufferedIOBase):
    """An object as a file that is written from its start on; small writes are gathered.

    No `io.BufferedWriter`: of those numpy wants the file descriptor.
    """

    def __init__(self, into):
        super().__init__()
        self._into, self._gathered, self._written = into, bytearray(), 0

    def writable(self):
        return True

    def write(self, data):
        length = memoryview(data).nbytes
        if len(self._gathered) + length > _GATHERED:
            self.flush()
        if length > _GATHERED:
            self._put(data, length)
        else:
            self._gathered += data
        return length

    def _put(self, data, length):
        self._into.write(data, self._written)
        self._written += length

    def flush(self):
        if self._gathered:
            self._put(self._gathered, len(self._gathered))
            self._gathered = bytearray()

    def tell(self):
        return self._written + len(self._gathered)


class Restart(io.RawIOBase):
    """A checkpoint that is whole: a file to be read, of the bytes of all processes."""

    def __init__(self, raw):
        super().__init__()
        self.handle, self._at = Handle(raw, calls.restart_close), 0
        step, size = ctypes.c_uint64(), ctypes.c_uint64()
        calls.restart_step(raw, ctypes.byref(step))
        calls.restart_size(raw, ctypes.byref(size))
        #: Of which step it is.
        self.step = step.value
        #: How many bytes all processes have written.
        self.size_bytes = size.value

    def readinto_at(self, into, at):
        """Fills memory with the bytes from `at` on; gives how many, fewer only at the end."""
        with memory_of(into, writable=True) as (memory, length):
            return calls.restart_read(self.handle.raw, memory, length, at)

    def readinto(self, into):
        got = self.readinto_at(into, self._at)
        self._at += got
        return got

    def readable(self):
        return True

    def seekable(self):
        return True

    def seek(self, offset, whence=io.SEEK_SET):
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size_bytes}[whence]
        if begin + offset < 0:
            raise ValueError("before the start")
        self._at = begin + offset
        return self._at

    def tell(self):
        return self._at

    def close(self):
        if not self.closed:
            self.handle.close()
        super().close()


class Checkpoints(Holder):
    """The checkpoints in one directory, which is made if it is missing. `keep` of them stay. With
    `copies=2` two machines have each object before a checkpoint is ended (all processes say so)."""

    def __init__(self, directory, keep=2, mode=0o755, connection=None, copies=1):
        self._connection = connection or Connection()
        raw = calls.checkpoints_open(
            self._connection.handle.raw, path_bytes(directory), keep, mode
        )
        super().__init__(Handle(raw, calls.checkpoints_close))
        calls.checkpoints_copies(raw, copies)

    def begin(self, step):
        """Begins one; what was begun here before and not ended is removed."""
        return Checkpoint(calls.checkpoint_begin(self.handle.raw, step))

    def join(self, step, attempt):
        """Takes part in one that another process has begun."""
        return Checkpoint(calls.checkpoint_join(self.handle.raw, step, attempt))

    def save(self, step, data, comm=None):
        """Writes a checkpoint of what all processes of `comm` (of mpi4py; None: this one alone)
        have, one after the other by rank; all call it. It is there, whole, when this returns.

        `data`: bytes, an array of numpy, or anything in one piece of memory.
        """
        if comm is None:
            checkpoint = self.begin(step)
            with _abandons(checkpoint):
                parts = [checkpoint.dump(0, 0, data)]
            checkpoint.end(parts)
        else:
            self._save_with(comm, step, data)

    def _save_with(self, comm, step, data):
        # Whoever fails, all know it: nobody waits for him.
        rank, first = comm.Get_rank(), comm.Get_rank() == 0
        length, error = _tried(lambda: _length(data))
        lengths = comm.allgather(length)
        if None in lengths:
            raise error or _of_another(step, lengths.index(None))
        at, checkpoint = sum(lengths[:rank]), None
        if first:
            checkpoint, error = _tried(lambda: self.begin(step))
        attempt = comm.bcast(checkpoint.attempt if checkpoint else None)
        part = None
        if attempt is not None:
            if not first:
                checkpoint, error = _tried(lambda: self.join(step, attempt))
            if checkpoint:
                part, error = _tried(lambda: checkpoint.dump(rank, at, data))
        parts, well = comm.gather(part), None
        if first and checkpoint:
            if all(part is not None for part in parts):
                well, error = _tried(lambda: checkpoint.end(parts) or True)
            else:
                _tried(checkpoint.abandon)
        elif checkpoint:
            checkpoint.leave()
        well = comm.bcast(well)
        if error:
            raise error
        if not well:
            raise _of_another(step)

    @contextlib.contextmanager
    def writer(self, step):
        """A file for what this process alone writes from its start on: `torch.save(state, file)`.
        It becomes a checkpoint when the block ends well, and is removed if not."""
        checkpoint = self.begin(step)
        with _abandons(checkpoint):
            with checkpoint.create(0, 0) as into:
                file = _Writer(into)
                yield file
                file.flush()
                part = Part(into.address, 0, file.tell())
        checkpoint.end([part])

    def restart(self, step=None):
        """The checkpoint of a step, or the latest that is whole; None if there is none. Raises
        OSError (EIO) if it cannot be had now: no reason to begin anew."""
        try:
            return Restart(calls.restart_open(self.handle.raw, -1 if step is None else step))
        except FileNotFoundError:
            return None


def _tried(what):
    """What it gives, or how it fails."""
    try:
        return what(), None
    except (OSError, ValueError, BufferError, TypeError) as error:
        return None, error


def _length(data):
    with memory_of(data) as (_, length):
        return length


def _of_another(step, rank=None):
    who = "another rank" if rank is None else f"rank {rank}"
    return OSError(f"checkpoint of step {step}: {who} has failed")


@contextlib.contextmanager
def _abandons(checkpoint):
    """Removes what was written if the block fails."""
    try:
        yield
    except BaseException:
        _tried(checkpoint.abandon)
        raise
