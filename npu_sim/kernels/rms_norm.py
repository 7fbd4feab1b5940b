"""RmsNorm: y = (x * rstd) * gamma with rstd = 1 / sqrt(mean(x^2) + epsilon).

A row's squares are summed in fp32 in the order of its path (`npu_sim.kernels.shared.square_sums`).
Rows are independent, so threads split them evenly, regardless of the simulated core split. Each row
is read twice (sum, then y); the second read hits the cache.

Slow reference with the order of additions: ``tests/reference/rms_norm.py``.

Sources: specification pages ``rms_norm``, section "Kernels and accumulation order", and
``rms_norm_950``, "Kernels and order".
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.engine.compile import device_function, kernel, thread_scratch, threads_for
from npu_sim.kernels.shared.square_sums import (
    FOLDED,
    HALVING,
    LANES,
    LIST_SLOTS,
    LISTS,
    PIECES,
    REGISTERS,
    Split,
    folded_sum,
    halved_sums,
    inverse_root,
    lane_sum,
    listed_sum,
    normal_root,
    refined_root,
)
from npu_sim.kernels.vectors.lanes import Floats, end_streams, load, prefetch
from npu_sim.kernels.vectors.lanes_edges import load_like, load_some, streams_rows, write_row
from npu_sim.kernels.vectors.row_sums import LANE_COUNT

LOOKAHEAD_BYTES = 8192
"""Minimum prefetch distance for x while y is written; without it the memory bus would idle between
the two passes."""
PREFETCHED_ROW_BYTES = 1 << 17
"""Rows longer than this are not prefetched a whole row ahead: they would be evicted from L2 before
use."""


class Rows(NamedTuple):
    """Inputs and outputs of a call; see `rms_norm`."""

    x: NDArray[Any]
    gamma: NDArray[Any]
    y: NDArray[Any]
    rstd: Floats


class Settings(NamedTuple):
    """Constants of a call."""

    average: np.float32
    """1 / columns."""
    epsilon: np.float32
    ahead: int
    """Prefetch distance for x, in elements."""
    streams: bool
    """Whether y is written with non-temporal stores."""


class Row(NamedTuple):
    """Inputs of y = (x*rstd)*gamma for one row, rounded once."""

    x: NDArray[Any]
    gamma: NDArray[Any]
    rstd: np.float32
    ahead: int
    """Prefetch distance for x, in elements."""


@device_function
def _line_of(row: Row, column: int) -> Any:
    """Return a cache line of y."""
    prefetch(row.x, column + row.ahead)
    return (load(row.x, column) * row.rstd) * load_like(row.gamma, column, row.x)


@device_function
def _part_of(row: Row, column: int, begin: int, stop: int) -> Any:
    """Return the elements begin..stop of a cache line of y."""
    x = load_some(row.x, column, begin, stop, row.x)
    return (x * row.rstd) * load_some(row.gamma, column, begin, stop, row.x)


@device_function
def _compute_rows(
    chunk: int,
    rows: Rows,
    settings: Settings,
    split: Split,
    scratch: Floats,
    sum_row: Any,
    root: Any,
) -> None:
    """Compute a chunk of the rows.

    ``sum_row(x, split, scratch)`` and ``root(total, average, epsilon)`` are constants of a kernel.
    """
    count, chunks = len(rows.x), len(scratch)
    for row in range(count * chunk // chunks, count * (chunk + 1) // chunks):
        x, y = rows.x[row], rows.y[row]
        rstd = root(sum_row(x, split, scratch[chunk]), settings.average, settings.epsilon)
        rows.rstd[row] = rstd
        inputs = Row(x, rows.gamma, rstd, settings.ahead)
        write_row(inputs, y, settings.streams, _line_of, _part_of)
    end_streams()


@kernel
def _narrow_rows(chunk: int, rows: Rows, settings: Settings, split: Split, scratch: Floats) -> None:
    """Sum in lane accumulators."""
    _compute_rows(chunk, rows, settings, split, scratch, lane_sum, inverse_root)


@kernel
def _halved_rows(chunk: int, rows: Rows, settings: Settings, split: Split, scratch: Floats) -> None:
    """Sum by halving, whole rows or in pieces."""
    _compute_rows(chunk, rows, settings, split, scratch, halved_sums, inverse_root)


@kernel
def _folded_rows(chunk: int, rows: Rows, settings: Settings, split: Split, scratch: Floats) -> None:
    """Key 5000."""
    _compute_rows(chunk, rows, settings, split, scratch, folded_sum, refined_root)


@kernel
def _listed_rows(chunk: int, rows: Rows, settings: Settings, split: Split, scratch: Floats) -> None:
    """Key 2001."""
    _compute_rows(chunk, rows, settings, split, scratch, listed_sum, normal_root)


def lookahead(x: NDArray[Any]) -> int:
    """Return the prefetch distance in elements: one row, unless rows are short or very long."""
    row_bytes = x.shape[1] * x.itemsize
    is_row = LOOKAHEAD_BYTES < row_bytes <= PREFETCHED_ROW_BYTES
    return (row_bytes if is_row else LOOKAHEAD_BYTES) // x.itemsize


def rms_norm(
    x: NDArray[Any],
    gamma: NDArray[Any],
    split: Split,
    epsilon: np.float32,
    y: NDArray[Any],
    rstd: Floats,
) -> None:
    """Compute y and rstd.

    Parameters
    ----------
    x, y : (rows, columns)
        Storage arrays of one dtype; at least one column.
    gamma : (columns,)
        Storage array of the same dtype or float32.
    split
        Path of the summation.
    epsilon
        Added to the mean of the squares.
    rstd : float32 (rows,)
    """
    threads, columns = threads_for(x.nbytes + y.nbytes), x.shape[1]
    kernel, scratch_size = {
        LANES: (_narrow_rows, LANE_COUNT),
        HALVING: (_halved_rows, max(columns, LANE_COUNT)),
        PIECES: (_halved_rows, max(split.piece_columns, LANE_COUNT)),
        FOLDED: (_folded_rows, REGISTERS),
        LISTS: (_listed_rows, REGISTERS + LIST_SLOTS + split.piece_columns + split.granule),
    }[split.path]
    settings = Settings(np.float32(1) / np.float32(columns), epsilon, lookahead(x), streams_rows(y))
    scratch = thread_scratch(threads, scratch_size)
    kernel.over(threads, Rows(x, gamma, y, rstd), settings, split, scratch)
