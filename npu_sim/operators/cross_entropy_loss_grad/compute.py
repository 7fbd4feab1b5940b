"""CrossEntropyLossGrad: computation, formula and generated data.

Source: specification page ``cross_entropy_loss_grad``.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from npu_sim.framework.vocabulary import (
    Array,
    Arrays,
    Case,
    Caveat,
    Dtype,
    Run,
    TensorSpec,
    caveat,
    core_ranges,
    numpy_dtype,
)
from npu_sim.kernels import cross_entropy_loss_grad as kernels
from npu_sim.kernels.shared.elementwise import widen_array
from npu_sim.operators.shared.labelled_rows.compute import (
    draw_labels,
    label_failure,
    row_blocks,
    row_weights,
)
from npu_sim.tiling import cross_entropy_loss_grad as tiler


def compute(run: Run) -> None:
    """Check the labels and compute x_grad; no result depends on the order of cores."""
    case, row = run.case, run.case.row
    with run.watch.stage("check"):
        weight = run.stored("weight") if row.weighted else np.empty(0, np.float32)
        target = run.stored("target")
        labels = kernels.Labels(target, weight, row.C, row.ignore_index, True)
        ranges = core_ranges(tiler.row_range, case.tiling)
        passes = kernels.Passes(np.array(ranges, np.int64))
        survey = kernels.survey_labels(labels, passes, row.reduction == tiler.MEAN)
        run.caveats = tuple(check_labels(survey, target, case))
    with run.watch.stage("compute"):
        grad_loss = widen_array(run.stored("grad_loss")).reshape(-1)
        log_prob, x_grad = run.stored("log_prob"), run.written("x_grad")
        kernels.write_gradient(
            grad_loss, kernels.Division(survey.divisor), log_prob, labels, x_grad
        )


def check_labels(survey: kernels.Survey, target: Array, case: Case) -> Iterator[Caveat]:
    """Check the labels; yield the warnings that depend on the data.

    Raises
    ------
    AclnnError
        361001 for a label outside [0, C) that is not ignore_index; the message gives the position
        and value of the first one.
    """
    ignored = case.row.ignore_index
    if survey.out_of_range >= 0:
        raise label_failure(case, target, survey.out_of_range)
    yield from all_ignored(case, survey.ignored)
    if ignored < 0 and survey.ignored:
        yield caveat(
            "negative_label_masked",
            "ignore_index",
            "{count} labels are {ignored}, as ignore_index: the product masks their rows, though "
            "its document says that labels lie from 0 to C - 1 and that a negative ignore_index "
            "ignores none; Ascend 950 does not mask them. Documented: a label from 0 to C - 1 as "
            "ignore_index",
            count=survey.ignored,
            ignored=ignored,
        )
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


def all_ignored(case: Case, ignored: int) -> Iterator[Caveat]:
    """Yield the warning that ``mean`` has nothing to divide by."""
    if case.row.reduction == tiler.MEAN and ignored == case.row.N:
        yield caveat(
            "all_labels_ignored",
            "target",
            "all {n} labels are ignored: the divisor is 0 and x_grad is nan",
            n=case.row.N,
        )


def formula(arguments: Any, tensors: Arrays, precision: Dtype) -> Arrays:
    """Return the gradient by its formula (page, "Formulas"), computed in ``precision``."""
    log_prob = tensors["log_prob"]
    counted, inside, weight = row_weights(arguments, tensors, log_prob.shape[1], precision)
    gradient = np.broadcast_to(tensors["grad_loss"].astype(precision).reshape(-1), weight.shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = arguments.reduction == "mean"
        divisor = weight.sum(dtype=precision) if mean else precision.type(1)
        nll = gradient * weight / divisor
        out = np.empty(log_prob.shape, precision)
        for block in row_blocks(log_prob.shape):
            out[block] = np.exp(log_prob[block].astype(precision)) * nll[block, None]
        out[np.flatnonzero(counted), inside[counted]] -= nll[counted]
    return {"x_grad": out}


def data(arguments: Any, seed: int) -> Arrays:
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
    return drawn | draw_labels(arguments, columns, rng)


def log_probabilities(spec: TensorSpec, rng: "np.random.Generator") -> Array:
    """Return the log-softmax of normal logits, row by row."""
    out = np.empty(spec.shape, numpy_dtype(spec.dtype))
    if not out.size:
        return out
    for block in row_blocks(spec.shape):
        logits = rng.standard_normal(out[block].shape, np.float32)
        out[block] = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return out
