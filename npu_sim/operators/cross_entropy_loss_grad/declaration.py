"""CrossEntropyLossGrad: the gradient of the cross-entropy loss with respect to its logits.

Source: product document aclnnCrossEntropyLossGrad; specification page ``cross_entropy_loss_grad``.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from npu_sim.cores import Profile
from npu_sim.framework import checks, tensor_checks
from npu_sim.framework.arguments import INT64_MAX, Attribute, Output, Tensor
from npu_sim.framework.axes import Number, Switch, Word
from npu_sim.framework.case import Case, Inspection
from npu_sim.framework.codes import FLOAT_DTYPES
from npu_sim.framework.operator import Operator
from npu_sim.framework.results import runtime_failure
from npu_sim.numbers.formats import TensorSpec, numpy_dtype
from npu_sim.operators.cross_entropy_loss_grad.limits import beyond_buffer, beyond_documented
from npu_sim.operators.cross_entropy_loss_grad.plan import describe
from npu_sim.plans.answers import Evidence
from npu_sim.plans.model import Caveat
from npu_sim.status import INVALID, TILING_FAILURE, AclnnError, closest, shown
from npu_sim.tiling import cross_entropy_loss_grad as tiler

if TYPE_CHECKING:
    from npu_sim.framework.execution import Run
    from npu_sim.kernels.cross_entropy_loss_grad import Survey

IGNORED_SHARE = 0.1
"""Share of the labels that are ignore_index, when that is a label at all: about what padding is."""
WEIGHTS = (0.5, 1.5)
"""Range of the weights, around 1."""
BLOCK_ELEMENTS = 1 << 22
"""Elements drawn, or computed by the formula, at a time, so that temporaries stay small."""


def float_dtypes(profile: Profile) -> Sequence[str]:
    """Return the dtypes that log_prob can have."""
    return [dtype for dtype in FLOAT_DTYPES if dtype in profile.product.dtypes]


def loss_axes(arguments: Mapping[str, Any]) -> str:
    """Return the axes of grad_loss: the loss of every row, unless they are reduced."""
    return "N" if arguments["reduction"] == "none" else ""


def check_options(call: Inspection) -> None:
    """Check the reduction, and that nothing is asked for that the product does not support yet; 161002."""
    arguments = call.arguments
    if arguments.reduction not in tiler.REDUCTIONS:
        message = f"reduction = {shown(arguments.reduction)} is not a reduction"
        hint = f"reduction: {', '.join(tiler.REDUCTIONS)}{closest(arguments.reduction, tiler.REDUCTIONS)}"
        raise AclnnError(INVALID, "reduction", message, hint)
    for name in ("label_smoothing", "lse_square_scale_for_zloss"):
        number = checks.require_float(name, arguments[name])
        if name == "label_smoothing" and not 0 <= number <= 1:
            raise AclnnError(
                INVALID,
                name,
                f"{name} = {number:g} is outside [0, 1]",
                f"{name} = 0: others are not supported yet",
            )
        if number != 0:
            raise AclnnError(
                INVALID, name, f"{name} = {number:g} is not supported yet", f"{name} = 0"
            )
    for name in ("grad_zloss", "lse_for_zloss"):
        if arguments[name] is not None:
            raise AclnnError(INVALID, name, f"{name} is not supported yet", f"leave {name} out")


def _label_words(call: Inspection) -> tuple[str, str]:
    columns = call.size("C")
    return (
        f"ignore_index = {call.size('ignore_index')} must be below C = {columns}",
        f"ignore_index <= {columns - 1}; negative for none",
    )


def compute(run: "Run") -> None:
    """Check the labels and compute x_grad; in a workspace the sum of every core lies there for ``mean``. Nothing depends on the order."""
    case = run.case
    with run.watch.stage("load"):
        from npu_sim.kernels import cross_entropy_loss_grad as kernels
        from npu_sim.kernels.elementwise import widen_array
    ignored, mean = case.row.ignore_index, case.row.reduction == tiler.MEAN
    with run.watch.stage("check"):
        target, weight = run.stored("target"), run.stored("weight") if case.row.weighted else None
        ranges = case.once(_row_ranges)
        sums = (
            run.areas.array("sums of the cores", (len(ranges),), "float32")
            if run.areas is not None and mean
            else None
        )
        survey = kernels.survey_labels(target, weight, case.row.C, ignored, ranges, mean, sums)
        run.caveats = check_labels(survey, target, case)
    with run.watch.stage("compute"):
        grad_loss, log_prob = (
            widen_array(run.stored("grad_loss")).reshape(-1),
            run.stored("log_prob"),
        )
        kernels.write_gradient(
            grad_loss, survey.divisor, log_prob, target, weight, ignored, run.written("x_grad")
        )


def _row_ranges(case: Case) -> np.ndarray:
    return np.array(
        [tiler.row_range(case.tiling, core) for core in range(case.tiling.block_dim)], np.int64
    )


def check_labels(survey: "Survey", target: np.ndarray, case: Case) -> tuple[Caveat, ...]:
    """Check what only the data can tell; return the warnings that only it can give.

    Raises
    ------
    AclnnError
        361001 for a label outside [0, C) that is not ignore_index, naming the first one's position and value.
    """
    columns, ignored = case.row.C, case.row.ignore_index
    place = survey.out_of_range
    if place >= 0:
        message = f"target[{place}] = {target[place]} is out of range: C = {columns}"
        raise runtime_failure(
            "target",
            message,
            f"0 <= label < {columns}, or ignore_index = {ignored}; nothing was written",
        )
    caveats = []
    if case.row.reduction == tiler.MEAN and survey.ignored == case.row.N:
        message = f"all {case.row.N} labels are ignored: the divisor is 0 and x_grad is nan"
        caveats.append(Caveat(code="all_labels_ignored", argument="target", message=message))
    if survey.aliased:
        message = f"{survey.aliased} labels are ignored because fp32 cannot tell them from ignore_index {ignored}"
        caveats.append(Caveat(code="labels_aliased", argument="target", message=message))
    found = survey.ignored - survey.aliased
    if case.rules.reads_ignored_weight and case.row.weighted and ignored < 0 and found:
        message = (
            f"release {case.profile.release} reads weight out of bounds for the {found} labels equal to ignore_index {ignored} and "
            "multiplies what it finds by 0: nan if that is inf or nan; the simulator computes as if it were finite"
        )
        caveats.append(
            Caveat(code="weight_read_out_of_bounds", argument="ignore_index", message=message)
        )
    return tuple(caveats)


def formula(
    arguments: Any, tensors: Mapping[str, np.ndarray], precision: np.dtype[Any]
) -> dict[str, np.ndarray]:
    """Compute the gradient as its formula says (page, "Formulas")."""
    log_prob, target = tensors["log_prob"], tensors["target"]
    kept = target != arguments.ignore_index
    inside = np.where((target >= 0) & (target < log_prob.shape[1]), target, 0)
    weight = (
        np.ones(target.size, precision)
        if tensors.get("weight") is None
        else tensors["weight"].astype(precision)[inside]
    )
    weight = np.where(kept, weight, 0).astype(precision)
    gradient = np.broadcast_to(tensors["grad_loss"].astype(precision).reshape(-1), target.shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        nll = (
            gradient
            * weight
            / (weight.sum(dtype=precision) if arguments.reduction == "mean" else precision.type(1))
        )
        out = np.empty(log_prob.shape, precision)
        step = max(1, BLOCK_ELEMENTS // log_prob.shape[1])
        for begin in range(0, target.size, step):
            block = slice(begin, begin + step)
            out[block] = np.exp(log_prob[block].astype(precision)) * nll[block, None]
        out[np.flatnonzero(kept), inside[kept]] -= nll[kept]
    return {"x_grad": out}


def data(arguments: Any, seed: int) -> dict[str, np.ndarray]:
    """Return inputs as a classifier has them: log-softmax of normal logits, uniform labels, some of them ignored."""
    rng = np.random.default_rng(seed)
    grad_loss, columns = arguments.grad_loss, arguments.log_prob.shape[1]
    gradients = (
        rng.standard_normal(grad_loss.shape, np.float32)
        if grad_loss.rank > 0
        else np.ones((), np.float32)
    )
    drawn = {
        "grad_loss": np.asarray(gradients, numpy_dtype(grad_loss.dtype)),
        "log_prob": log_probabilities(arguments.log_prob, rng),
    }
    drawn["target"] = rng.integers(0, columns, arguments.target.shape, np.int64)
    if 0 <= arguments.ignore_index < columns:
        drawn["target"][rng.random(arguments.target.shape) < IGNORED_SHARE] = arguments.ignore_index
    if arguments.weight is not None:
        drawn["weight"] = rng.uniform(*WEIGHTS, arguments.weight.shape).astype(np.float32)
    return drawn


def log_probabilities(spec: TensorSpec, rng: "np.random.Generator") -> np.ndarray:
    """Return the log-softmax of normal logits, row by row."""
    out = np.empty(spec.shape, numpy_dtype(spec.dtype))
    step = max(1, BLOCK_ELEMENTS // spec.shape[1])
    for begin in range(0, spec.shape[0], step):
        logits = rng.standard_normal(out[begin : begin + step].shape, np.float32)
        out[begin : begin + step] = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return out


def _timeline_hooks() -> dict[str, Any]:
    from npu_sim.operators.cross_entropy_loss_grad import timeline, timeline_steps

    return {"program": timeline.program, "steps": timeline_steps.steps}


def _study_hooks() -> dict[str, Any]:
    from npu_sim.operators.cross_entropy_loss_grad import study

    return {"claims": study.claims, "terms": study.terms}


OPERATOR = Operator(
    name="cross_entropy_loss_grad",
    title="CrossEntropyLossGrad",
    summary="Compute the gradient of the cross-entropy loss with respect to its logits as the product does.",
    arguments=(
        Tensor(
            "grad_loss",
            loss_axes,
            "gradient of the loss: a scalar for mean and sum, (N,) for none",
            "dtype",
            samples=0,
        ),
        Tensor("log_prob", "N C", "log-softmax of the forward pass, (N, C)", "dtype", samples=0),
        Tensor(
            "target", "N", "label of every row, (N,), int64", "int64", samples=0, addresses=True
        ),
        Tensor(
            "weight",
            "C",
            "weight of every label, (C,), fp32",
            "float32",
            document="weightOptional",
            optional=True,
        ),
        Attribute(
            "reduction", str, "what becomes of the losses of the rows: none, mean or sum", "mean"
        ),
        Attribute(
            "ignore_index",
            int,
            "label whose rows get no gradient, below C; negative means none",
            -100,
        ),
        Attribute("label_smoothing", float, "not supported yet: 0", 0.0),
        Attribute("lse_square_scale_for_zloss", float, "not supported yet: 0", 0.0),
        Tensor(
            "grad_zloss",
            "",
            "not supported yet: leave it out",
            "float32",
            document="gradZlossOptional",
            optional=True,
        ),
        Tensor(
            "lse_for_zloss",
            "N",
            "not supported yet: leave it out",
            "float32",
            document="lseForZlossOptional",
            optional=True,
        ),
        Output(
            "out",
            "N C",
            "gradient of the logits, (N, C)",
            "dtype",
            document="xGradOut",
            samples=0,
            result="x_grad",
        ),
    ),
    axes=(
        Word("dtype", "dtype of log_prob and grad_loss", FLOAT_DTYPES, "float32"),
        Word("reduction", "reduction", tiler.REDUCTIONS, "mean"),
        Switch("weighted", "whether weight is given", aliases=("weight_given",), tensor="weight"),
        Number(
            "ignore_index",
            "ignore_index",
            -100,
            low=-INT64_MAX - 1,
            high=INT64_MAX,
            aliases=("ignoreIndex",),
        ),
        Number(
            "C",
            "classes, last axis of log_prob",
            32000,
            unit="column",
            aliases=("classes", "col", "columns"),
        ),
        Number("N", "rows, first axis of log_prob", 4096, unit="row", aliases=("row", "rows")),
    ),
    checks=(
        checks.Given(),
        checks.Supported(),
        tensor_checks.Dtypes("grad_loss log_prob", float_dtypes),
        tensor_checks.Dtypes("target", ("int64",)),
        tensor_checks.Dtypes("weight", ("float32",)),
        tensor_checks.Dtypes("grad_zloss lse_for_zloss", FLOAT_DTYPES),
        tensor_checks.Dtypes("out", float_dtypes),
        tensor_checks.SameDtype("grad_loss out", "log_prob"),
        tensor_checks.Formats(tensor_checks.ND),
        check_options,
        checks.Attributes("ignore_index"),
        tensor_checks.Ranks("log_prob", 2, 2, TILING_FAILURE),
        tensor_checks.Shapes("log_prob", TILING_FAILURE),
        checks.Holds("C >= 1", "log_prob"),
        tensor_checks.Shapes("target weight grad_loss out", TILING_FAILURE),
        checks.Holds("ignore_index < C", "ignore_index", _label_words, INVALID),
        checks.NothingToDo("N == 0"),
        checks.Holds("N < rows_below", "log_prob", beyond_documented, documented=True),
        checks.Fits(tiler.fits_buffer, "log_prob", beyond_buffer),
    ),
    tiling=tiler.Tiling,
    tile=tiler.tile_row,
    describe=describe,
    compute=compute,
    formula=formula,
    data=data,
    evidence=Evidence.EXACT,
    empty="empty: no rows, nothing runs",
    timeline_hooks=_timeline_hooks,
    study_hooks=_study_hooks,
)
