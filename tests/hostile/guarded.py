"""Arrays between inaccessible pages: an access one byte outside ends the process."""

import ctypes
import mmap

import numpy as np

NO_ACCESS, READ_ONLY = 0, mmap.PROT_READ
LIBC = ctypes.CDLL(None, use_errno=True)
LAYOUTS = ("plain", "fortran", "gaps", "gaps of rows", "backwards", "unaligned", "swapped")
"""Memory layouts of an array."""


def guarded(
    values: np.ndarray, at_end: bool, layout: str = "plain", written: bool = True
) -> np.ndarray:
    """Return a copy of an array whose last (or first) byte lies next to an inaccessible page.

    Parameters
    ----------
    layout
        One of ``LAYOUTS``; dtypes without byte order ignore "swapped".
    written
        Whether the array is writable; writing to a read-only one ends the process as well.
    """
    shape, dtype = values.shape, values.dtype
    match layout:
        case "fortran":
            memory, view = _GuardedMemory(shape[::-1], dtype, at_end), np.transpose
        case "gaps" if shape:
            memory, view = (
                _GuardedMemory((*shape, 2), dtype, at_end),
                lambda base: base[..., int(at_end)],
            )
        case "gaps of rows" if shape:
            memory = _GuardedMemory((*shape[:-1], shape[-1] + 3), dtype, at_end)
            view = (lambda base: base[..., 3:]) if at_end else (lambda base: base[..., :-3])
        case "backwards" if shape:
            memory, view = (
                _GuardedMemory(shape, dtype, at_end),
                lambda base: base[(slice(None, None, -1),) * base.ndim],
            )
        case "unaligned":
            memory = _GuardedMemory((values.nbytes + 1,), np.dtype(np.uint8), at_end)
            begin = int(not at_end)
            view = lambda base: base[begin : begin + values.nbytes].view(dtype).reshape(shape)  # noqa: E731
        case "swapped" if dtype.kind != "V":
            memory, view = _GuardedMemory(shape, dtype.newbyteorder("S"), at_end), np.asarray
        case _:
            memory, view = _GuardedMemory(shape, dtype, at_end), np.asarray
    array = view(memory.base)
    array[...] = values
    if not written:
        memory.protect(1, memory.pages, READ_ONLY)
        array.flags.writeable = False
    return array


class _GuardedMemory:
    """Memory of one array, between two inaccessible pages."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, at_end: bool) -> None:
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        self.pages = max(-(-nbytes // mmap.PAGESIZE), 1)
        self.whole = np.frombuffer(mmap.mmap(-1, (self.pages + 2) * mmap.PAGESIZE), np.uint8)
        self.protect(0, 1, NO_ACCESS)
        self.protect(self.pages + 1, 1, NO_ACCESS)
        begin = (self.pages + 1) * mmap.PAGESIZE - nbytes if at_end else mmap.PAGESIZE
        self.base = self.whole[begin : begin + nbytes].view(dtype).reshape(shape)

    def protect(self, page: int, pages: int, access: int) -> None:
        address = ctypes.c_void_p(self.whole.ctypes.data + page * mmap.PAGESIZE)
        if LIBC.mprotect(address, ctypes.c_size_t(pages * mmap.PAGESIZE), access):
            raise OSError(ctypes.get_errno(), "mprotect")
