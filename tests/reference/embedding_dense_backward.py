"""Slow reference of EmbeddingDenseBackward: each simulated core yields its contributions.

Written from the specification page, paths in the page's order, and independent of the fast
kernel: cores are loops, contributions are lists, merges are explicit. One vector addition is one
NumPy fp32 addition, so one rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Row = NDArray[np.float32]
Merge = Callable[[int, list[int], list[int]], list[int]]
"""(weight row, contributing cores ascending, contributions of each) -> the core of every
contribution, in order."""

SORTED_FLUSH_ROWS = {"8.3": 10, "8.5": 11, "9.0": 11, "9.1": 11}
"""Keys 0 and 1, by release (page ``releases``)."""
DETERMINISTIC_FLUSH_ROWS = 10
STAGE_FLUSH_SLOTS = 11
VECTOR_CORES = {
    "Ascend910B1": 48,
    "Ascend910B3": 40,
    "Ascend910B4": 40,
    "Ascend910_9391": 48,
    "Ascend910A": 32,
}
A2_UB_BYTES = 196352


@dataclass(frozen=True)
class Case:
    """Plan of one call: the path, and the rows of each core."""

    path: str
    """"sorted" (keys 0, 1), "staged" (key 0, native 16-bit), "deterministic" (10, 11), "small_dim"
    (100, 101), "row_atomic" and "index_order" (Atlas training series, scale off and on)."""
    core_ranges: tuple[tuple[int, int], ...]
    """Per core the half-open range of grad rows, of the sorted list or (index_order) of weight
    rows."""
    batch_rows: int = 0
    """small_dim: rows a core copies at a time (max_row_in_ub)."""
    padding_idx: int = -1
    scale: bool = False
    flush_rows: int = SORTED_FLUSH_ROWS["9.1"]
    """sorted, staged: rows added before a flush."""


@dataclass(frozen=True)
class Contribution:
    """One atomic addition to `weight_row`: `value` is the sum of the grad rows `rows`, in order."""

    core: int
    weight_row: int
    value: Row
    rows: tuple[int, ...]


# --- merge orders ---


def sequential(row: int, cores: list[int], counts: list[int]) -> list[int]:
    return [core for core, count in zip(cores, counts, strict=True) for _ in range(count)]


def reverse(row: int, cores: list[int], counts: list[int]) -> list[int]:
    return sequential(row, cores[::-1], counts[::-1])


def round_robin(row: int, cores: list[int], counts: list[int]) -> list[int]:
    return [
        core
        for turn in range(max(counts, default=0))
        for core, count in zip(cores, counts, strict=True)
        if turn < count
    ]


MERGES: dict[str, Merge] = {
    "sequential": sequential,
    "reverse": reverse,
    "round_robin": round_robin,
}


# --- the cores' programs ---


class _Accumulator:
    """UB accumulator of one core: sums rows from zero until it is flushed."""

    def __init__(self, core: int, grad: Row) -> None:
        self.core, self.grad = core, grad
        self.weight_row, self.rows = -1, []  # type: int, list[int]

    def add(self, weight_row: int, position: int) -> None:
        self.weight_row = weight_row
        self.rows.append(position)

    def flush(self) -> Iterator[Contribution]:
        if self.rows:
            value = np.zeros(self.grad.shape[1], np.float32)
            for position in self.rows:
                value = value + self.grad[position]
            yield Contribution(self.core, self.weight_row, value, tuple(self.rows))
            self.rows = []


def _walk(
    core: int,
    walk: Sequence[int],
    indices: list[int],
    positions: list[int],
    grad: Row,
    case: Case,
    most_rows: int,
) -> Iterator[Contribution]:
    """Add the slots in `walk`; flush after `most_rows`, on index change, at padding and the end."""
    accumulator = _Accumulator(core, grad)
    for at in walk:
        if indices[at] != accumulator.weight_row or len(accumulator.rows) == most_rows:
            yield from accumulator.flush()
        if indices[at] == case.padding_idx:
            yield from accumulator.flush()
        else:
            accumulator.add(indices[at], positions[at])
    yield from accumulator.flush()


def _sorted_core(
    core: int, first: int, end: int, indices: list[int], positions: list[int], grad: Row, case: Case
) -> Iterator[Contribution]:
    yield from _walk(core, range(first, end), indices, positions, grad, case, case.flush_rows)


def _deterministic_core(
    core: int, first: int, end: int, indices: list[int], positions: list[int], grad: Row, case: Case
) -> Iterator[Contribution]:
    if core > 0:
        while first < end and indices[first] == indices[case.core_ranges[core][0] - 1]:
            first += 1
    if first == end:
        return
    yield from _walk(
        core,
        range(end - 1, first - 1, -1),
        indices,
        positions,
        grad,
        case,
        DETERMINISTIC_FLUSH_ROWS,
    )
    beyond = end
    while beyond < len(indices) and indices[beyond] == indices[end - 1]:
        beyond += 1
    yield from _walk(
        core, range(end, beyond), indices, positions, grad, case, DETERMINISTIC_FLUSH_ROWS
    )


def _small_dim_core(
    core: int, first: int, end: int, labels: list[int], grad: Row, case: Case
) -> Iterator[Contribution]:
    for batch in range(first, end, case.batch_rows):
        rows = range(batch, min(batch + case.batch_rows, end))
        for label in sorted({labels[row] for row in rows}, reverse=True):
            if label == case.padding_idx:
                continue
            accumulator = _Accumulator(core, grad)
            for row in rows:
                if labels[row] == label:
                    accumulator.add(label, row)
            yield from accumulator.flush()


def _row_atomic_core(
    core: int, first: int, end: int, labels: list[int], grad: Row, case: Case
) -> Iterator[Contribution]:
    for row in range(first, end):
        if labels[row] != case.padding_idx:
            yield Contribution(
                core, labels[row], np.zeros(grad.shape[1], np.float32) + grad[row], (row,)
            )


def contributions(grad: Row, labels: list[int], case: Case) -> list[Contribution]:
    """Return all contributions, core by core, each core in its program order."""
    positions = sorted(range(len(labels)), key=lambda row: labels[row])
    indices = [labels[row] for row in positions]
    sent: list[Contribution] = []
    for core, (first, end) in enumerate(case.core_ranges):
        if case.path == "sorted":
            sent += _sorted_core(core, first, end, indices, positions, grad, case)
        elif case.path == "deterministic":
            sent += _deterministic_core(core, first, end, indices, positions, grad, case)
        elif case.path == "small_dim":
            sent += _small_dim_core(core, first, end, labels, grad, case)
        else:
            sent += _row_atomic_core(core, first, end, labels, grad, case)
    return sent


# --- results ---


def backward(
    grad: NDArray[np.generic],
    indices: NDArray[np.integer],
    num_weights: int,
    case: Case,
    merge: Merge = sequential,
) -> tuple[NDArray[np.generic], NDArray[np.bool_]]:
    """Return the gradient in the dtype of grad, and the mask of order-dependent rows."""
    wide = grad.astype(np.float32)
    labels = [int(label) for label in indices]
    with np.errstate(all="ignore"):
        if case.path == "staged":
            return _staged(wide, labels, num_weights, case).astype(grad.dtype), np.zeros(
                num_weights, np.bool_
            )
        if case.path == "index_order":
            return _index_order(wide, labels, num_weights, case).astype(grad.dtype), np.zeros(
                num_weights, np.bool_
            )
        return _atomic(wide, labels, num_weights, case, merge, grad.dtype)


def _atomic(
    grad: Row,
    labels: list[int],
    num_weights: int,
    case: Case,
    merge: Merge,
    dtype: np.dtype[np.generic],
) -> tuple[NDArray[np.generic], NDArray[np.bool_]]:
    out = np.zeros((num_weights, grad.shape[1]), np.float32)
    counter = np.zeros(num_weights, np.float32)
    mask = np.zeros(num_weights, np.bool_)
    queues: dict[int, dict[int, list[Contribution]]] = {}
    for sent in contributions(grad, labels, case):
        queues.setdefault(sent.weight_row, {}).setdefault(sent.core, []).append(sent)
    for row, by_core in queues.items():
        cores = sorted(by_core)
        mask[row] = len(cores) >= 2 and sum(map(len, by_core.values())) >= 3
        waiting = {core: iter(by_core[core]) for core in cores}
        for core in merge(row, cores, [len(by_core[core]) for core in cores]):
            arrived = next(waiting[core])
            out[row] = out[row] + arrived.value
            counter[row] = counter[row] + np.float32(len(arrived.rows))
    if case.scale:
        reciprocal = np.float32(1) / np.where(counter == 0, np.float32(1), counter)
        out = out * reciprocal[:, None]
    return out.astype(dtype), mask


def _staged(grad: Row, labels: list[int], num_weights: int, case: Case) -> Row:
    """Native 16-bit: first and last index of a core go through stage slots, others to out."""
    positions = sorted(range(len(labels)), key=lambda row: labels[row])
    indices = [labels[row] for row in positions]
    out = np.zeros((num_weights, grad.shape[1]), np.float32)
    zeros = np.zeros(grad.shape[1], np.float32)
    slots: list[tuple[int, Row]] = []
    for core, (first, end) in enumerate(case.core_ranges):
        caches: dict[int, Row] = dict.fromkeys(indices[first:end], zeros)
        for chunk in _walk(
            core, range(first, end), indices, positions, grad, case, case.flush_rows
        ):
            caches[chunk.weight_row] = caches[chunk.weight_row] + chunk.value
        first_index, last_index = indices[first], indices[end - 1]
        slots.append((first_index, caches[first_index]))
        slots.append((last_index, zeros if last_index == first_index else caches[last_index]))
        for label, cache in caches.items():
            if label not in (first_index, last_index):
                out[label] = cache
    at = 0
    while at < len(slots):
        label, total, chunk_sum, taken = slots[at][0], zeros, zeros, 0
        while at < len(slots) and slots[at][0] == label:
            chunk_sum, taken, at = chunk_sum + slots[at][1], taken + 1, at + 1
            if taken == STAGE_FLUSH_SLOTS:
                total, chunk_sum, taken = total + chunk_sum, zeros, 0
        out[label] = total + chunk_sum
    return out


def _index_order(grad: Row, labels: list[int], num_weights: int, case: Case) -> Row:
    """Atlas training series with scale: each core scans all indices for its own weight rows."""
    out = np.zeros((num_weights, grad.shape[1]), np.float32)
    for first, end in case.core_ranges:
        counts = [0] * num_weights
        for label in labels:
            if first <= label < end and label != case.padding_idx:
                counts[label] += 1
        for row, label in enumerate(labels):
            if first <= label < end and label != case.padding_idx:
                out[label] = out[label] + grad[row] * (np.float32(1) / np.float32(counts[label]))
    return out


# --- plans of the golden files, from the page ---


def even_split(rows: int, cores: int) -> tuple[tuple[int, int], ...]:
    """Split rows: rows // cores each, one more on the first rows % cores."""
    ends = np.cumsum([rows // cores + (core < rows % cores) for core in range(cores)])
    return tuple(
        (int(end) - rows // cores - (core < rows % cores), int(end))
        for core, end in enumerate(ends)
    )


def rest_on_last_split(rows: int, cores: int) -> tuple[tuple[int, int], ...]:
    """Split rows: rows // cores each, the rest on the last core (small_dim)."""
    each = rows // cores
    return tuple(
        (core * each, rows if core == cores - 1 else (core + 1) * each) for core in range(cores)
    )


def ceiling_split(rows: int, cores: int) -> tuple[tuple[int, int], ...]:
    """Split rows: ceil(rows, cores) each until none are left (Atlas training series)."""
    each = -(-rows // cores)
    return tuple((first, min(first + each, rows)) for first in range(0, rows, each))


def planned_case(
    soc: str,
    shape: tuple[int, int],
    dtype: str,
    num_weights: int,
    padding_idx: int,
    scale: bool,
    deterministic: bool,
) -> Case:
    """Return path and split of the page for a rank-2 grad of this shape."""
    rows, dim = shape
    cores = VECTOR_CORES[soc]
    if soc == "Ascend910A":
        if scale:
            return Case("index_order", ceiling_split(num_weights, cores), 0, padding_idx, True)
        ranges = ceiling_split(rows, cores)
        if deterministic or rows // len(ranges) * dim < 8:
            ranges = ((0, rows),)
        return Case("row_atomic", ranges, 0, padding_idx, False)
    need_cast = (rows * dim + num_weights * dim) * 2 < 104857600 or rows < 512 or scale
    kernel_bytes = 4 if dtype == "float32" or need_cast else 2
    cores = min(cores, rows, num_weights) if scale else min(cores, rows)
    if not deterministic and dim <= 512 and num_weights <= 16777216:
        batch = ((A2_UB_BYTES - 20480) // 4 - dim - 256) // (10 + (dim + 7) // 8 * 8)
        batch = batch if kernel_bytes == 4 else batch // 2
        return Case("small_dim", rest_on_last_split(rows, cores), batch, padding_idx, scale)
    if kernel_bytes == 2:
        return Case("staged", even_split(rows, cores), 0, padding_idx, False)
    return Case(
        "deterministic" if deterministic else "sorted",
        even_split(rows, cores),
        0,
        padding_idx,
        scale,
    )


def as_grad(stored: NDArray[np.generic], dtype: str) -> NDArray[np.generic]:
    """Golden bf16 arrays are stored as uint16 bits."""
    return stored.view(ml_dtypes.bfloat16) if dtype == "bfloat16" else stored
