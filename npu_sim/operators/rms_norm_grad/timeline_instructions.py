"""Vector instructions of RmsNormGrad, in the order in which its kernels issue them.

Source: specification page ``estimate``, "Instruction lists", read from the public kernel sources of
release 8.3. Clearing and merging of dgamma are left out, as there. A product is named by the
buffers that its sources lie in.
"""

from functools import partial

from npu_sim.operators.shared.normalised_rows_timeline import NormalisedRows, lists_by_rows
from npu_sim.plans.model import Plan
from npu_sim.tiling.common import DTYPE_CODES, FP32_BYTES, align, alignment
from npu_sim.tiling.rms_norm_grad import GROUP_ROWS, LANE_COLUMNS, SPLIT_D
from npu_sim.timelines.vector_pipe import (
    InstructionLists,
    Issue,
    Issues,
    copied_rows,
    halving,
    in_groups,
    lane_sums,
    repeated,
    row_conflicts,
    spread,
    whole,
)

BUFFERS = ("dy", "x", "rstd", "gamma", "dx", "dgamma", "scratch")
"""In the order in which the kernels ask for them."""
MEANS_BYTES = 128
"""One of the two mean buffers of key 2, which lie side by side (page ``rms_norm_grad``, "Unified
Buffer of a core")."""


def instructions(plan: Plan) -> InstructionLists:
    """Return what every core issues; bf16 rows of whole repeats on key 1 were compared with a device (page, "Residuals")."""
    rows = _Rows(plan)
    split = plan.tiling_key == SPLIT_D
    return lists_by_rows(
        plan, rows.split if split else rows.whole, rows.like_compared and not split
    )


class _Rows(NormalisedRows):
    """Rows of one call."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan, "dy", BUFFERS, plan.tiling["col"])
        self.ub_factor = plan.tiling["ub_factor"]
        self.aligned = align(self.columns, alignment(DTYPE_CODES[self.dtype]))

    def whole(self, rows: int) -> Issues:
        """Key 1: whole rows in the buffer."""
        once = (*self.widened_gamma(self.aligned), whole("duplicate", self.aligned))
        if self.aligned > LANE_COLUMNS:
            return (*once, *repeated(self._halved_row(), rows))
        return (*once, *in_groups(rows, self.ub_factor, self._lane_group))

    def _halved_row(self) -> Issues:
        wide, on = self.aligned, self.on
        return (
            *(
                *self.widened(wide),
                on("muls", wide),
                *self.widened(wide),
                on("mul", wide, "dy", "x"),
                on("add", wide, "dgamma", "dx"),
            ),
            *(on("mul", wide, "dy", "gamma"), on("mul", wide, "dy", "x"), *halving(self.columns)),
            *(
                on("muls", wide),
                on("sub", wide, "dy", "dx"),
                on("muls", wide),
                *self.narrowed(wide),
            ),
        )

    def _lane_group(self, rows: int) -> Issues:
        wide, on, everything = self.aligned, self.on, rows * self.aligned
        to_rows = spread(rows, wide)
        row_bytes, dx = FP32_BYTES * wide, self.starts["dx"]
        dgamma = row_conflicts(rows, (dx, row_bytes), (self.starts["dgamma"], 0))
        repeats = whole("add", wide).repeats
        return (
            *(*to_rows, *self.widened(everything), on("mul", everything, "x", "dx")),
            *(*self.widened(everything), on("mul", everything, "dy", "x")),
            *(
                Issue("add", repeats, conflict, count, "dx and dgamma")
                for conflict, count in dgamma
            ),
            *copied_rows(rows, wide, FP32_BYTES),
            *(on("mul", everything, "dy", "dx"), on("mul", everything, "dy", "x")),
            *lane_sums(rows, self.columns, row_bytes, dx, self.starts["scratch"]),
            *(
                whole("muls", rows),
                *to_rows,
                on("mul", everything, "x", "dx"),
                on("sub", everything, "dy", "dx"),
            ),
            *(*to_rows, on("mul", everything, "dx", "dy"), *self.narrowed(everything)),
        )

    def split(self, rows: int) -> Issues:
        """Key 2: groups of rows, twice through the pieces of their columns."""
        return in_groups(rows, GROUP_ROWS, self._split_group)

    def _split_group(self, rows: int) -> Issues:
        pieces = in_groups(self.columns, self.ub_factor, partial(self._piece, rows))
        return whole("duplicate", rows), whole("muls", rows), *pieces

    def _piece(self, rows: int, width: int) -> Issues:
        on = self.on
        sums = (
            *(
                *self.widened(width),
                on("muls", width),
                *self.widened(width),
                on("mul", width, "dy", "x"),
            ),
            *(on("add", width, "dgamma", "x"), on("mul", width, "x", "gamma"), *halving(width)),
        )
        gradient = (
            *(
                *self.widened(width),
                on("muls", width),
                on("muls", width),
                *self.widened(width),
                on("mul", width, "dy", "gamma"),
            ),
            *(on("sub", width, "dy", "x"), on("muls", width), *self.narrowed(width)),
        )
        first = (
            *self.widened_gamma(width),
            whole("duplicate", width),
            *repeated(sums, rows),
            whole("add", rows, 0, MEANS_BYTES, between="the means"),
        )
        return (*first, *self.widened_gamma(width), *repeated(gradient, rows))
