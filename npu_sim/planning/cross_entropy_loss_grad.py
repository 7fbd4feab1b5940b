"""The plan of CrossEntropyLossGrad: how rows and columns are split, what lies in the Unified Buffer, and why.

Source: specification pages ``cross_entropy_loss_grad`` and ``workspace``.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from npu_sim.cores import Profile
from npu_sim.plan_model import Allocation, Caveat, CoreWork, Decision, Evidence, Flip, Memory, OutputOrder, Workspace, WorkspacePart
from npu_sim.tiling import cross_entropy_loss_grad as tiling_rules
from npu_sim.tiling.cross_entropy_loss_grad import Problem, Tiling
from npu_sim.workspace import TensorArea, kernel_workspace

KERNEL = "CrossEntropyLossGrad"
EXACT_LABELS = 16777216
"""2^24: labels are compared in fp32, exact up to here (page, "Kernel and order")."""


@dataclass(frozen=True)
class Case:
    """A checked call, reduced to what planning needs.

    Attributes
    ----------
    rows, columns
        N and C of log_prob.
    dtype
        dtype of grad_loss, log_prob and x_grad.
    copies
        Contiguous copies of the inputs that are not.
    rows_below
        The documented limit of N as far as it is enforced; None without.
    """

    rows: int
    columns: int
    dtype: str
    weighted: bool
    reduction: str
    ignore_index: int
    copies: tuple[TensorArea, ...]
    rows_below: int | None
    profile: Profile

    def problem(self) -> Problem:
        """What the planner sees."""
        code = tiling_rules.DTYPE_CODES[self.dtype]
        return Problem(self.rows, self.columns, code, self.weighted, tiling_rules.REDUCTIONS.index(self.reduction))


def plan_fields(case: Case) -> dict[str, Any]:
    """Return the fields of the plan that depend on the case; the case has rows, and its buffers fit."""
    tiling = tiling_rules.tile(case.problem(), case.profile.device)
    ranges = [tiling_rules.row_range(tiling, core) for core in range(tiling.block_dim)]
    return {
        "kernel": KERNEL,
        "path": f"{_row_text(tiling)}, {case.reduction}, {'with' if case.weighted else 'no'} weight",
        "path_reason": _path_reason(case, tiling),
        "tiling_key": tiling.tiling_key,
        "schedule_mode": tiling.schedule_mode if tiling.schedule_mode == 1 else None,
        "block_dim": tiling.block_dim,
        "cores_note": _cores_note(tiling),
        "per_core": _per_core(tiling),
        "tiling": tiling_rules.vendor_fields(tiling, case.ignore_index, 0.0),
        "cores": tuple(CoreWork(core=core, ranges={"rows": rows}) for core, rows in enumerate(ranges)),
        "memories": (Memory(name="UB", capacity_bytes=case.profile.device.ub_bytes, allocations=allocations(case, tiling)),),
        "decisions": _decisions(case, tiling),
        "workspace": _workspace(case, tiling),
        "order": (_order(case),),
        "caveats": _caveats(case, tiling),
        "evidence": Evidence.EXACT,
    }


def _pieces(tiling: Tiling) -> int:
    return tiling.column_loop + (1 if tiling.column_tail else 0)


def _row_text(tiling: Tiling) -> str:
    return "whole rows" if _pieces(tiling) == 1 else f"rows in {_pieces(tiling)} pieces"


def _path_reason(case: Case, tiling: Tiling) -> str:
    compared = "<=" if case.columns <= tiling.column_budget else ">"
    unit = tiling_rules.unit_columns(case.problem().dtype_code)
    return f"C {case.columns} {compared} {tiling.column_budget} columns that fit; pieces are multiples of {unit} columns"


def _count(rows: int) -> str:
    return "1 row" if rows == 1 else f"{rows} rows"


def _cores_note(tiling: Tiling) -> str:
    if tiling.tail_cores == 0:
        return f"{_count(tiling.front_rows)} each"
    return f"{_count(tiling.front_rows)} on {tiling.front_cores} cores, {tiling.tail_rows} on {tiling.tail_cores}"


def _per_core(tiling: Tiling) -> str:
    labels = f"labels of {_count(tiling.front_rows)} at once"
    if tiling.align_columns == 0:
        return f"{labels}; each row in one piece of {tiling.column_tail} columns"
    times = "one piece" if tiling.column_loop == 1 else f"{tiling.column_loop} pieces"
    tail = f" and one of {tiling.column_tail}" if tiling.column_tail else ""
    return f"{labels}; each row in {times} of {tiling.align_columns} columns{tail}"


def allocations(case: Case, tiling: Tiling) -> tuple[Allocation, ...]:
    """Return the buffers of a core (page, "Unified Buffer of a core")."""
    piece = tiling_rules.piece_bytes(tiling, case.problem().dtype_code)
    pieces = (
        Allocation(name="log_prob in", bytes=piece, note="longest piece of a row"),
        Allocation(name="x_grad out", bytes=piece),
        Allocation(name="fp32 row", bytes=4 * tiling.align_columns),
    )
    return pieces + row_allocations(tiling)


def row_allocations(tiling: Tiling) -> tuple[Allocation, ...]:
    """Return the buffers that hold something for every row of a core, as far as the call has them."""
    sizes = tiling.buffers._asdict()
    return tuple(Allocation(name=name, bytes=size) for name, size in sizes.items() if size)


def _decisions(case: Case, tiling: Tiling) -> tuple[Decision, ...]:
    return (_budget_decision(case, tiling), _unit_decision(case, tiling), _mean_decision(case))


def _is_legal(case: Case, problem: Problem) -> bool:
    documented = case.rows_below is None or problem.rows < case.rows_below
    return documented and tiling_rules.fits(problem, case.profile.device)


def _budget_decision(case: Case, tiling: Tiling) -> Decision:
    problem, budget = case.problem(), tiling.column_budget
    beyond = case.columns > budget
    most_rows = tiling_rules.largest_rows_with_columns(problem, case.columns, case.profile.device)
    columns, rows = (budget, most_rows) if beyond else (budget + 1, most_rows + 1)
    flips = []
    if columns > 0 and _is_legal(case, tiling_rules.with_columns(problem, columns)):
        flips.append(Flip(argument="C", value=columns))
    if rows > 0 and _is_legal(case, tiling_rules.with_rows(problem, rows)):
        flips.append(Flip(argument="N", value=rows))
    return Decision(
        name="row beyond the buffer",
        condition="C > (Unified Buffer - row buffers) // bytes of a column",
        values={
            "C": case.columns,
            "Unified Buffer": case.profile.device.ub_bytes,
            "row buffers": tiling_rules.row_buffer_bytes(tiling.buffers),
            "bytes of a column": tiling_rules.bytes_per_column(problem.dtype_code),
            "columns that fit": budget,
        },
        outcome=beyond,
        effect="a row passes through the buffer in pieces" if beyond else "a row fits; what is no whole block of columns goes last",
        flips=tuple(flips),
    )


def _unit_decision(case: Case, tiling: Tiling) -> Decision:
    problem = case.problem()
    unit = tiling_rules.unit_columns(problem.dtype_code)
    short = tiling.align_columns == 0
    columns = unit if short else unit - 1
    legal = _is_legal(case, tiling_rules.with_columns(problem, columns))
    return Decision(
        name="short row",
        condition=f"min(C, columns that fit) < {unit}, one block of {tiling_rules.COLUMN_UNIT_BYTES} bytes",
        values={"C": case.columns, "columns that fit": tiling.column_budget},
        outcome=short,
        effect="alignColLoopNum is 0: the row is its own tail" if short else f"alignColLoopNum is {tiling.align_columns}",
        flips=(Flip(argument="C", value=columns),) if legal else (),
    )


def _mean_decision(case: Case) -> Decision:
    mean = case.reduction == "mean"
    other = {"mean": "sum", "sum": "mean"}.get(case.reduction)
    return Decision(
        name="cores wait for one another",
        condition="reduction is mean",
        values={"reduction": case.reduction},
        outcome=mean,
        effect="every core leaves the sum of its rows in the workspace, and all add them up" if mean else "no core needs another",
        flips=(Flip(argument="reduction", value=other),) if other else (),
    )


def _workspace(case: Case, tiling: Tiling) -> Workspace:
    device = case.profile.device
    parts = (
        WorkspacePart(name="system", bytes=device.system_workspace_bytes, kind="system"),
        WorkspacePart(name="sums of the cores", bytes=tiling_rules.core_sum_bytes(device.vector_cores), kind="kernel"),
    )
    return kernel_workspace(parts, case.copies, KERNEL)


def _order(case: Case) -> OutputOrder:
    reason = "every row belongs to one core, nothing is added atomically"
    if case.reduction == "mean":
        reason += "; the divisor is summed core by core"
    return OutputOrder(output="x_grad", deterministic=True, reason=reason)


def aliased_labels(ignore_index: int, columns: int) -> tuple[int, int]:
    """Return the first and last label in [0, C) that fp32 cannot tell from ignore_index; first > last when there is none."""
    wanted = np.float32(ignore_index)
    below, above = int(np.nextafter(wanted, np.float32(-np.inf))), int(np.nextafter(wanted, np.float32(np.inf)))
    first, last = (below + int(wanted) + 1) // 2, (int(wanted) + above) // 2
    # A label midway between two fp32 numbers belongs to the even one.
    first += int(np.float32(first) != wanted)
    last -= int(np.float32(last) != wanted)
    return max(first, 0), min(last, columns - 1)


def _caveats(case: Case, tiling: Tiling) -> tuple[Caveat, ...]:
    caveats = [*_label_caveats(case)]
    if tiling.align_columns == 0:
        message = (
            f"alignColLoopNum is 0: the fp32 row has no bytes of its own, the product writes its {4 * tiling.column_tail} bytes "
            "past it into buffers no longer needed"
        )
        caveats.append(Caveat(code="row_without_own_bytes", argument="log_prob", message=message))
    documented = case.profile.limits.cross_entropy_rows_below
    if documented is not None and case.rows >= documented:
        message = f"N {case.rows} is beyond the documented N < {documented}; the Unified Buffer holds it"
        caveats.append(Caveat(code="rows_beyond_documented", argument="log_prob", message=message))
    return tuple(caveats)


def _label_caveats(case: Case) -> list[Caveat]:
    if case.columns <= EXACT_LABELS:
        return []
    first, last = aliased_labels(case.ignore_index, case.columns)
    if case.ignore_index >= 0 and first < last:
        message = f"labels are compared with ignore_index {case.ignore_index} in fp32: labels {first} to {last} are all ignored"
        return [Caveat(code="labels_alias", argument="ignore_index", message=message)]
    message = (
        f"labels are compared in fp32, exact up to {EXACT_LABELS}; an ignore_index beyond would ignore its neighbours too, "
        f"{case.ignore_index} does not"
    )
    return [Caveat(code="labels_beyond_fp32", argument="log_prob", message=message)]
