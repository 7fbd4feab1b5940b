"""Compiled loop that formats records as lines of CSV."""

import numba
import numpy as np

from npu_sim.kernels.engine.cache import KernelCache

COMMA, NEWLINE, MINUS, ZERO = ord(","), ord("\n"), ord("-"), ord("0")


@numba.njit(nogil=True)
def write_lines(text, values, first_words, words, ends):  # type: ignore[no-untyped-def]
    """Write one line per record; return the number of bytes written."""
    place = 0
    columns, rows = values.shape
    for row in range(rows):
        for column in range(columns):
            value = values[column, row]
            if first_words[column] >= 0:
                word = first_words[column] + value
                for position in range(ends[word], ends[word + 1]):
                    text[place] = words[position]
                    place += 1
            else:
                place = _write_number(text, place, value)
            text[place] = COMMA
            place += 1
        text[place - 1] = NEWLINE
    return place


@numba.njit(nogil=True)
def _write_number(text, place, value):  # type: ignore[no-untyped-def]
    """Write an integer; return the position after it."""
    if value < 0:
        text[place] = MINUS
        place += 1
        value = -value
    left = np.uint64(value)
    ten = np.uint64(10)
    last = place
    probe = left // ten
    while probe > 0:
        probe //= ten
        last += 1
    for position in range(last, place - 1, -1):
        text[position] = ZERO + left % ten
        left //= ten
    return last + 1


if not numba.config.DISABLE_JIT:  # compiling takes longer than a sweep of a few calls
    write_lines._cache = KernelCache(write_lines.py_func)
