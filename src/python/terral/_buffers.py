"""The memory of whatever has some: bytes, arrays of numpy, tensors of torch by `.numpy()`.

Nothing is copied. Not here: what is done with it.
"""

import contextlib
import ctypes

_SIMPLE, _WRITABLE = 0, 1


class _Buffer(ctypes.Structure):
    """`Py_buffer` of Python's C API."""

    _fields_ = [
        ("memory", ctypes.c_void_p),
        ("owner", ctypes.py_object),
        ("length", ctypes.c_ssize_t),
        ("item", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("dimensions", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    ]


_get = ctypes.pythonapi.PyObject_GetBuffer
_get.argtypes = [ctypes.py_object, ctypes.POINTER(_Buffer), ctypes.c_int]
_release = ctypes.pythonapi.PyBuffer_Release
_release.argtypes = [ctypes.POINTER(_Buffer)]
_release.restype = None


@contextlib.contextmanager
def memory_of(data, writable=False):
    """Address and length, bytes, of what `data` has, which stays there meanwhile.

    Raises BufferError or TypeError if it is not in one piece, has none, or may not be written.
    """
    buffer = _Buffer()
    _get(data, ctypes.byref(buffer), _WRITABLE if writable else _SIMPLE)
    try:
        yield buffer.memory, buffer.length
    finally:
        _release(ctypes.byref(buffer))
