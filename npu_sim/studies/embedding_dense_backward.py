"""EmbeddingDenseBackward in the laboratory: the contributions of the rows that several cores add to."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_sim.cores import Profile
from npu_sim.dtypes import kernel_input
from npu_sim.formats import numpy_dtype
from npu_sim.kernels.embedding_dense_backward_chunks import mark_chunks
from npu_sim.kernels.embedding_dense_backward_contributions import sum_chunks
from npu_sim.kernels.embedding_dense_backward_grouping import group_rows
from npu_sim.ops import run
from npu_sim.ops.base import Limits, Order, Result
from npu_sim.ops.embedding_dense_backward import Arguments, checked_indices, cut_of, resolve
from npu_sim.planning.embedding_dense_backward_case import Case
from npu_sim.studies import trees
from npu_sim.studies.certificate import Claim
from npu_sim.studies.embedding_dense_backward_trees import Run, tree_of_row
from npu_sim.studies.parts import Parts
from npu_sim.studies.probes import count_units, probe_terms
from npu_sim.tiling import embedding_dense_backward as v2

BATCH_ELEMENTS = 1 << 24
"""fp32 elements of the contributions held at a time: 64 MiB."""
NAMED_ROWS = 6
"""Rows of grad that a description lists before it says how many more there are."""

FLOATING_TENSORS = ("grad",)
"""Tensors that have the operator's dtype."""
SAMPLE_AXES = {"grad": 0, "indices": 0}
"""Axis along which samples lie, for inputs and outputs that have one."""


def order_dependent_parts(
    arguments: Arguments, tensors: Mapping[str, np.ndarray], profile: Profile, limits: Limits, first: Result, output: str
) -> Iterator[Parts]:
    """Yield the chunks of every order-dependent row of the gradient, some rows at a time."""
    case = resolve(arguments, profile, False, limits)
    cut = cut_of(case)
    grad = kernel_input(tensors["grad"]).reshape(case.rows, case.dim)
    starts, marked = group_rows(checked_indices(tensors["indices"], case.num_weights), case.num_weights)
    mark_chunks(cut, starts, marked)
    ends = np.flatnonzero(marked < 0) + 1
    rows = np.flatnonzero(first.order_dependent[output].mask)
    from_chunk, to_chunk = np.searchsorted(ends, starts[rows], side="right"), np.searchsorted(ends, starts[rows + 1], side="right")
    core_starts = cut.core_starts()
    for batch in _batches(to_chunk - from_chunk, BATCH_ELEMENTS // max(case.dim, 1)):
        chunks = np.concatenate([np.arange(a, b) for a, b in zip(from_chunk[batch], to_chunk[batch], strict=True)])
        begins = np.where(chunks > 0, ends[chunks - 1], 0).astype(np.int64)
        values = np.empty((chunks.size, case.dim), np.float32)
        sum_chunks(grad, marked, begins, ends[chunks].astype(np.int64), values)
        places = begins if cut.splits_slots else _rows_at(marked, begins)
        counts = (starts[rows[batch] + 1] - starts[rows[batch]]).astype(np.float32)
        yield Parts(
            output=output,
            values=values,
            starts=np.concatenate(([0], np.cumsum(to_chunk[batch] - from_chunk[batch]))).astype(np.int64),
            cores=(np.searchsorted(core_starts, places, side="right") - 1).astype(np.int64),
            keys=rows[batch].astype(np.int64),
            factors=np.float32(1) / counts if case.scale_grad_by_freq else np.ones(rows[batch].size, np.float32),
            columns_together=case.dim,
            locate=partial(_locate, rows[batch]),
            describe=partial(_describe, marked, begins, ends[chunks]),
        )


def _batches(sizes: NDArray[np.int64], most: int) -> Iterator[slice]:
    """Cut a list of sizes into ranges whose sizes add up to about ``most``, at least one each."""
    begin, total = 0, 0
    for place, size in enumerate(sizes.tolist()):
        if total and total + size > most:
            yield slice(begin, place)
            begin, total = place, 0
        total += size
    if begin < sizes.size:
        yield slice(begin, sizes.size)


def _rows_at(marked: NDArray[np.int64], slots: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the row of grad at each slot; the last slot of a chunk holds its complement."""
    values: NDArray[np.int64] = np.maximum(marked[slots], ~marked[slots])
    return values


def _locate(rows: NDArray[np.int64], part: int, column: int) -> tuple[int, int]:
    return int(rows[part]), column


def _describe(marked: NDArray[np.int64], begins: NDArray[np.int64], stops: NDArray[np.int64], place: int) -> str:
    begin, stop = int(begins[place]), int(stops[place])
    rows = _rows_at(marked, np.arange(begin, min(stop, begin + NAMED_ROWS))).tolist()
    more = f" and {stop - begin - NAMED_ROWS} more" if stop - begin > NAMED_ROWS else ""
    return f"grad row {rows[0]}" if stop - begin == 1 else f"grad rows {', '.join(map(str, rows))}{more}"


def claims(arguments: Arguments, tensors: Mapping[str, np.ndarray], profile: Profile, options: Mapping[str, Any]) -> Iterator[Claim]:
    """Declare the tree of every output row that rows of grad reach, one claim for all rows that are added alike."""
    order = Order(options.get("core_order", "sequential"), options.get("seed", 0))
    case = resolve(arguments, profile, options.get("deterministic", False), options.get("limits", "documented"))
    indices = checked_indices(tensors["indices"], case.num_weights)
    starts, positions = group_rows(indices, case.num_weights)
    in_order = indices[positions]
    core_ends = _core_ends(case, in_order)
    alike: dict[str, list[int]] = {}
    found: dict[str, trees.Tree] = {}
    for index in np.flatnonzero(np.diff(starts)).tolist():
        if index == case.padding_idx:
            continue
        terms = Run(index, int(starts[index]), positions[starts[index] : starts[index + 1]].tolist())
        tree = tree_of_row(case, terms, order, core_ends)
        assert tree is not None
        key = trees.shape_hash(tree)
        alike.setdefault(key, []).append(index)
        found.setdefault(key, tree)
    for key, rows in alike.items():
        reached = positions[starts[rows[0]] : starts[rows[0] + 1]]
        yield Claim(
            output="grad_weight",
            element=(rows[0], 0),
            elements=len(rows) * case.dim,
            terms=tuple(f"grad[{row}, 0]" for row in reached.tolist()),
            tree=found[key],
            outside=partial(_outside, case, tensors, options, rows[0], reached),
        )


def _core_ends(case: Case, in_order: np.ndarray) -> list[tuple[int, int]]:
    """Return the first and the last index of every core's slice of the sorted list, for the native 16-bit kernel."""
    if not case.native_16_bit:
        return []
    tiling = v2.tile(case.v2_problem(), case.profile.device)
    ranges = [v2.row_range(tiling, core) for core in range(tiling.block_dim)]
    return [(int(in_order[start]), int(in_order[stop - 1])) for start, stop in ranges]


def _outside(
    case: Case, tensors: Mapping[str, np.ndarray], options: Mapping[str, Any], row: int, terms: np.ndarray, codes: np.ndarray
) -> np.ndarray:
    """Run the kernel on probes, a column each; return how many units survive."""
    counts = np.empty(codes.shape[0], np.int64)
    for begin in range(0, codes.shape[0], case.dim):
        piece = codes[begin : begin + case.dim]
        grad = np.zeros((case.rows, case.dim), numpy_dtype(case.grad_dtype))
        grad[terms, : piece.shape[0]] = probe_terms(piece, case.grad_dtype).T
        result = run(
            "embedding_dense_backward",
            grad=grad,
            indices=tensors["indices"],
            num_weights=case.num_weights,
            padding_idx=case.padding_idx,
            scale_grad_by_freq=case.scale_grad_by_freq,
            profile=case.profile,
            **options,
        ).outputs["grad_weight"][row, : piece.shape[0]]
        scaled = result.astype(np.float64) * (terms.size if case.scale_grad_by_freq else 1)
        counts[begin : begin + case.dim] = count_units(scaled, case.grad_dtype)
    return counts


def terms(arguments: Any, tensors: Mapping[str, np.ndarray], output: str, index: tuple[int, ...]) -> list[tuple[str, float]]:
    """Return the terms of an output element in float64, by name."""
    rows = np.flatnonzero(np.trunc(tensors["indices"]).astype(np.int64).reshape(-1) == index[0])
    column = tensors["grad"].reshape(-1, tensors["grad"].shape[-1])[rows, index[1]].astype(np.float64)
    scale = max(rows.size, 1) if arguments.scale_grad_by_freq else 1
    return [(f"grad[{row}, {index[1]}]", value) for row, value in zip(rows.tolist(), (column / scale).tolist(), strict=True)]
