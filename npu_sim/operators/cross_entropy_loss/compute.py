"""CrossEntropyLoss: computation, formula and generated data.

Source: specification page ``cross_entropy_loss``.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from npu_sim.framework.vocabulary import (
    Array,
    Arrays,
    Case,
    Caveat,
    Dtype,
    Run,
    Text,
    caveat,
    core_ranges,
    to_fp32,
)
from npu_sim.kernels import cross_entropy_loss as kernels
from npu_sim.kernels.shared.elementwise import narrow_array
from npu_sim.numbers.values import normal
from npu_sim.operators.shared.labelled_rows.compute import (
    class_weights,
    draw_labels,
    label_failure,
    row_blocks,
    row_weights,
)
from npu_sim.tiling import cross_entropy_loss as tiler
from npu_sim.tiling.cross_entropy_loss_grad import MEAN, NONE, row_range

LOGIT_SCALE = 2.0
"""Standard deviation of generated logits."""
NO_WEIGHT = np.empty(0, np.float32)
ZERO = np.float32(0)
FORM = kernels.Form(
    lowest=np.finfo(np.float32).min,
    least_exp=ZERO,
    is_two_step=False,
    sign=np.float32(1),
    ignored_loss=ZERO,
    ignored_smoothing=-ZERO,
)
"""How Atlas A2 and A3 compute a row."""


class Setting(NamedTuple):
    """How a product computes a call."""

    target: Array
    ignored: int
    """Labels, and the one of ignored rows, as the kernel compares them."""
    form: kernels.Form
    split: kernels.Split
    order: str
    """How a row is added, see `npu_sim.kernels.cross_entropy_loss.loss_of_rows`."""
    cores: kernels.Cores
    loss: Callable[[Case, Array], Array]
    """Returns the loss in fp32 from the sums of its parts, see :func:`sums_of`."""


SettingOf = Callable[[Case, Array], Setting]


def setting_of(case: Case, target: Array) -> Setting:
    """Return how Atlas A2 and A3 compute a call."""
    tiling, is_mean = case.tiling, case.row.reduction == MEAN
    overwritten = tiler.overwritten_place(tiling) if is_mean else kernels.NEVER
    cores = kernels.Cores(np.array(core_ranges(row_range, tiling)), overwritten)
    split, ignored = kernels.Split(tiling.chunk_columns), case.arguments.ignore_index
    return Setting(target, ignored, FORM, split, "pieces", cores, _loss)


def compute(run: Run) -> None:
    """Check the labels, and compute log_prob and the loss."""
    compute_with(run, setting_of)


def compute_with(run: Run, choose: SettingOf, *checks: Callable[[Case, Array], None]) -> None:
    """Check the labels, and compute log_prob and the loss as ``choose`` says."""
    case = run.case
    with run.watch.stage("check"):
        target = run.stored("target").astype(np.int64, copy=False)
        for check in (check_labels, *checks):
            check(case, target)
        setting = choose(case, target)
    with run.watch.stage("compute"):
        weight = run.stored("weight") if case.row.weighted else NO_WEIGHT
        parts = parts_of(case, setting, run.stored("input"), weight, run.written("log_prob"))
        sums = sums_of(case, setting, parts)
        loss, out = setting.loss(case, sums), run.written("loss")
        narrow_array(loss.reshape(out.shape), case.specs["loss"].dtype, out=out)
    run.caveats = tuple(data_caveats(case, target, sums))


def parts_of(case: Case, setting: Setting, x: Array, weight: Array, log_prob: Array) -> Array:
    """Write log_prob; return the parts of the loss of every row (5, N)."""
    smooths = case.row.label_smoothing > 0
    labels = kernels.Labels(setting.target, weight, setting.ignored, smooths)
    parts = np.zeros((kernels.LOGARITHM + 1, len(x)), np.float32)
    rows = kernels.Rows(x, log_prob, parts)
    kernels.loss_of_rows(rows, labels, setting.form, setting.split, setting.order)
    return parts


def sums_of(case: Case, setting: Setting, parts: Array) -> Array:
    """Return loss, weight and smoothing: of every row (3, N), or their sums (3, 1)."""
    parts = parts[: kernels.SUMMED]
    if case.row.reduction == NONE:
        return parts
    return kernels.totals_of(parts, setting.cores)[:, None]


def _loss(case: Case, sums: Array) -> Array:
    """Return the loss in fp32, each operation rounded (page, "Kernel")."""
    smoothing = to_fp32(case.arguments.label_smoothing)
    loss, weight, smoothed = sums
    with np.errstate(all="ignore"):
        reduced = -loss
        if smoothing > 0:
            by_class = smoothing / np.float32(case.row.C)
            reduced = loss * (smoothing - 1) + smoothed * by_class
        return np.asarray(reduced / weight if case.row.reduction == MEAN else reduced)


def check_labels(case: Case, target: Array) -> None:
    """Check that every label is a class or ignored.

    Raises
    ------
    AclnnError
        361001 for a label outside [0, C) that is not ignore_index; the message gives the position
        and value of the first one.
    """
    (outside,) = np.nonzero(target.view(np.uint64) >= case.row.C)  # negative labels are larger
    if outside.size:
        outside = outside[target[outside] != case.arguments.ignore_index]
    if outside.size:
        raise label_failure(case, target, int(outside[0]))


def data_caveats(case: Case, target: Array, sums: Array) -> Iterator[Caveat]:
    """Yield the warnings that depend on the data (page, "Warnings")."""
    ignored = case.arguments.ignore_index
    if case.row.reduction == MEAN and sums[1] == 0:
        yield caveat(
            "all_ignored",
            "target",
            "the weights of the labels that are not ignored add up to 0: the loss is divided by 0",
        )
    is_read = ignored < 0 and case.rules.reads_ignored_labels
    if is_read and (found := int(np.count_nonzero(target == ignored))):
        yield caveat(
            "negative_label_read",
            "ignore_index",
            "release {release} looks up the {found} labels equal to ignore_index {ignored} all the "
            "same, before the start of a buffer or tensor, and does not use what it finds; whether "
            "a device faults is not known",
            release=case.profile.release,
            found=found,
            ignored=ignored,
            since="8.3",
            until=Text("release {release}", release="9.0"),
        )


def softmax_parts(x: Array) -> tuple[Array, Array]:
    """Return x minus the maximum of its row, and the logarithm of the row's sum of exp of that."""
    shifted = x - x.max(axis=1, keepdims=True)
    return shifted, np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def formula(arguments: Any, tensors: Arrays, precision: Dtype) -> Arrays:
    """Return loss and log_prob by their formulas (page, "Formula"), computed in ``precision``."""
    x = tensors["input"]
    log_prob = np.empty(x.shape, precision)
    with np.errstate(all="ignore"):
        for block in row_blocks(x.shape):
            log_prob[block] = np.subtract(*softmax_parts(x[block].astype(precision)))
    return {"loss": loss_formula(arguments, tensors, log_prob), "log_prob": log_prob}


def loss_formula(arguments: Any, tensors: Arrays, log_prob: Array) -> Array:
    """Return the loss by its formula, computed in the dtype of the log-probabilities."""
    columns, precision = log_prob.shape[1], log_prob.dtype
    counted, inside, weight = row_weights(arguments, tensors, columns, precision)
    smoothing = precision.type(to_fp32(arguments.label_smoothing))
    with np.errstate(all="ignore"):
        picked = np.where(counted, log_prob[np.arange(len(inside)), inside], 0)
        loss: Array = -picked * weight
        if smoothing > 0:
            smoothed = -(log_prob @ class_weights(tensors, columns, precision))
            smoothed = np.where(counted, smoothed, 0)
            loss = (1 - smoothing) * loss + smoothing / columns * smoothed
        if arguments.reduction != "none":
            loss = loss.sum(keepdims=True)
        return loss / weight.sum() if arguments.reduction == "mean" else loss


def data(arguments: Any, seed: int) -> Arrays:
    """Return random inputs like those of a classifier: normal logits and uniform labels."""
    rng = np.random.default_rng(seed)
    drawn = {"input": normal(rng, arguments.input, LOGIT_SCALE)}
    return drawn | draw_labels(arguments, arguments.input.shape[1], rng)
