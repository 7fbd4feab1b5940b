"""CrossEntropyLossGrad on Ascend 950: labels of int32 too, own planner and kernels.

Rates of vector instructions are not published for this product: the bound is that of the copies.

Source: specification page ``cross_entropy_loss_grad_950``.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from npu_sim.framework.vocabulary import (
    FLOAT_DTYPES,
    INVALID,
    SYSTEM_WORKSPACE_BYTES,
    TILING_FAILURE,
    AclnnError,
    Assumed,
    Case,
    Caveat,
    Condition,
    Decision,
    Description,
    Plan,
    Run,
    Tensor,
    TensorSpec,
    Text,
    Word,
    WorkspacePart,
    caveat,
    checks,
    decision,
    vector_plan,
)
from npu_sim.operators.cross_entropy_loss_grad import declaration
from npu_sim.operators.cross_entropy_loss_grad.compute import all_ignored, label_failure
from npu_sim.operators.cross_entropy_loss_grad.plan import order_of
from npu_sim.operators.cross_entropy_loss_grad.timeline import divisor, sum_of_weights, tensor_views
from npu_sim.operators.shared.study import Claim, StudyCall, probe_terms, trees
from npu_sim.tiling.ascend_950 import cross_entropy_loss_grad as tiler
from npu_sim.tiling.cross_entropy_loss_grad import MEAN, NONE, row_range, vendor_structure
from npu_sim.timelines import (
    Copy,
    Node,
    Phase,
    Program,
    Step,
    Work,
    fp32,
    ranged,
    row_pieces,
    rows_of_cores,
    vector_phase,
    vector_tile,
)

WHOLE = Condition(
    "whole rows",
    "at least one row, with its labels, fits the Unified Buffer",
    lambda row, device, rules: (
        tiler.whole_rows(tiler.problem_of_row(row)._replace(columns=max(row.C, 1)), device) >= 1
    ),
    "rows pass through the buffer whole, several at a time",
    "a row passes through the buffer in pieces of columns",
    ("C",),
)
BARRIER = Condition(
    "cores wait for one another",
    "reduction is mean, with weight or an ignore_index of 0 or more",
    lambda row, device, rules: sums_weights(row),
    "every core leaves the sum of its rows in the workspace, and all add them up",
    "cores do not wait",
    ("reduction", "ignore_index"),
)


def describe(case: Case) -> Description:
    """Return what the operator states of a plan."""
    row, tiling = case.row, case.tiling
    path, per_core = _path(case)
    rows = tiler.row_buffers(tiling, case.specs["log_prob"].itemsize, bool(row.weighted))
    return vector_plan(
        case,
        path=path,
        per_core=per_core,
        buffers={**rows._asdict(), **tiling.buffers._replace(smooth=0)._asdict()},
        ranges=row_ranges(case),
        fields=vendor_structure(tiling, case.arguments, case.rules),
        conditions=lambda: () if (tiler.schedule_of(tiling) == tiler.EMPTY) else _decisions(case),
        workspace=_workspace(tiling),
        order=order_of(sums_weights=sums_weights(row)),
        caveats=_caveats(case),
    )


def _decisions(case: Case) -> Iterator[Decision]:
    yield decision(case, WHOLE, C=case.row.C)
    values = {"ignore_index": case.row.ignore_index, "weight": bool(case.row.weighted)}
    yield decision(case, BARRIER, reduction=case.arguments.reduction, **values)


def _path(case: Case) -> tuple[str, str]:
    """Return the path, and the work of a core."""
    tiling, schedule = case.tiling, tiler.schedule_of(case.tiling)
    if schedule == tiler.EMPTY:
        return "no elements", ""
    path = Text(
        "{row}, {reduction}, {weight}",
        row="whole rows" if schedule == tiler.WHOLE_ROWS else "columns cut",
        reduction=case.arguments.reduction,
        weight="with weight" if case.row.weighted else "no weight",
    )
    if schedule == tiler.WHOLE_ROWS:
        return path, Text("up to {rows} rows at a time", rows=tiler.rows_at_once(tiling))
    return path, Text(
        "one row in pieces of {columns} columns, {pieces} in all",
        columns=tiling.align_columns,
        pieces=tiling.column_loop + (tiling.column_tail > 0),
    )


def _workspace(tiling: tiler.Tiling) -> list[WorkspacePart]:
    parts = (
        WorkspacePart(
            name="system",
            bytes=SYSTEM_WORKSPACE_BYTES,
            kind="system",
            note="16 MiB on every SoC; the sums of the cores lie at its start",
        ),
        WorkspacePart(
            name="sums of the cores",
            bytes=tiling.workspace_bytes - SYSTEM_WORKSPACE_BYTES,
            kind="kernel",
            note="the kernel uses none",
        ),
    )
    return [part for part in parts if part.bytes]


def _caveats(case: Case) -> Iterator[Caveat]:
    """Yield the warnings of a plan (page, "Warnings")."""
    if case.row.ignore_index < 0:
        yield caveat(
            "negative_ignore_index",
            "ignore_index",
            "a negative ignore_index masks nothing on Ascend 950, here {ignore_index}; A2 and "
            "A3 mask labels of this value. There such a label is out of range: the kernel "
            "counts its row and changes another row's gradient or reads outside the tensors. "
            "Give ignored rows a label from 0 to C - 1 and set ignore_index to it. Read in the "
            "public sources; not run on a device",
            ignore_index=case.row.ignore_index,
        )
    if case.specs["target"].dtype == "int32":
        yield caveat(
            "int32_labels_undocumented",
            "target",
            "the product document names int64 labels only; the planner and the kernel take "
            "int32. Read in the public sources; not run on a device",
        )
    if tiler.schedule_of(case.tiling) == tiler.EMPTY or not sums_weights(case.row):
        return
    yield caveat(
        "barrier_without_batch_mode",
        "reduction",
        "all cores wait for each other, but the planner does not ask that they start "
        "together, as it does on A2 and A3: the kernel may hang if they do not. Read in the public "
        "sources; not run on a device",
        since="9.1",
    )
    if case.row.weighted:
        yield caveat(
            "sum_differs_between_products",
            "weight",
            "the weights that mean divides by are added in another order than on A2 and "
            "A3, which depends on N, C, the dtypes and the number of cores: the last bits of "
            "x_grad can differ. Read in the public sources; not run on a device",
        )


CUT_PASS_ROWS = 64
"""Rows whose weights are added at once where columns are cut (page, "S")."""


def sums_weights(row: Any) -> bool:
    """Return whether ``mean`` divides by a sum: without weight and mask it divides by N."""
    return bool(row.reduction == MEAN and (row.weighted or row.ignore_index >= 0))


def pass_rows(case: Case) -> int:
    """Return the rows whose weights a core adds at once."""
    is_whole = tiler.schedule_of(case.tiling) == tiler.WHOLE_ROWS
    return tiler.rows_at_once(case.tiling) if is_whole else CUT_PASS_ROWS


def row_ranges(case: Case) -> list[tuple[int, int]]:
    """Return the half-open range of rows of every core; one without rows for an empty call."""
    return [row_range(case.tiling, core) for core in range(case.tiling.used_cores)] or [(0, 0)]


def compute(run: Run) -> None:
    """Check the labels and compute x_grad."""
    case, tiling = run.case, run.case.tiling
    if tiler.schedule_of(tiling) == tiler.EMPTY:
        return
    with run.watch.stage("load"):
        from npu_sim.kernels import cross_entropy_loss_grad as kernels
        from npu_sim.kernels.shared.elementwise import widen_array
    row, is_whole = case.row, tiler.schedule_of(tiling) == tiler.WHOLE_ROWS
    with run.watch.stage("check"):
        weight = run.stored("weight") if row.weighted else np.empty(0, np.float32)
        target = run.stored("target").astype(np.int64, copy=False)
        labels = kernels.Labels(target, weight, row.C, row.ignore_index, False)
        passes = kernels.Passes(np.array(row_ranges(case), np.int64), pass_rows(case), is_whole)
        survey = kernels.survey_labels(labels, passes, sums_weights(case.row))
        if survey.out_of_range >= 0:
            raise _label_failure(case, target, survey.out_of_range)
        run.caveats = tuple(all_ignored(case, survey.ignored))
    with run.watch.stage("compute"):
        divisor = (
            np.float32(row.N)
            if row.reduction == MEAN and not sums_weights(case.row)
            else survey.divisor
        )
        is_plain = not is_whole and row.reduction != NONE
        division = kernels.Division(divisor, flushes_exp=True, flushes=is_plain)
        grad_loss = widen_array(run.stored("grad_loss")).reshape(-1)
        log_prob, x_grad = run.stored("log_prob"), run.written("x_grad")
        kernels.write_gradient(grad_loss, division, log_prob, labels, x_grad)


def _label_failure(case: Case, target: np.ndarray, place: int) -> AclnnError:
    columns, ignored = case.row.C, case.row.ignore_index
    hint = Text("0 <= label < {columns}; nothing was written", columns=columns)
    if ignored < 0:
        hint = Text(
            "{hint}; a negative ignore_index, here {ignored}, masks nothing on Ascend 950: give "
            "ignored rows a label from 0 to C - 1 and set ignore_index to it",
            hint=hint,
            ignored=ignored,
        )
    return label_failure(target, place, columns, hint)


LABELS = ("target", "target_cast", "ignore", "target_weight", "grad_loss")
SUMMING = (*LABELS, "buf2", "second_sum", "buf3")
COPIED = "labels of the core's rows {rows} are copied in"
LABELS_IN = Step("labels", COPIED, ("target",), live=LABELS)
GRADIENT = Step(
    "gradient",
    "rows {rows}, columns {columns}: out = exp(log_prob) * q; in the label's column q is taken off",
    ("log_prob",),
    ("out",),
    ("grad_loss",),
    ("log_prob", "x_grad", "fp32_rows", "weight", *LABELS),
)


class Call:
    """The call of a plan, in sizes and tensors."""

    def __init__(self, plan: Plan) -> None:
        self.log_prob, self.target, self.loss = (
            TensorSpec.parse(plan.arguments[name]) for name in ("log_prob", "target", "grad_loss")
        )
        self.schedule = (plan.tiling_key or 0) % tiler.REDUCTION_STEP
        self.weighted = plan.arguments.get("weight") is not None
        reduction, masked = plan.tiling["reduction"], plan.tiling["ignoreIndex"] >= 0
        self.loss_by_row = reduction == NONE
        self.sums_weights = reduction == MEAN and (self.weighted or masked)

    def labels(self, rows: int) -> tuple[tuple[Work, ...], tuple[Work, ...]]:
        """Return the copies of the labels of rows, and of their gradients of the loss."""
        copy = Copy(self.target.itemsize * rows, rows)
        return (copy, Copy(self.loss.itemsize * rows, rows)) if self.loss_by_row else (copy,), ()

    def piece(self, columns: int, rows: int) -> tuple[Node, ...]:
        """Return the tile of a piece of some rows."""
        size, elements = self.log_prob.itemsize * columns, columns * rows
        copy = (Copy(size, columns, rows, self.log_prob.nbytes),)
        vector = (fp32.exp_root_or_quotient(elements), fp32.combine_scalar(elements))
        return (vector_tile(copy, vector, copy, GRADIENT),)


def program(plan: Plan) -> Program:
    """Return the work of every core."""
    call = Call(plan)
    if call.schedule == tiler.EMPTY:
        return Program((), views=tensor_views(plan))
    phases = [_gradient(plan, call)]
    if call.sums_weights:
        phases.insert(0, sum_of_weights(plan, call.labels, COPIED, SUMMING))
    not_counted = ["subtracting at the target's column"]
    if call.weighted:
        not_counted.append("reading weights by label")
    return Program(tuple(phases), tuple(not_counted), views=tensor_views(plan))


def _gradient(plan: Plan, call: Call) -> Phase:
    """Return the phase that computes rows: several at a time, or one in pieces of columns."""
    columns, tiling = call.log_prob.shape[1], plan.tiling
    head = (divisor(plan, SUMMING),) if call.sums_weights else ()

    def whole_rows(rows: int) -> tuple[Node, ...]:
        return vector_tile(*call.labels(rows), step=LABELS_IN), *call.piece(columns, rows)

    row = row_pieces(
        tiling["alignColLoopNum"],
        tiling["colLoop"],
        tiling["colLoopNumTail"],
        lambda width: call.piece(width, 1),
    )
    cores = {}
    for core, (start, stop) in rows_of_cores(plan).items():
        if call.schedule == tiler.WHOLE_ROWS:
            at_once = tiling["alignNCNum"] // tiling["alignColLoopNum"]
            rows = ranged("rows", start, stop, at_once, whole_rows)
        else:
            labels = vector_tile(*call.labels(stop - start), step=LABELS_IN)
            rows = (labels, *ranged("rows", start, stop, 1, lambda _: row))
        cores[core] = (*head, *rows)
    return vector_phase("gradient", cores)


open_rules = None
"""The rules that are open on other products do not concern this kernel."""

CODES = 3
"""Different terms of a probe; each is the weight of a class of its own."""


def claims(call: StudyCall) -> Iterator[Claim]:
    """Yield the tree of the sum of weights over the rows.

    Without weights the terms are zeros and ones, whose sum is exact in any order. The probes need a
    class for each term, and a result in fp32.
    """
    case = call.case
    row, dtype = case.row, case.specs["log_prob"].dtype
    if not (sums_weights(case.row) and row.weighted and row.N > 2):
        return
    if row.C <= CODES or dtype != "float32":
        return
    yield Claim(
        output="x_grad",
        element=(0, 0),
        elements=row.N * row.C,
        terms=tuple(Text("weight of row {row}", row=row_index) for row_index in range(row.N)),
        tree=divisor_tree(case),
        outside=partial(_outside, call),
    )


def divisor_tree(case: Case) -> trees.Tree | None:
    """Return the tree of the sum of weights: passes of each core, then the cores."""
    step = pass_rows(case)
    cores = []
    for first, last in row_ranges(case):
        rows = list(range(first, last))
        passes = [trees.row_sum(rows[begin : begin + step]) for begin in range(0, len(rows), step)]
        cores.append(trees.left_fold(passes))
    return trees.row_sum(cores)


def _outside(call: StudyCall, codes: np.ndarray) -> np.ndarray:
    """Run one probe after another; return S, the number of units that survive in each sum.

    Class 1 weighs 1, its neighbours weigh the huge value and its negative. With log_prob = 0, the
    gradient of a row of weight 1 at another class is 1/S.
    """
    row = call.case.row
    weight = np.ones(row.C, np.float32)
    weight[:CODES] = probe_terms(np.array([-1, 0, 1]), "float32")
    ignored = row.C - 1 if row.ignore_index >= 0 else row.ignore_index
    probe = call.with_attributes(ignore_index=ignored)
    fixed: dict[str, Any] = {
        "grad_loss": np.float32(1),
        "log_prob": np.zeros((row.N, row.C), np.float32),
        "weight": weight,
    }
    counts = np.empty(len(codes), np.int64)
    for position, code in enumerate(codes):
        target = (code + 1).astype(call.tensors["target"].dtype)
        result = probe.outputs(**fixed, target=target)["x_grad"]
        gradient = float(result[int(np.argmax(code == 0)), CODES])
        counts[position] = 0 if np.isinf(gradient) else round(1 / gradient)
    return counts


TARGET = Tensor(
    "target",
    "N",
    "label of every row, (N,), int64 or int32",
    "target_dtype",
    samples=0,
    addresses=True,
)
FIELDS: dict[str, Any] = {
    "arguments": tuple(
        TARGET if argument.name == "target" else argument
        for argument in declaration.OPERATOR.arguments
    ),
    "axes": (
        *declaration.OPERATOR.axes,
        Word("target_dtype", "dtype of target", tiler.TARGET_DTYPES, "int64"),
    ),
    "checks": (
        checks.Given(),
        checks.Supported(),
        checks.Dtypes("grad_loss log_prob", declaration.float_dtypes),
        checks.Dtypes("target", tiler.TARGET_DTYPES),
        checks.Dtypes("weight", ("float32",)),
        checks.Dtypes("grad_zloss lse_for_zloss", FLOAT_DTYPES),
        checks.Dtypes("out", declaration.float_dtypes),
        checks.SameDtype("out", "log_prob"),
        checks.Formats(checks.ND),
        declaration.check_unsupported,
        checks.Attributes("ignore_index"),
        partial(declaration.check_reduction, status=TILING_FAILURE),
        checks.Ranks("log_prob", 2, 2, TILING_FAILURE),
        checks.Shapes("log_prob", TILING_FAILURE),
        checks.Shapes("target weight grad_loss out", TILING_FAILURE),
        checks.SameDtype("grad_loss", "log_prob", TILING_FAILURE),
        checks.Holds(
            "ignore_index < C or C == 0", "ignore_index", declaration.label_message, INVALID
        ),
    ),
    "tiling": tiler.Tiling,
    "tile": tiler.tile_row,
    "used_bytes": tiler.used_bytes,
    "assumed": (
        Assumed(
            "system_workspace_bytes",
            SYSTEM_WORKSPACE_BYTES,
            "specification page cross_entropy_loss_grad_950, Tiling",
        ),
    ),
}
"""Fields of the declaration that differ on Ascend 950."""
