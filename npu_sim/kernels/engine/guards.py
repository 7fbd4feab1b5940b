"""Small calls of kernels: compiled code finds the arguments in the tuple that Python put them into, and turns them into words.

Laying them out in Python (:mod:`npu_sim.kernels.engine.entry`) takes longer than many a small
kernel. A guard says what arguments of some types look like in memory: compiled code compares others
with it and reads the words of those it lets pass. Where CPython puts the items of a tuple, the
digits of a number and the head of an object is taken from CPython where it says so; a guard that
does not give the words which Python laid out is not used.
"""

import sys
from array import array
from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from npu_sim.kernels.engine.entry import MEMORY_FLAGS, WORD, Layout
from npu_sim.numbers.arrays import DESCRIPTION_OFFSET

MOST_STEPS = 64
"""Arguments, elements of tuples among them, that a guard may have."""
OFTEN = 4
"""Small calls with arguments of some types before a guard is made of them: what reads guards takes
as long to compile as some kernels."""
MOST_GUARDS = 4
"""So many guards of a kernel are tried before its arguments are laid out in Python."""

HEAD = object.__basicsize__
TYPE = HEAD - 8
"""Where an object's type is: at the end of its head."""
ITEMS = tuple.__basicsize__
DIGITS = int.__basicsize__
DIGIT_BITS = sys.int_info.bits_per_digit
HAS_TAG = sys.version_info >= (3, 12)
"""Whether an int begins with a tag: its sign in two bits, the number of its digits from the fourth
on. Before, that number has the sign."""
AXES, DTYPE, FLAGS = (DESCRIPTION_OFFSET + 8 * place for place in (1, 5, 6))
"""Places in a ``PyArrayObject``."""

ARRAY, INTEGER, BITS_64, BITS_32, TUPLE = range(5)
"""What an argument may be: an array, Python's int, so many bits behind the head of an object, a
tuple."""
KIND_OF: dict[type, int] = {
    int: INTEGER,
    bool: INTEGER,
    np.int64: BITS_64,
    float: BITS_64,
    np.float64: BITS_64,
    np.float32: BITS_32,
}
MOST_DIGITS = 2
"""Digits of an int that are read here; one of more may not fit a word, which Python says."""
HEADER_BYTES, STEP_BYTES = 3 * 8, 6 * 8


class Guard:
    """What arguments of some types look like, and the compiled kernel that takes them.

    Attributes
    ----------
    address
        Where compiled code reads it: the kernel, the number of arguments and of steps; for every
        step what it is, the step of the tuple it lies in (-1: the arguments), its place there, its
        type, and what else is compared.
    """

    def __init__(self, entry: int, arguments: tuple[Any, ...]) -> None:
        self._compared: list[
            Any
        ] = []  # kept alive: another object in the place of a dtype would be taken for it
        steps: list[tuple[int, ...]] = []
        self._add(steps, -1, arguments)
        self.steps = len(steps)
        self._words = array("q", (entry, len(arguments), self.steps, *chain.from_iterable(steps)))
        self.address, _ = self._words.buffer_info()

    def _add(self, steps: list[tuple[int, ...]], parent: int, values: tuple[Any, ...]) -> None:
        for place, value in enumerate(values):
            kind = type(value)
            where = parent, ITEMS + 8 * place, id(kind)
            self._compared.append(kind)
            if isinstance(value, np.ndarray):
                self._compared.append(value.dtype)
                steps.append(
                    (
                        ARRAY,
                        *where,
                        id(value.dtype),
                        value.ndim << 16 | value.flags.num & MEMORY_FLAGS,
                    )
                )
            elif isinstance(value, tuple):
                steps.append((TUPLE, *where, len(value), 0))
                self._add(steps, len(steps) - 1, value)
            else:
                steps.append((KIND_OF[kind], *where, 0, 0))


def guard_of(entry: int, arguments: tuple[Any, ...], layout: Layout) -> Guard | None:
    """Return the guard of some arguments; None when compiled code does not find in them the words of their layout."""
    try:
        guard = Guard(entry, arguments)
    except KeyError:
        return None
    words = array("q", bytes(8 * MOST_STEPS))
    first, _ = words.buffer_info()
    is_found = guard.steps <= MOST_STEPS and run_guarded(guard.address, id(arguments), 0, first)
    return guard if is_found and words[: len(layout.words)] == layout.words else None


@intrinsic
def call_entry(
    typing_context: Any, address: Any, words: Any, share: Any
) -> tuple[Any, Callable[..., Any]]:
    """Call a compiled kernel."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        entry, first, number = arguments
        entry_type = ir.FunctionType(ir.VoidType(), [ir.IntType(8).as_pointer(), WORD])
        builder.call(
            builder.inttoptr(entry, entry_type.as_pointer()),
            [builder.inttoptr(first, entry_type.args[0]), number],
        )
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.intp), generate


@intrinsic
def _stack(typing_context: Any) -> tuple[Any, Callable[..., Any]]:
    """Return the address of words that last as long as the calling function."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        return builder.ptrtoint(cgutils.alloca_once(builder, WORD, MOST_STEPS), WORD)

    return types.intp(), generate


@intrinsic
def _load(typing_context: Any, address: Any) -> tuple[Any, Callable[..., Any]]:
    """Return the word at an address."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        return builder.load(builder.inttoptr(arguments[0], WORD.as_pointer()))

    return types.intp(types.intp), generate


@intrinsic
def _load_half(typing_context: Any, address: Any) -> tuple[Any, Callable[..., Any]]:
    """Return the 32-bit number at an address."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        return builder.sext(
            builder.load(builder.inttoptr(arguments[0], ir.IntType(32).as_pointer())), WORD
        )

    return types.intp(types.intp), generate


@intrinsic
def _store(typing_context: Any, address: Any, word: Any) -> tuple[Any, Callable[..., Any]]:
    """Put a word to an address."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> ir.Value:
        builder.store(arguments[1], builder.inttoptr(arguments[0], WORD.as_pointer()))
        return context.get_dummy_value()

    return types.void(types.intp, types.intp), generate


@njit(nogil=True, no_cfunc_wrapper=True, no_rewrites=True, _nrt=False)
def run_guarded(guard, arguments, shares, words):
    """Compute the shares 0..shares-1 of a kernel; return whether the guard lets the tuple at ``arguments`` pass.

    ``words`` is the address that receives the arguments' words, 0 for one on the stack.
    """
    objects = _stack()
    if words == 0:
        words = _stack()
    entry, step, written = _load(guard), guard + HEADER_BYTES, words
    if _load(arguments + HEAD) != _load(guard + 8):
        return False
    for number in range(_load(guard + 16)):
        kind, parent = _load(step), _load(step + 8)
        found = _load((arguments if parent < 0 else _load(objects + 8 * parent)) + _load(step + 16))
        _store(objects + 8 * number, found)
        if _load(found + TYPE) != _load(step + 24):
            return False
        word = found
        if kind == ARRAY:
            memory = _load_half(found + AXES) << 16 | _load_half(found + FLAGS) & MEMORY_FLAGS
            if _load(found + DTYPE) != _load(step + 32) or memory != _load(step + 40):
                return False
        elif kind == TUPLE:
            if _load(found + HEAD) != _load(step + 32):
                return False
        elif kind == BITS_64:
            word = _load(found + HEAD)
        elif kind == BITS_32:
            word = _load_half(found + HEAD)
        else:
            head = _load(found + HEAD)
            digits, is_negative = (head >> 3, head & 3 == 2) if HAS_TAG else (abs(head), head < 0)
            if digits > MOST_DIGITS:
                return False
            word = 0
            for digit in range(digits):
                word |= _load_half(found + DIGITS + 4 * digit) << DIGIT_BITS * digit
            if is_negative:
                word = -word
        if kind != TUPLE:
            _store(written, word)
            written += 8
        step += STEP_BYTES
    for share in range(shares):
        call_entry(entry, words, share)
    return True
