"""MoeTokenUnpermute on Ascend 950: computation in the product's order.

Source: specification page ``moe_token_unpermute_950``, "Order".
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from npu_sim.framework.case import Case
from npu_sim.language import Text
from npu_sim.operators.moe_token_unpermute.compute import (
    indices_beyond_rows,
    nonfinite_rows_of_zero_probs,
)
from npu_sim.operators.shared.token_sums import negative_indices
from npu_sim.plans.model import Caveat
from npu_sim.tiling.ascend_950 import moe_token_unpermute as tiler

if TYPE_CHECKING:
    from npu_sim.framework.execution import Run


def compute(run: "Run") -> None:
    """Weight and sum the rows of every token; a negative index is a dropped row here."""
    row = run.case.row
    with run.watch.stage("load"):
        from npu_sim.kernels.elementwise import widen_array
        from npu_sim.kernels.token_sums import sum_tokens
    with run.watch.stage("compute"):
        probs = widen_array(run.stored("probs")).reshape(-1) if row.has_probs else None
        sum_tokens(
            run.stored("permuted_tokens").reshape(-1),
            run.stored("sorted_indices"),
            run.written("unpermuted_tokens").reshape(-1),
            row.top_k,
            row.hidden,
            probs,
            from_zero=True,
        )
    indices = run.tensors["sorted_indices"]
    run.caveats = (
        *negative_indices(indices),
        *_indices_before_rows(indices),
        *indices_beyond_rows(run),
        *_stale_rows(run.case, indices),
        *_indices_beyond_buffer(run.case, indices),
        *_nonfinite_rows(run),
    )


def sums_stale_rows(case: Case) -> bool:
    """Return whether dropped entries add what the buffer held (page, ``one_expert_dropped``)."""
    return case.row.top_k == 1 and tiler.path_key(case.tiling) == tiler.ALL_ROWS


def _indices_before_rows(indices: np.ndarray) -> Iterator[Caveat]:
    """Warn of indices below -1."""
    found = int(np.count_nonzero(indices < -1))
    if found:
        message = Text(
            "{found} indices are below -1: the product reads in front of permuted_tokens there; "
            "the simulator counts them as dropped rows. Read in the public sources; not run on a "
            "device",
            found=found,
        )
        yield Caveat(code="indices_below_minus_one", argument="sorted_indices", message=message)


def _stale_rows(case: Case, indices: np.ndarray) -> Iterator[Caveat]:
    """Warn of dropped entries of tokens with one row."""
    dropped = int(np.count_nonzero((indices < 0) | (indices >= case.row.rows)))
    if dropped and sums_stale_rows(case):
        message = Text(
            "{dropped} tokens have no row: the product adds what their places in the Unified "
            "Buffer held, the simulator gives 0. Read in the public sources; not run on a device",
            dropped=dropped,
        )
        yield Caveat(code="one_expert_dropped", argument="sorted_indices", message=message)


def _indices_beyond_buffer(case: Case, indices: np.ndarray) -> Iterator[Caveat]:
    """Warn of rows that key 3002x does not copy."""
    row = case.row
    found = int(np.count_nonzero((indices >= row.entries) & (indices < row.rows)))
    if found and tiler.path_key(case.tiling) == tiler.ALL_TOKENS:
        message = Text(
            "{found} indices are at or beyond {entries}, and the product copies only so many rows: "
            "it adds leftovers of the Unified Buffer, the simulator the rows. Read in the public "
            "sources; not run on a device",
            found=found,
            entries=row.entries,
        )
        yield Caveat(code="reads_rows_beyond_tokens", argument="sorted_indices", message=message)


def _nonfinite_rows(run: "Run") -> Iterator[Caveat]:
    """Warn of nan that A2 and A3 do not give."""
    found = nonfinite_rows_of_zero_probs(run)
    if found:
        message = Text(
            "{found} rows with inf or nan have probs of 0 and give nan, as in the formula; A2 and "
            "A3 skip such rows. Read in the public sources; not run on a device",
            found=found,
        )
        yield Caveat(code="zero_prob_gives_nan", argument="probs", message=message)
