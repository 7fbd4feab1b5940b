"""Studies of CrossEntropyLossGrad: the summation tree of the weights that ``mean`` divides by.

No result depends on the order of cores.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from npu_sim.framework.vocabulary import FORMULA, AclnnError, Array, Index, Result, Text, joined
from npu_sim.operators.cross_entropy_loss_grad.plan import EXACT_LABELS
from npu_sim.operators.shared.labelled_rows.study import CROSS_ENTROPY, DEFAULTS, label_ranges
from npu_sim.operators.shared.open_rules import open_rule
from npu_sim.operators.shared.study import (
    Claim,
    Experiment,
    FoundCall,
    InDumps,
    NamedTerms,
    Numbers,
    OpenRule,
    Shown,
    StudyCall,
    WrappedCall,
    probe_terms,
    run,
    trees,
)
from npu_sim.operators.shared.unfused import (
    FP64,
    Ends,
    Formulas,
    ends_of,
    is_16_bit,
    rounded,
    short,
)
from npu_sim.tiling.cross_entropy_loss_grad import row_range

NO_LABEL = -1
"""An ignore_index that no label has."""


def claims(call: StudyCall) -> Iterator[Claim]:
    """Yield the tree of the sum of weights over the rows; ``sum`` and ``none`` have no sum."""
    case, rows = call.case, call.case.row.N
    if case.arguments.reduction != "mean" or rows < 3:
        return
    cores = [range(*row_range(case.tiling, core)) for core in range(case.tiling.block_dim)]
    yield Claim(
        output="x_grad",
        element=(0, 0),
        elements=rows * case.row.C,
        terms=tuple(Text("weight of row {row}", row=row) for row in range(rows)),
        tree=trees.reduce_sum([trees.reduce_sum(weights) for weights in cores]),
        outside=partial(_outside, call, rows),
    )


def _outside(call: StudyCall, rows: int, codes: Array) -> Array:
    """Run one probe after another; return S, the number of units that survive in each sum.

    Every row has a class of its own, whose weight is the term of the row. With log_prob = 0, the
    gradient of a row of weight 1 at another row's class is 1/S.
    """
    counts = np.empty(codes.shape[0], np.int64)
    unmasked = call.with_attributes(ignore_index=NO_LABEL)
    fixed: dict[str, Any] = {
        "grad_loss": np.float32(1),
        "log_prob": np.zeros((rows, rows), np.float32),
        "target": np.arange(rows),
    }
    for position, code in enumerate(codes):
        unit_row = int(np.argmax(code == 0))
        result = unmasked.outputs(**fixed, weight=probe_terms(code, "float32"))["x_grad"]
        gradient = float(result[unit_row, (unit_row + 1) % rows])
        counts[position] = 0 if np.isinf(gradient) else round(1 / gradient)
    return counts


def open_rules(call: StudyCall, result: Result) -> Iterator[OpenRule]:
    """Yield the bound of x_grad, which contains an exp and, with ``mean``, a division."""
    yield from rules_of_exp(call, result, divides=call.arguments.reduction == "mean")


def rules_of_exp(call: StudyCall, result: Result, *, divides: bool) -> Iterator[OpenRule]:
    """Yield the bound of x_grad.

    The simulator's exp and quotients, and the device's, may lie 1 ulp on either side of the exact
    value. Two ulp of a product are at most 2^-22 of it, and rounding the product and the difference
    adds as much. Elements without exp and division are exact.

    - ``divides``: whether the gradient that reaches a row is a quotient.
    """
    if call.case.empty:
        return
    dtypes = {str(call.tensors[name].dtype) for name in ("log_prob", "grad_loss")}
    wide = {
        name: array.astype(np.float32)
        for name, array in call.tensors.items()
        if str(array.dtype) in dtypes
    }
    unrounded = call.outputs(**wide)["x_grad"].astype(np.float64)
    formula = call.operator.hook(FORMULA)
    gradient = formula(call.arguments, call.tensors, np.dtype(np.float64))["x_grad"]
    without = _without_exp(call)
    of_exp = np.abs(gradient - without)
    # Of probabilities below the smallest subnormal number, nothing is left.
    of_exp = np.where(np.exp(call.tensors["log_prob"].astype(np.float64)) > 2.0**-151, of_exp, 0.0)
    uncertain = of_exp + np.abs(without) if divides else of_exp
    radius = uncertain * 2.0**-21 + np.where(uncertain > 0, np.abs(unrounded) * 2.0**-22, 0.0)
    yield open_rule(result, "x_grad", unrounded, radius, DIVIDES if divides else EXP)


EXP = "exp in fp32 is documented to 1 ulp only: every value within that bound is possible"
DIVIDES = (
    "exp and division in fp32 are documented to 1 ulp only: every value within that bound is "
    "possible"
)


def _without_exp(call: StudyCall) -> Array:
    """Return the gradient with 0 in place of every exp, in float64."""
    tensors = {**call.tensors, "log_prob": np.full(call.tensors["log_prob"].shape, -np.inf)}
    gradient: Array = call.operator.hook(FORMULA)(call.arguments, tensors, np.dtype(np.float64))[
        "x_grad"
    ]
    return gradient


def unfused(call: StudyCall, output: str) -> Formulas:
    """Yield the gradients of PyTorch and Megatron."""
    dtype = call.tensors["log_prob"].dtype
    if is_16_bit(call.tensors["log_prob"]):
        text = Text(
            "the gradient of a row rounded to {dtype}, as PyTorch's nll_loss does",
            dtype=short(dtype),
        )
        yield text, partial(_of_nll_loss, call)
    yield "(exp - 1) times the gradient of a row, as Megatron does", partial(_of_megatron, call)


def _of_rows(call: StudyCall) -> tuple[Array, Array, Array]:
    """Return exp, the negated gradient of every row, and where its label is, in fp64."""
    without = _without_exp(call)
    exp = np.exp(call.tensors["log_prob"].astype(FP64))
    return exp, -without.min(axis=1, keepdims=True), without != 0


def _of_nll_loss(call: StudyCall) -> Ends:
    exp, rows, labels = _of_rows(call)
    dtype = call.tensors["log_prob"].dtype
    rows = rounded(rows, dtype)
    return ends_of(exp * rows - rows * labels, exp * np.abs(rows), dtype)


def _of_megatron(call: StudyCall) -> Ends:
    exp, rows, labels = _of_rows(call)
    values = (exp - labels) * rows
    return ends_of(values, np.abs(values), call.tensors["log_prob"].dtype)


def terms(call: StudyCall, output: str, index: Index) -> NamedTerms:
    """Return the terms of an output element in float64, by name."""
    log_prob, target = call.tensors["log_prob"], int(call.tensors["target"][index[0]])
    inside = 0 <= target < log_prob.shape[1]
    nll = -float(_without_exp(call)[index[0], target]) if inside else 0.0
    exp_term = "exp(log_prob)*nll", float(np.exp(log_prob[index].astype(np.float64))) * nll
    return [exp_term, ("-nll", -nll)] if index[1] == target else [exp_term]


def _in_dump(wrapped: WrappedCall) -> FoundCall | None:
    if wrapped.output_gradient(2) is not None:
        return None  # the gradient of zloss, whose other arguments are not in the dump
    arguments = wrapped.pick("target", **DEFAULTS)
    arguments |= {"grad_loss": wrapped.output_gradient(), "log_prob": wrapped.output(1)}
    return arguments, {"x_grad": wrapped.gradients.get("input")}


IN_DUMPS = InDumps((CROSS_ENTROPY,), _in_dump, index_ranges=partial(label_ranges, "log_prob"))


OPERATOR = "cross_entropy_loss_grad"
LATER = "ascend_950"
USUAL_IGNORED = -100


def _label_aliasing() -> Shown:
    classes, ignored = EXACT_LABELS + 8, EXACT_LABELS
    log_prob, labels = (
        np.full((3, classes), -17.0, np.float32),
        np.array([ignored + 1, ignored + 2, 5]),
    )
    call: dict[str, Any] = {
        "grad_loss": np.float32(1),
        "log_prob": log_prob,
        "target": labels,
        "reduction": "sum",
        "ignore_index": ignored,
    }
    masked = [not row.any() for row in run(OPERATOR, **call).outputs["x_grad"]]
    return {"ignore_index": ignored, "labels": labels.tolist(), "masked": masked}, [
        Text(
            "ignore_index = {ignore_index}; labels: {labels}",
            ignore_index=ignored,
            labels=joined(
                (
                    Text("{label} {value}", label=label, value="masked" if is_masked else "kept")
                    for label, is_masked in zip(labels.tolist(), masked, strict=True)
                ),
                ", ",
            ),
        ),
        "labels and ignore_index are compared in fp32, where neighbours above 2^24 are one number",
    ]


def _all_ignored() -> Shown:
    call: dict[str, Any] = {
        "grad_loss": np.float32(1),
        "log_prob": np.full((4, 3), -1.0, np.float32),
        "target": np.full(4, 2),
        "ignore_index": 2,
    }
    numbers: Numbers = {}
    for reduction in ("mean", "sum"):
        values = run(OPERATOR, reduction=reduction, **call).outputs["x_grad"]
        numbers[reduction] = "nan" if np.isnan(values).all() else float(np.abs(values).max())
    return numbers, [
        Text(
            "every label ignored: mean gives {mean} everywhere (0 divided by a weight of 0), sum "
            "gives {sum}",
            **numbers,
        )
    ]


def _negative_ignore_index() -> Shown:
    call: dict[str, Any] = {
        "grad_loss": np.float32(1),
        "log_prob": np.full((2, 3), -1.0, np.float32),
        "target": np.array([1, USUAL_IGNORED]),
        "ignore_index": USUAL_IGNORED,
    }
    gradient = run(OPERATOR, product="atlas_a2", **call).outputs["x_grad"]
    try:
        run(OPERATOR, product=LATER, **call)
        status = 0
    except AclnnError as error:
        status = int(error.status)
    masked = not gradient[1].any()
    numbers: Numbers = {
        "ignore_index": USUAL_IGNORED,
        "masked_on_a2": masked,
        "product": LATER,
        "status": status,
    }
    return numbers, [
        Text(
            "a row with label {ignore_index} = ignore_index: {kept} on atlas_a2, {status} on "
            "{product}",
            kept="masked" if masked else "kept",
            **numbers,
        ),
        "a negative ignore_index masks nothing there: give ignored rows a label from 0 to C - 1 "
        "and set ignore_index to it; read in the public sources, not run on a device",
    ]


CAVEATS: tuple[Experiment, ...] = (
    Experiment(
        "negative_ignore_index",
        "On Ascend 950 a negative ignoreIndex masks nothing",
        "public sources of summer 2026, CrossEntropyLossGrad, ignoreIndex",
        _negative_ignore_index,
        ("negative_ignore_index",),
    ),
    Experiment(
        "label_aliasing",
        "labels alias with ignoreIndex above 2^24",
        "CrossEntropyLossGrad, ignoreIndex",
        _label_aliasing,
        ("labels_alias", "labels_aliased", "labels_beyond_fp32"),
    ),
    Experiment(
        "all_ignored",
        "mean over no label is nan",
        "CrossEntropyLossGrad, mean",
        _all_ignored,
        ("all_labels_ignored",),
    ),
)
