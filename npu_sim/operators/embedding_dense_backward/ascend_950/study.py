"""Studies of EmbeddingDenseBackward on Ascend 950.

Trees follow the specification and the plan, not the marks of the kernel, so that probes of the
kernel are an independent check.

Source: specification page ``embedding_dense_backward_950``.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby, pairwise

import numpy as np

from npu_sim.framework.vocabulary import Array, Result, core_ranges
from npu_sim.operators.embedding_dense_backward import study as shared
from npu_sim.operators.embedding_dense_backward.ascend_950.plan import PAIRS_TESTED
from npu_sim.operators.embedding_dense_backward.declaration import KERNEL_GRAD_V2
from npu_sim.operators.embedding_dense_backward.study import IndexRun, TreeOfRow, chunks_of
from npu_sim.operators.shared.open_rules import open_rule
from npu_sim.operators.shared.study import Changes, Claim, OpenRule, StudyCall, Tree, left_fold
from npu_sim.tiling.ascend_950 import embedding_dense_backward as v2
from npu_sim.tiling.ascend_950.embedding_dense_backward import embedding_dense_grad as v1

GROUP_OF_V2, GROUP_OF_V1 = 10, 5
"""Rows of a group."""
CHANGES = Changes(grown=shared.CHANGES.grown, found=shared.CHANGES.found, others=shared.as_fp32)


def claims(call: StudyCall) -> Iterator[Claim]:
    """Yield the summation trees of the output rows.

    There is none for a row that holds the sum of one core, because V2 left out the merge.
    """
    yield from shared.claims_of_rows(call, _tree_maker)


def causes(call: StudyCall, dtype: str, golden: Array) -> list[tuple[str, float, str]]:
    """Return the error of scaling by the reciprocal, in ulp; counters are integers here."""
    tiling = call.case.tiling
    if tiling.kernel != KERNEL_GRAD_V2 and v1.is_full_load(tiling.v1):
        return []
    return shared.causes(call, dtype, golden)[:1]


def _tree_maker(call: StudyCall, in_order: Array) -> TreeOfRow:
    tiling, padding = call.case.tiling, call.case.row.padding_idx
    if tiling.kernel == KERNEL_GRAD_V2:
        ranges = core_ranges(v2.core_range, tiling.v2)
        slices = [in_order[begin:stop] for begin, stop in ranges]
        return partial(
            tree_of_v2,
            starts=[begin for begin, _ in ranges],
            batch_rows=tiling.v2.batch_rows,
            # The first slot of a core is there and holds zeros.
            zeros=[
                core > 0 and bool(part[0] == padding or np.unique(part[part != padding]).size == 1)
                for core, part in enumerate(slices)
            ],
            merges=merges(slices, padding),
        )
    return lambda run: tree_of_v1(run, tiling.v1.batch_rows)


def merges(slices: Sequence[Array], padding: int) -> bool:
    """Return whether one of the pairs that V2 tests has an index in common."""
    return any(
        left[-1] == other[0] != padding for left, other in pairwise(slices[: PAIRS_TESTED + 1])
    )


def tree_of_v1(run: IndexRun, batch_rows: int) -> Tree | None:
    """Return the tree of a run on EmbeddingDenseGrad; terms are numbered in row order."""
    batches = groupby(range(len(run.rows)), key=lambda term: run.rows[term] // batch_rows)
    return left_fold([left_fold(chunks_of(list(batch), GROUP_OF_V1)) for _, batch in batches])


def tree_of_v2(
    run: IndexRun, starts: Sequence[int], batch_rows: int, zeros: Sequence[bool], merges: bool
) -> Tree | None:
    """Return the tree of a run on EmbeddingDenseGradV2; None when the merge leaves rows out.

    - ``run``: the rows of one index, at least one.
    - ``starts``: first sorted row of every core, a multiple of ``batch_rows``.
    - ``zeros``: whether a slot of zeros comes before the sum of a core.
    - ``merges``: whether the sums of several cores are added.
    """
    slots: list[Tree | None] = []
    terms = range(len(run.rows))
    core_of = np.searchsorted(starts, run.first + np.arange(len(run.rows)), side="right") - 1
    for core, core_terms in groupby(terms, key=lambda term: int(core_of[term])):
        batches = groupby(core_terms, key=lambda term: (run.first + term) // batch_rows)
        groups = [group for _, batch in batches for group in chunks_of(list(batch), GROUP_OF_V2)]
        slots += [None] if zeros[core] else []
        slots.append(left_fold(groups))
    if core_of[0] == core_of[-1]:
        return slots[-1]
    return left_fold(chunks_of(slots, GROUP_OF_V2)) if merges else None


def open_rules(call: StudyCall, result: Result) -> Iterator[OpenRule]:
    """Yield the bound of a scaled gradient: 1/count and quotients are documented to 1 ulp.

    A result in fp32 is its own centre. The fp32 value of one in 16 bits lies within the bound of
    the sum's rounding from the exact one.
    """
    if call.case.empty or not call.arguments.scale_grad_by_freq:
        return
    output = result.outputs["grad_weight"]
    exact, sizes = shared.sums_in_fp64(call)
    if output.dtype == np.float32:
        exact, error = output.astype(np.float64), np.zeros(1)
    else:
        rows = shared.rows_of_weights(call)
        error = rows[:, None] * 2.0**-24 * sizes
    radius = np.abs(exact) * 2.0**-21 + error
    yield open_rule(
        result,
        "grad_weight",
        exact,
        radius,
        "1/count in fp32 is documented to 1 ulp only: every value within that bound is possible",
    )
