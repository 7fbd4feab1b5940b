"""MoeTokenUnpermute on Ascend 950: computation; rows whose probs are 0 are added as well.

Source: specification page ``moe_token_unpermute_950``.
"""

from collections.abc import Iterator

import numpy as np

from npu_sim.framework.vocabulary import Caveat, Run, caveat
from npu_sim.operators.moe_token_unpermute.ascend_950.plan import sums_stale_rows
from npu_sim.operators.moe_token_unpermute.compute import (
    indices_beyond_rows,
    nonfinite_rows_of_zero_probs,
)
from npu_sim.operators.shared.routed_tokens.compute import negative_indices, sum_rows
from npu_sim.tiling.ascend_950 import moe_token_unpermute as tiler


def compute(run: Run) -> None:
    """Weight and sum the rows of every token; a negative index is a dropped row here."""
    sum_rows(run, "permuted_tokens", "unpermuted_tokens", run.case.row.top_k, from_zero=True)
    run.caveats = (
        *negative_indices(run.tensors["sorted_indices"]),
        *_indices_before_rows(run.tensors["sorted_indices"]),
        *indices_beyond_rows(run),
        *_rows_not_summed(run),
    )


def _indices_before_rows(indices: np.ndarray) -> Iterator[Caveat]:
    """Warn of indices below -1."""
    found = int(np.count_nonzero(indices < -1))
    if found:
        yield caveat(
            "indices_below_minus_one",
            "sorted_indices",
            "{found} indices are below -1: the product reads in front of permuted_tokens there; "
            "the simulator counts them as dropped rows. Read in the public sources; not run on a "
            "device",
            found=found,
        )


def _rows_not_summed(run: Run) -> Iterator[Caveat]:
    """Warn of rows that the product replaces by leftovers, and of nan that A2 does not give."""
    row, indices = run.case.row, run.tensors["sorted_indices"]
    dropped = int(np.count_nonzero((indices < 0) | (indices >= row.rows)))
    if dropped and sums_stale_rows(run.case):
        yield caveat(
            "one_expert_dropped",
            "sorted_indices",
            "{dropped} tokens have no row: the product adds what their places in the Unified "
            "Buffer held, the simulator gives 0. Read in the public sources; not run on a device",
            dropped=dropped,
        )
    found = int(np.count_nonzero((indices >= row.entries) & (indices < row.rows)))
    if found and tiler.path_key(run.case.tiling) == tiler.ALL_TOKENS:
        yield caveat(
            "reads_rows_beyond_tokens",
            "sorted_indices",
            "{found} indices are at or beyond {entries}, and the product copies only so many rows: "
            "it adds leftovers of the Unified Buffer, the simulator the rows. Read in the public "
            "sources; not run on a device",
            found=found,
            entries=row.entries,
        )
    nonfinite = nonfinite_rows_of_zero_probs(run)
    if nonfinite:
        yield caveat(
            "zero_prob_gives_nan",
            "probs",
            "{found} rows with inf or nan have probs of 0 and give nan, as in the formula; A2 and "
            "A3 skip such rows. Read in the public sources; not run on a device",
            found=nonfinite,
        )
