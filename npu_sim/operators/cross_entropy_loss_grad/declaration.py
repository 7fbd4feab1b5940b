"""CrossEntropyLossGrad: the gradient of the cross-entropy loss with respect to its logits.

Source: product document aclnnCrossEntropyLossGrad; specification page ``cross_entropy_loss_grad``.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from npu_sim.framework.vocabulary import (
    ASCEND_950,
    FLOAT_DTYPES,
    INT64_MAX,
    INVALID,
    TILING_FAILURE,
    AclnnError,
    Attribute,
    Case,
    Caveat,
    Evidence,
    Inspection,
    Number,
    Operator,
    Output,
    Profile,
    Run,
    Status,
    Switch,
    Tensor,
    TensorSpec,
    Text,
    Word,
    caveat,
    checks,
    closest,
    numpy_dtype,
    runtime_failure,
    shown,
)
from npu_sim.operators.cross_entropy_loss_grad.plan import beyond_buffer, beyond_documented
from npu_sim.tiling import cross_entropy_loss_grad as tiler

if TYPE_CHECKING:
    from npu_sim.kernels.cross_entropy_loss_grad import Survey


def float_dtypes(profile: Profile) -> Sequence[str]:
    """Return the dtypes that the product takes for log_prob."""
    return [dtype for dtype in FLOAT_DTYPES if dtype in profile.product.dtypes]


def loss_axes(arguments: Mapping[str, Any]) -> str:
    """Return the axes of grad_loss: one element per row without reduction, else a scalar.

    torch_npu's losses have shape (1,) with mean and sum; the product takes both (page, before
    "Tiling").
    """
    if arguments["reduction"] == "none":
        return "N"
    loss = arguments.get("grad_loss")
    return "1N*" if isinstance(loss, TensorSpec) and loss.shape == (1,) else ""


def check_reduction(call: Inspection, status: Status) -> None:
    """Refuse an unknown reduction."""
    reduction = call.arguments.reduction
    if reduction not in tiler.REDUCTIONS:
        raise AclnnError(
            status,
            "reduction",
            Text("reduction = {reduction} is not a reduction", reduction=shown(reduction)),
            Text(
                "reduction: {reductions}{hint}",
                reductions=", ".join(tiler.REDUCTIONS),
                hint=closest(reduction, tiler.REDUCTIONS),
            ),
        )


def check_unsupported(call: Inspection) -> None:
    """Refuse options that the product does not support yet; 161002."""
    arguments = call.arguments
    for name in ("label_smoothing", "lse_square_scale_for_zloss"):
        number = checks.require_float(name, arguments[name])
        if name == "label_smoothing" and not 0 <= number <= 1:
            message = Text("{name} = {number} is outside [0, 1]", name=name, number=f"{number:g}")
            raise AclnnError(
                INVALID, name, message, Text("{name} = 0: others are not supported yet", name=name)
            )
        if number != 0:
            message = Text(
                "{name} = {number} is not supported yet", name=name, number=f"{number:g}"
            )
            raise AclnnError(INVALID, name, message, f"{name} = 0")
    for name in ("grad_zloss", "lse_for_zloss"):
        if arguments[name] is not None:
            raise AclnnError(
                INVALID,
                name,
                Text("{name} is not supported yet", name=name),
                Text("leave {name} out", name=name),
            )


def label_message(call: Inspection) -> tuple[str, str]:
    """Return message and hint for an ignore_index that is not a label."""
    columns = call.size("C")
    return (
        Text(
            "ignore_index = {ignore_index} must be below C = {columns}",
            ignore_index=call.size("ignore_index"),
            columns=columns,
        ),
        Text("ignore_index <= {last_column}; negative for none", last_column=columns - 1),
    )


OPERATOR = Operator(
    name="cross_entropy_loss_grad",
    title="CrossEntropyLossGrad",
    summary=(
        "Compute the gradient of the cross-entropy loss with respect to its logits as the product "
        "does."
    ),
    arguments=(
        Tensor(
            "grad_loss",
            loss_axes,
            "gradient of the loss: a scalar or (1,) for mean and sum, (N,) for none",
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
            "reduction", str, "reduction of the losses of the rows: none, mean or sum", "mean"
        ),
        Attribute(
            "ignore_index",
            int,
            "label whose rows get no gradient, below C; on Ascend 950 a negative one masks nothing",
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
        checks.Dtypes("grad_loss log_prob", float_dtypes),
        checks.Dtypes("target", ("int64",)),
        checks.Dtypes("weight", ("float32",)),
        checks.Dtypes("grad_zloss lse_for_zloss", FLOAT_DTYPES),
        checks.Dtypes("out", float_dtypes),
        checks.SameDtype("grad_loss out", "log_prob"),
        checks.Formats(checks.ND),
        partial(check_reduction, status=INVALID),
        check_unsupported,
        checks.Attributes("ignore_index"),
        checks.Ranks("log_prob", 2, 2, TILING_FAILURE),
        checks.Shapes("log_prob", TILING_FAILURE),
        checks.Holds("C >= 1", "log_prob"),
        checks.Shapes("target weight grad_loss out", TILING_FAILURE),
        checks.Holds("ignore_index < C", "ignore_index", label_message, INVALID),
        checks.NothingToDo("N == 0"),
        checks.Holds("N < rows_below", "log_prob", beyond_documented, documented=True),
        checks.Fits(tiler.fits, "log_prob", beyond_buffer),
    ),
    tiling=tiler.Tiling,
    tile=tiler.tile,
    evidence=Evidence.EXACT,
    empty="empty: no rows, nothing runs",
    families=(ASCEND_950,),
    package=__package__,
)


IGNORED_FRACTION = 0.1
"""Fraction of generated labels equal to ignore_index, if it is a valid label: typical padding."""
WEIGHTS = (0.5, 1.5)
"""Range of generated weights, around 1."""
BLOCK_ELEMENTS = 1 << 22
"""Elements drawn, or computed by the formula, at a time; limits the size of temporaries."""


def compute(run: Run) -> None:
    """Check the labels and compute x_grad; no result depends on the order of cores."""
    case = run.case
    with run.watch.stage("load"):
        from npu_sim.kernels import cross_entropy_loss_grad as kernels
        from npu_sim.kernels.elementwise import widen_array
    row = case.row
    with run.watch.stage("check"):
        weight = run.stored("weight") if row.weighted else np.empty(0, np.float32)
        target = run.stored("target")
        labels = kernels.Labels(target, weight, row.C, row.ignore_index, True)
        ranges = [tiler.row_range(case.tiling, core) for core in range(case.tiling.block_dim)]
        passes = kernels.Passes(np.array(ranges, np.int64))
        survey = kernels.survey_labels(labels, passes, row.reduction == tiler.MEAN)
        run.caveats = tuple(check_labels(survey, target, case))
    with run.watch.stage("compute"):
        grad_loss = widen_array(run.stored("grad_loss")).reshape(-1)
        log_prob, x_grad = run.stored("log_prob"), run.written("x_grad")
        kernels.write_gradient(
            grad_loss, kernels.Division(survey.divisor), log_prob, labels, x_grad
        )


def check_labels(survey: "Survey", target: np.ndarray, case: Case) -> Iterator[Caveat]:
    """Check the labels; yield the warnings that depend on the data.

    Raises
    ------
    AclnnError
        361001 for a label outside [0, C) that is not ignore_index; the message gives the position
        and value of the first one.
    """
    columns, ignored = case.row.C, case.row.ignore_index
    if survey.out_of_range >= 0:
        raise label_failure(
            target,
            survey.out_of_range,
            columns,
            Text(
                "0 <= label < {columns}, or ignore_index = {ignored}; nothing was written",
                columns=columns,
                ignored=ignored,
            ),
        )
    yield from all_ignored(case, survey.ignored)
    if survey.aliased:
        yield caveat(
            "labels_aliased",
            "target",
            "{aliased} labels are ignored because fp32 cannot tell them from ignore_index "
            "{ignored}",
            aliased=survey.aliased,
            ignored=ignored,
        )
    found = survey.ignored - survey.aliased
    if case.rules.reads_ignored_weight and case.row.weighted and ignored < 0 and found:
        yield caveat(
            "weight_read_out_of_bounds",
            "ignore_index",
            "release {release} reads weight out of bounds for the {found} labels equal to "
            "ignore_index {ignored} and multiplies what it finds by 0: nan if that is inf or "
            "nan; the simulator computes as if it were finite",
            release=case.profile.release,
            found=found,
            ignored=ignored,
            not_modelled="*",
        )


def label_failure(target: np.ndarray, place: int, columns: int, hint: str) -> AclnnError:
    """Return the error of the first label outside [0, C)."""
    return runtime_failure(
        "target",
        Text(
            "target[{place}] = {target} is out of range: C = {columns}",
            place=place,
            target=target[place],
            columns=columns,
        ),
        hint,
    )


def all_ignored(case: Case, ignored: int) -> Iterator[Caveat]:
    """Yield the warning that ``mean`` has nothing to divide by."""
    if case.row.reduction == tiler.MEAN and ignored == case.row.N:
        yield caveat(
            "all_labels_ignored",
            "target",
            "all {n} labels are ignored: the divisor is 0 and x_grad is nan",
            n=case.row.N,
        )


def formula(
    arguments: Any, tensors: Mapping[str, np.ndarray], precision: np.dtype[Any]
) -> dict[str, np.ndarray]:
    """Return the gradient by its formula (page, "Formulas"), computed in ``precision``."""
    log_prob, target = tensors["log_prob"], tensors["target"]
    counted = target != arguments.ignore_index
    inside = np.where((target >= 0) & (target < log_prob.shape[1]), target, 0)
    weight = (
        np.where(counted, tensors["weight"].astype(precision)[inside], 0).astype(precision)
        if tensors.get("weight") is not None
        else counted.astype(precision)
    )
    gradient = np.broadcast_to(tensors["grad_loss"].astype(precision).reshape(-1), target.shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = arguments.reduction == "mean"
        divisor = weight.sum(dtype=precision) if mean else precision.type(1)
        nll = gradient * weight / divisor
        out = np.empty(log_prob.shape, precision)
        step = max(1, BLOCK_ELEMENTS // log_prob.shape[1])
        for begin in range(0, target.size, step):
            block = slice(begin, begin + step)
            out[block] = np.exp(log_prob[block].astype(precision)) * nll[block, None]
        out[np.flatnonzero(counted), inside[counted]] -= nll[counted]
    return {"x_grad": out}


def data(arguments: Any, seed: int) -> dict[str, np.ndarray]:
    """Return random inputs like those of a classifier.

    log_prob is the log-softmax of normal logits; labels are uniform, and some are ignored.
    """
    rng = np.random.default_rng(seed)
    grad_loss, columns = arguments.grad_loss, arguments.log_prob.shape[1]
    gradients = (
        rng.standard_normal(grad_loss.shape, np.float32)
        if arguments.reduction == "none"
        else np.ones(grad_loss.shape, np.float32)
    )
    drawn = {
        "grad_loss": np.asarray(gradients, numpy_dtype(grad_loss.dtype)),
        "log_prob": log_probabilities(arguments.log_prob, rng),
    }
    labels = rng.integers(0, max(1, columns), arguments.target.shape, np.int64)
    drawn["target"] = labels.astype(arguments.target.dtype, copy=False)
    if 0 <= arguments.ignore_index < columns:
        drawn["target"][rng.random(arguments.target.shape) < IGNORED_FRACTION] = (
            arguments.ignore_index
        )
    if arguments.weight is not None:
        drawn["weight"] = rng.uniform(*WEIGHTS, arguments.weight.shape).astype(np.float32)
    return drawn


def log_probabilities(spec: TensorSpec, rng: "np.random.Generator") -> np.ndarray:
    """Return the log-softmax of normal logits, row by row."""
    out = np.empty(spec.shape, numpy_dtype(spec.dtype))
    if not out.size:
        return out
    step = max(1, BLOCK_ELEMENTS // spec.shape[1])
    for begin in range(0, spec.shape[0], step):
        logits = rng.standard_normal(out[begin : begin + step].shape, np.float32)
        out[begin : begin + step] = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return out
