"""Arrays between pages that nobody may touch: a kernel that leaves its memory by one byte ends the process."""

import ctypes
import mmap

import numpy as np

NO_ACCESS = 0
LIBC = ctypes.CDLL(None, use_errno=True)


def guarded(values: np.ndarray, at_end: bool) -> np.ndarray:
    """Return a C-contiguous copy of an array whose last (or first) byte lies against a page without access."""
    pages = max(-(-values.nbytes // mmap.PAGESIZE), 1)
    memory = mmap.mmap(-1, (pages + 2) * mmap.PAGESIZE)
    whole = np.frombuffer(memory, np.uint8)
    for page in (0, pages + 1):
        address = ctypes.c_void_p(whole.ctypes.data + page * mmap.PAGESIZE)
        if LIBC.mprotect(address, ctypes.c_size_t(mmap.PAGESIZE), NO_ACCESS):
            raise OSError(ctypes.get_errno(), "mprotect")
    begin = (pages + 1) * mmap.PAGESIZE - values.nbytes if at_end else mmap.PAGESIZE
    array = whole[begin : begin + values.nbytes].view(values.dtype).reshape(values.shape)
    array[...] = values
    return array
