"""CrossEntropyLoss: computation, formula and generated data.

Source: specification page ``cross_entropy_loss``.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from npu_sim.framework.vocabulary import Case, Caveat, Run, Text, caveat, to_fp32
from npu_sim.numbers.values import normal
from npu_sim.operators.shared.labelled_rows.compute import (
    BLOCK_ELEMENTS,
    draw_labels,
    label_failure,
)
from npu_sim.tiling import cross_entropy_loss as tiler

if TYPE_CHECKING:
    from npu_sim.kernels.cross_entropy_loss import Cores, Form, Split

LOGIT_SCALE = 2.0
"""Standard deviation of generated logits."""


class Setting(NamedTuple):
    """How a product computes a call."""

    target: np.ndarray
    ignored: int
    """Labels, and the one of ignored rows, as the kernel compares them."""
    form: "Form"
    split: "Split"
    order: str
    """How a row is added, see `npu_sim.kernels.cross_entropy_loss.loss_of_rows`."""
    cores: "Cores"
    loss: Callable[[Case, np.ndarray, np.ndarray], np.ndarray]
    """Returns the loss in fp32 from the parts of the rows (3, N) and their sums (3,)."""


def setting_of(case: Case, target: np.ndarray) -> Setting:
    """Return how Atlas A2 and A3 compute a call."""
    from npu_sim.kernels import cross_entropy_loss as kernels

    tiling, zero = case.tiling, np.float32(0)
    form = kernels.Form(
        lowest=np.finfo(np.float32).min,
        least_exp=zero,
        is_two_step=False,
        sign=np.float32(1),
        ignored_loss=zero,
        ignored_smoothing=np.float32(-0.0),
    )
    ranges = [tiler.row_range(tiling, core) for core in range(tiling.block_dim)]
    overwritten = kernels.NEVER
    if case.row.reduction == tiler.MEAN:
        overwritten = tiler.overwritten_place(tiling, case.row.dtype)
    cores = kernels.Cores(np.array(ranges, np.int64), overwritten)
    split, ignored = kernels.Split(tiling.chunk_columns), case.arguments.ignore_index
    return Setting(target, ignored, form, split, "pieces", cores, _loss)


def compute(run: Run) -> None:
    """Check the labels, and compute log_prob and the loss."""
    with run.watch.stage("check"):
        target = run.stored("target")
        check_labels(run.case, target)
        setting = setting_of(run.case, target)
    compute_with(run, setting)


def compute_with(run: Run, setting: Setting) -> None:
    """Compute log_prob and the loss of labels that were checked."""
    case = run.case
    with run.watch.stage("compute"):
        weight = run.stored("weight") if case.row.weighted else None
        parts = parts_of(case, setting, run.stored("input"), weight, run.written("log_prob"))
        totals = totals_of(case, setting, parts)
        write_loss(run, setting.loss(case, parts, totals))
    run.caveats = tuple(data_caveats(case, setting.target, totals))


def parts_of(
    case: Case, setting: Setting, x: np.ndarray, weight: np.ndarray | None, log_prob: np.ndarray
) -> np.ndarray:
    """Write log_prob; return the parts of the loss of every row (5, N)."""
    from npu_sim.kernels import cross_entropy_loss as kernels

    weights = np.empty(0, np.float32) if weight is None else weight
    smooths = bool(case.row.label_smoothing)
    labels = kernels.Labels(setting.target, weights, setting.ignored, smooths)
    parts = np.zeros((kernels.LOGARITHM + 1, len(x)), np.float32)
    rows = kernels.Rows(x, log_prob, parts)
    kernels.loss_of_rows(rows, labels, setting.form, setting.split, setting.order)
    return parts


def totals_of(case: Case, setting: Setting, parts: np.ndarray) -> np.ndarray:
    """Return the sums of loss, weight and smoothing over all rows; zeros without reduction."""
    from npu_sim.kernels import cross_entropy_loss as kernels

    if case.row.reduction == tiler.NONE:
        return np.zeros(kernels.SUMMED, np.float32)
    return kernels.totals_of(parts[: kernels.SUMMED], setting.cores)


def _loss(case: Case, parts: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """Return the loss in fp32, each operation rounded (page, "Kernel")."""
    smoothing = to_fp32(case.arguments.label_smoothing)
    by_class, factor = smoothing / np.float32(case.row.C), smoothing - np.float32(1)
    is_sum = case.row.reduction != tiler.NONE
    loss, weight, smoothed = totals[:, None] if is_sum else parts[:3]
    with np.errstate(all="ignore"):
        reduced: np.ndarray = loss * factor + smoothed * by_class if smoothing > 0 else -loss
        return np.divide(reduced, weight) if case.row.reduction == tiler.MEAN else reduced


def write_loss(run: Run, loss: np.ndarray) -> None:
    """Round the loss once and write it."""
    from npu_sim.kernels.shared.elementwise import narrow_array

    out = run.written("loss")
    narrow_array(loss.reshape(out.shape), run.case.specs["loss"].dtype, out=out)


def check_labels(case: Case, target: np.ndarray) -> None:
    """Check that every label is a class or ignored.

    Raises
    ------
    AclnnError
        361001 for a label outside [0, C) that is not ignore_index; the message gives the position
        and value of the first one.
    """
    columns, ignored = case.row.C, case.arguments.ignore_index
    outside = (target != ignored) & ((target < 0) | (target >= columns))
    if outside.any():
        hint = Text(
            "0 <= label < {columns}, or ignore_index = {ignored}; nothing was written",
            columns=columns,
            ignored=ignored,
        )
        raise label_failure(target, int(np.argmax(outside)), columns, hint)


def data_caveats(case: Case, target: np.ndarray, totals: np.ndarray) -> Iterator[Caveat]:
    """Yield the warnings that depend on the data (page, "Warnings")."""
    ignored = case.arguments.ignore_index
    if case.row.reduction == tiler.MEAN and totals[1] == 0:
        yield caveat(
            "all_ignored",
            "target",
            "the weights of the labels that are not ignored add up to 0: the loss is divided by 0",
        )
    found = int(np.count_nonzero(target == ignored)) if ignored < 0 else 0
    if found and case.rules.reads_ignored_labels:
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


def formula(
    arguments: Any, tensors: Mapping[str, np.ndarray], precision: np.dtype[Any]
) -> dict[str, np.ndarray]:
    """Return loss and log_prob by their formulas (page, "Formula"), computed in ``precision``."""
    x = tensors["input"]
    log_prob = np.empty(x.shape, precision)
    step = max(1, BLOCK_ELEMENTS // x.shape[1])
    with np.errstate(all="ignore"):
        for begin in range(0, len(x), step):
            block = x[begin : begin + step].astype(precision)
            shifted = block - block.max(axis=1, keepdims=True)
            logarithm = np.log(np.exp(shifted).sum(axis=1, keepdims=True))
            log_prob[begin : begin + step] = shifted - logarithm
    return {"loss": loss_formula(arguments, tensors, log_prob), "log_prob": log_prob}


def loss_formula(
    arguments: Any, tensors: Mapping[str, np.ndarray], log_prob: np.ndarray
) -> np.ndarray:
    """Return the loss by its formula, computed in the dtype of the log-probabilities."""
    target, columns, precision = tensors["target"], log_prob.shape[1], log_prob.dtype
    counted = target != arguments.ignore_index
    weight = tensors.get("weight")
    weight = np.ones(columns, precision) if weight is None else weight.astype(precision)
    inside = np.where((target >= 0) & (target < columns), target, 0)
    row_weight = np.where(counted, weight[inside], 0).astype(precision)
    smoothing = precision.type(to_fp32(arguments.label_smoothing))
    with np.errstate(all="ignore"):
        loss: np.ndarray = (
            -np.where(counted, log_prob[np.arange(len(target)), inside], 0) * row_weight
        )
        if smoothing > 0:
            smoothed = np.where(counted, -(log_prob @ weight), 0)
            loss = (1 - smoothing) * loss + smoothing / columns * smoothed
        if arguments.reduction != "none":
            loss = loss.sum(keepdims=True)
        return loss / row_weight.sum() if arguments.reduction == "mean" else loss


def data(arguments: Any, seed: int) -> dict[str, np.ndarray]:
    """Return random inputs like those of a classifier: normal logits and uniform labels."""
    rng = np.random.default_rng(seed)
    drawn = {"input": normal(rng, arguments.input, LOGIT_SCALE)}
    return drawn | draw_labels(arguments, arguments.input.shape[1], rng)
