"""Vector instructions of RmsNorm, in the order in which its kernels issue them.

Sources: specification pages ``estimate``, "Instruction lists", and ``rms_norm``, "Vector
instructions of a tile" and "Unified Buffer of a core". Where no page says in which buffer an
operand lies, it is taken to be the one whose values it holds (a model): on keys 0 and 1 a widened
gamma takes the place of the squares, and the factors that `div` reads lie where rows are summed and
where rstd goes out from.
"""

from npu_sim.operators.shared.normalised_rows_timeline import (
    NormalisedRows,
    buffer_sizes,
    lists_by_rows,
)
from npu_sim.plans.model import Plan
from npu_sim.tiling.common import FP32_BYTES, ceil_div
from npu_sim.tiling.rms_norm import KEY_MERGE_N, KEY_SINGLE_ROW, KEY_SPLIT_D, RSTD_ROWS
from npu_sim.timelines.vector_pipe import (
    LANES,
    InstructionLists,
    Issue,
    Issues,
    by_rows,
    copied_rows,
    halving,
    in_groups,
    lane_sums,
    repeated,
    spread,
    whole,
)

BUFFERS = ("x", "gamma", "y", "rstd", "x_fp32", "squares", "reduction")
"""In the order in which the kernels ask for them."""
LANE_BYTES = FP32_BYTES * LANES


def instructions(plan: Plan) -> InstructionLists:
    """Return what every core issues; bf16 rows of whole repeats on key 2 were compared with a device (page, "Residuals")."""
    rows, key = _Rows(plan), plan.tiling_key
    of_rows = (
        rows.merged if key == KEY_MERGE_N else rows.split if key == KEY_SPLIT_D else rows.whole
    )
    return lists_by_rows(plan, of_rows, rows.like_compared and key == KEY_MERGE_N)


class _Rows(NormalisedRows):
    """Rows of one call."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan, "x", BUFFERS, plan.tiling["num_col"])
        self.aligned, self.row_factor, self.ub_factor = (
            plan.tiling[name] for name in ("num_col_align", "row_factor", "ub_factor")
        )
        self.spares_broadcasts = bool(plan.tiling.get("is_performance"))
        # Whether merged rows find gamma widened in its buffer, which is then as large as that of
        # fp32.
        self.gamma_lies_wide = buffer_sizes(plan)["gamma"] == FP32_BYTES * self.ub_factor
        if not self.widens:
            self.starts["x_fp32"] = self.starts["x"]
        if plan.tiling_key == KEY_SINGLE_ROW:
            self.starts["squares"] = self.starts["x"]

    def rstd(self, rows: int) -> Issues:
        """Mean, epsilon, root, and the quotient of a duplicated 1 by it."""
        quotient = self.on("div", rows, "reduction", "rstd")
        return (
            whole("muls", rows),
            whole("adds", rows),
            whole("square root", rows),
            whole("duplicate", rows),
            quotient,
        )

    def squared(self, elements: int) -> Issues:
        """Widen x and multiply it by itself."""
        return *self.widened(elements), self.on("mul", elements, "x_fp32", "x_fp32")

    def scaled(self, elements: int) -> Issues:
        """Multiply by gamma, which is widened for every row anew, and narrow."""
        if self.widens_gamma:
            product: Issues = (
                whole("cast 16 to 32 bits", elements),
                self.on("mul", elements, "x_fp32", "squares"),
            )
        else:
            product = (self.on("mul", elements, "x_fp32", "gamma"),)
        return *product, *self.narrowed(elements)

    def whole(self, rows: int) -> Issues:
        """Keys 0 and 3: one row after the other; the scalar unit makes rstd."""
        wide = self.columns
        return repeated(
            (*self.squared(wide), *halving(wide), whole("muls", wide), *self.scaled(wide)), rows
        )

    def split(self, rows: int) -> Issues:
        """Key 1: for a group of rows first the sums of all pieces, then y."""

        def sums(width: int) -> Issues:
            return *self.squared(width), *halving(width)

        def results(width: int) -> Issues:
            return *self.widened(width), whole("muls", width), *self.scaled(width)

        def group(some: int) -> Issues:
            first, second = (
                repeated(in_groups(self.columns, self.ub_factor, step), some)
                for step in (sums, results)
            )
            return *first, *self.rstd(LANES), *second

        return in_groups(rows, RSTD_ROWS, group)

    def merged(self, rows: int) -> Issues:
        """Key 2: several rows in the buffer at a time, summed in lanes side by side."""
        once = self.widened_gamma(self.columns) if self.gamma_lies_wide else ()
        if not self.spares_broadcasts:
            once += copied_rows(
                self.row_factor,
                self.aligned,
                FP32_BYTES if self.gamma_lies_wide else self.gamma_bytes,
            )
        return *once, *in_groups(
            rows,
            self.row_factor,
            self._spared_group if self.spares_broadcasts else self._merged_group,
        )

    def _sums(self, rows: int) -> Issues:
        row_bytes = FP32_BYTES * self.aligned
        sums = lane_sums(
            rows, self.columns, row_bytes, self.starts["squares"], self.starts["reduction"]
        )
        return *self.squared(rows * self.aligned), *sums, *self.rstd(rows)

    def _merged_group(self, rows: int) -> Issues:
        elements = rows * self.aligned
        by_rstd = (*spread(rows, self.aligned), self.on("mul", elements, "x_fp32", "squares"))
        if self.gamma_lies_wide:
            by_gamma: Issues = (self.on("mul", elements, "squares", "gamma"),)
        else:  # gamma is widened for every group anew, to where x was in fp32
            by_gamma = (
                whole("cast 16 to 32 bits", elements),
                self.on("mul", elements, "squares", "x_fp32"),
            )
        return *self._sums(rows), *by_rstd, *by_gamma, *self.narrowed(elements)

    def _spared_group(self, rows: int) -> Issues:
        """Without broadcasts: 64 columns of all rows at a time; rstd is one block of a row, read eight times, which costs nothing."""
        steps, row_bytes = ceil_div(self.aligned, LANES), FP32_BYTES * self.aligned
        squares, gamma = self.starts["squares"], self.starts["gamma"]
        by_rstd = Issue("mul", rows, times=steps)
        by_gamma = (
            by_rows(
                "mul",
                rows,
                (squares + LANE_BYTES * step, row_bytes),
                (gamma + LANE_BYTES * step, 0),
                "squares and gamma",
            )
            for step in range(steps)
        )
        broadcast = Issue("broadcast to blocks", rows)
        return *self._sums(rows), broadcast, by_rstd, *by_gamma, *self.narrowed(rows * self.aligned)
