"""AddRmsNorm and InplaceAddRmsNorm: residual addition and RMS normalisation in one kernel.

Source: product documents aclnnAddRmsNorm and aclnnInplaceAddRmsNorm; specification page
``add_rms_norm``.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

from npu_sim.framework.vocabulary import (
    ASCEND_950,
    FLOAT_DTYPES,
    INVALID,
    NPU_ARCH_ATLAS_INFERENCE,
    NULL_POINTER,
    TILING_FAILURE,
    AclnnError,
    Arguments,
    Attribute,
    Derived,
    Device,
    Evidence,
    Inspection,
    Number,
    Operator,
    Output,
    Status,
    Switch,
    Tensor,
    Text,
    Word,
    bound_sizes,
    checks,
    shape_text,
    shown,
    system_workspace,
    tip,
    to_fp32,
)
from npu_sim.tiling import add_rms_norm as tiler
from npu_sim.tiling.common import FP32


def x_axes(arguments: Mapping[str, Any]) -> str:
    """Return the axes of x1: without rstd, a row is the last axis alone."""
    return "row* col+" if arguments["outputs"] == "full" else "row* col{1}"


def gamma_axes(arguments: Mapping[str, Any]) -> str:
    """Return the axes of gamma: (1, columns) without rstd."""
    return "col+" if arguments["outputs"] == "full" else "1col col{1}"


def is_hand_written(in_place: int, rules: Any) -> bool:
    """Return whether host code written by hand checks the call before it is planned.

    Its refusals have 161002, those of generated host code 561002; it alone takes an empty x1, and
    calls with fewer outputs (page, "Contract").
    """
    return bool(rules.short_modes != 0 and in_place == 0)


def has_outputs(row: Any, device: Device, rules: Any) -> bool:
    """Return whether the call may leave out the outputs that it does not ask for."""
    return bool(row.outputs == tiler.FULL or is_hand_written(row.in_place, rules))


def has_dtype(row: Any, device: Device, rules: Any) -> bool:
    """Return whether a call with fewer outputs has 16 bits."""
    return bool(row.outputs == tiler.FULL or row.dtype != FP32)


def takes_empty(row: Any, device: Device, rules: Any) -> bool:
    """Return whether x1 has elements, or the host code of the call takes an empty one."""
    has_elements = row.row != 0 and row.col != 0
    return bool(has_elements or is_hand_written(row.in_place, rules))


def status_of(call: Inspection) -> Status:
    """Return the status of a refusal of shapes."""
    is_first = is_hand_written(int(call.arguments.in_place), call.rules)
    return INVALID if is_first else TILING_FAILURE


def inner(call: Inspection) -> str:
    """Return what a device says where the planner refuses behind checks of the host code."""
    if status_of(call) == TILING_FAILURE:
        return Text("")
    return Text("; by the public sources a device returns 561103")


def check_outputs(call: Inspection) -> None:
    """Refuse an unknown value of outputs, and bind the sizes of the call."""
    outputs = call.arguments.outputs
    if outputs not in tiler.OUTPUTS:
        raise AclnnError(
            INVALID,
            "outputs",
            "outputs = {outputs} is not known",
            "{tip}outputs: {words}",
            outputs=shown(outputs),
            words=", ".join(tiler.OUTPUTS),
            tip=tip(outputs, tiler.OUTPUTS),
        )
    x1, gamma = call.specs["x1"], call.specs["gamma"]
    arguments = call.arguments
    if not _fits(call, x1.shape, gamma.shape):
        # gamma of an empty x1 is not looked at, other calls are refused later.
        ones = () if outputs == "full" else (1,)
        arguments = Arguments({**arguments, "gamma": replace(gamma, shape=(*ones, *x1.shape[-1:]))})
    call.sizes = bound_sizes(call.operator, arguments)
    sizes = call.sizes.values
    sizes |= {"row": prod(x1.shape[:-1]), "col": prod(x1.shape[-1:])} | sizes
    if takes_any_columns(call) and x1.numel > 0:
        sizes["col"] = gamma.shape[-1]


def _fits(call: Inspection, x1: tuple[int, ...], gamma: tuple[int, ...]) -> bool:
    """Return whether gamma has the last axes of x1, or is (1, columns) of them."""
    if call.arguments.outputs != "full":
        return gamma == (1, *x1[-1:])
    return 1 <= len(gamma) <= len(x1) and gamma == x1[len(x1) - len(gamma) :]


def takes_any_columns(call: Inspection) -> bool:
    """Return whether the release does not compare the columns of gamma (gamma_not_checked)."""
    gamma = call.specs["gamma"].shape
    is_short = call.arguments.outputs != "full"
    is_row = len(gamma) == 2 and gamma[0] == 1 and gamma[1] > 0
    return is_short and is_row and not call.rules.checks_gamma_columns


def check_contiguous(call: Inspection) -> None:
    """Refuse tensors that are not contiguous in place."""
    if call.arguments.in_place:
        checks.Contiguous()(call)
        checks.ContiguousOutputs(lambda _: Text("the call in place needs contiguous tensors"))(call)


def check_shapes(call: Inspection) -> None:
    """Check ranks and equal shapes (page, "Contract" 3)."""
    status = status_of(call)
    checks.Ranks("x1 x2", 1, status=status)(call)
    most = checks.MAX_RANK if call.arguments.outputs == "full" else 2
    checks.Ranks("gamma", 1, most, status)(call)
    checks.Like("x2 y x", "x1", status)(call)
    checks.Ranks("rstd", 0, status=status)(call)


def check_gamma(call: Inspection) -> None:
    """Check the shape of gamma (page, "Contract" 5)."""
    x1, gamma = call.specs["x1"], call.specs["gamma"]
    if _fits(call, x1.shape, gamma.shape) or takes_any_columns(call):
        return
    if call.arguments.outputs == "full":
        rule = Text("gamma must be its last axes")
        wanted = x1.shape[max(x1.rank - gamma.rank, 0) :]
    else:
        rule = Text("without rstd gamma must be (1, columns)")
        wanted = (1, *x1.shape[-1:])
    raise AclnnError(
        status_of(call),
        "gamma",
        "gamma is {given}, but x1 is {x1}: {rule}{inner}",
        "gamma: {wanted}",
        given=shape_text(gamma.shape),
        x1=shape_text(x1.shape),
        rule=rule,
        inner=inner(call),
        wanted=shape_text(wanted),
    )


def check_rstd(call: Inspection) -> None:
    """Check the shape of rstd; the Atlas inference series does not write it."""
    checks.Shapes("rstd", status_of(call))(call)
    if call.profile.npu_arch == NPU_ARCH_ATLAS_INFERENCE:
        call.not_written.add("rstd")


def check_epsilon(call: Inspection) -> None:
    """Check that epsilon >= 0 after rounding to fp32; inf and nan pass (page, "Contract" 7)."""
    if to_fp32(call.arguments.epsilon) < 0:
        raise AclnnError(
            status_of(call),
            "epsilon",
            "epsilon = {epsilon} is below 0{inner}",
            "epsilon >= 0",
            epsilon=call.arguments.epsilon,
            inner=inner(call),
        )


def outputs_message(call: Inspection) -> tuple[str, str]:
    """Return message and hint of a call that must give all outputs."""
    where = (
        "aclnnInplaceAddRmsNorm"
        if call.arguments.in_place
        else Text("release {release}", release=call.profile.release)
    )
    message = Text("rstd is missing, which {where} does not allow", where=where)
    return message, Text("give all outputs: outputs = full")


def dtype_message(call: Inspection) -> tuple[str, str]:
    """Return message and hint of fp32 without rstd."""
    return Text("x1 is float32; without rstd the product takes 16 bits alone"), Text(
        "x1: float16 or bfloat16, or outputs = full"
    )


def empty_message(call: Inspection) -> tuple[str, str]:
    """Return message and hint of an empty x1 that is not supported."""
    return Text(
        "x1 {x1} is empty, which the document does not allow here; a device returns success and "
        "workspace 0, as the outputs are empty",
        x1=call.specs["x1"],
    ), Text("every axis of x1 needs at least one element")


_FULL = Operator(
    name="add_rms_norm",
    title="AddRmsNorm",
    summary="Add the residual and normalise rows by their root mean square as the product does.",
    arguments=(
        Tensor("x1", x_axes, "input, (rows ..., columns ...)", "dtype", samples=0),
        Tensor("x2", x_axes, "the residual, like x1", "dtype", samples=0),
        Tensor(
            "gamma",
            gamma_axes,
            "scale of every column, (columns ...); (1, columns) without rstd",
            "dtype",
        ),
        Attribute("epsilon", float, "what is added to the mean square", default=1e-6),
        Attribute(
            "outputs",
            str,
            "outputs that the call asks for: full, no_rstd (y and x), y_only",
            default="full",
        ),
        Attribute(
            "in_place",
            bool,
            "aclnnInplaceAddRmsNorm: y takes the place of x1, x that of x2; the bits are the same",
            default=False,
        ),
        Output(
            "y", x_axes, "x normalised and scaled, like x1", "dtype", document="yOut", samples=0
        ),
        Output(
            "rstd",
            "row* 1col",
            "1/sqrt(mean(x^2)+epsilon) of every row, fp32",
            "float32",
            document="rstdOut",
            samples=0,
            written_for=("outputs", ("full",)),
        ),
        Output(
            "x",
            x_axes,
            "x1 + x2, like x1",
            "dtype",
            document="xOut",
            samples=0,
            written_for=("outputs", ("full", "no_rstd")),
        ),
    ),
    axes=(
        Word("dtype", "dtype of x1, x2, gamma, y and x", FLOAT_DTYPES, "bfloat16"),
        Word("outputs", "outputs that the call asks for", tiler.OUTPUTS, "full"),
        Switch("in_place", "in_place"),
        Number(
            "col",
            "columns: product of the axes of gamma",
            4096,
            unit="column",
            aliases=("columns", "cols"),
        ),
        Number("row", "rows: product of the other axes of x1", 1024, unit="row", aliases=("rows",)),
    ),
    derived=(
        Derived(
            "folded_rows",
            "row * max(1 - outputs, 0) + min(outputs, 1)",
            lambda specs: prod(specs["x1"].shape[: max(specs["x1"].rank - specs["gamma"].rank, 0)]),
        ),
        Derived("last_axis", "col", lambda specs: specs["x1"].shape[-1] if specs["x1"].rank else 1),
        Derived("x_rank", "2", lambda specs: specs["x1"].rank),
        Derived("gamma_rank", "1 + min(outputs, 1)", lambda specs: specs["gamma"].rank),
        Derived("first_axis", "row", lambda specs: (*specs["x1"].shape, 1)[0]),
        Derived("second_axis", "col", lambda specs: (*specs["x1"].shape, 1, 1)[1]),
    ),
    checks=(
        checks.Given(),
        checks.Attributes("epsilon outputs in_place"),
        check_outputs,
        checks.Fits(has_outputs, "rstd", outputs_message, NULL_POINTER),
        checks.Supported(),
        checks.NothingToDo("(row == 0 or col == 0) and checks_after_empty == 1 and in_place == 0"),
        checks.Dtypes("x1", checks.product_dtypes),
        checks.SameDtype("x2 gamma y x", "x1"),
        checks.Dtypes("rstd"),
        checks.Fits(has_dtype, "x1", dtype_message, INVALID),
        checks.Formats(checks.PLAIN_FORMATS),
        check_contiguous,
        check_shapes,
        checks.Fits(takes_empty, "x1", empty_message, TILING_FAILURE),
        checks.NothingToDo("row == 0 or col == 0"),
        check_gamma,
        check_rstd,
        check_epsilon,
    ),
    tiling=tiler.Tiling,
    tile=tiler.tile,
    assumed=(system_workspace("add_rms_norm, Tiling"),),
    evidence=Evidence.EXACT,
    empty="empty: no elements, nothing runs",
    families=(ASCEND_950,),
    c_order=("x1", "x2", "gamma", "epsilon", "y", "rstd", "x"),
    package=__package__,
)
_IN_PLACE: Mapping[str, Mapping[str, Any]] = {
    "x1": {"document": "x1Ref"},
    "x2": {"document": "x2Ref"},
    "in_place": {"default": True},
    "y": {"in_place": "x1"},
    "x": {"in_place": "x2"},
}
"""Fields of arguments that differ in the C function in place."""

IN_PLACE = replace(
    _FULL,
    title="InplaceAddRmsNorm",
    arguments=tuple(
        replace(argument, **changed) if (changed := _IN_PLACE.get(argument.name)) else argument
        for argument in _FULL.arguments
    ),
    c_order=("x1", "x2", "gamma", "epsilon", "rstd"),
)
"""The C function aclnnInplaceAddRmsNorm: y takes the place of x1, and x that of x2."""
OPERATOR = replace(_FULL, c_forms=(IN_PLACE,))
