"""Axes of RmsNorm and RmsNormGrad, and the bound on the last axis."""

from collections.abc import Mapping

from npu_sim.framework.vocabulary import (
    FLOAT_DTYPES,
    Argument,
    Axis,
    Derived,
    Inspection,
    MessageAndHint,
    Number,
    TensorSpec,
    Text,
    Word,
    ceil_div,
    checks,
)


def axes(tensors: str) -> tuple[Axis, ...]:
    """Return the axes; ``tensors`` names the tensors that have the dtype of x, for the help."""
    return (
        Word("gamma_dtype", "dtype of gamma", FLOAT_DTYPES, "bfloat16"),
        Word("dtype", Text("dtype of {tensors}", tensors=tensors), FLOAT_DTYPES, "bfloat16"),
        Number(
            "col",
            "columns: product of the axes of gamma",
            4096,
            unit="column",
            aliases=("columns", "cols"),
        ),
        Number("row", "rows: product of the other axes of x", 1024, unit="row", aliases=("rows",)),
    )


def last_axis(tensors: str) -> tuple[Derived, checks.Holds]:
    """Return the bytes of the shortest last axis of ``tensors``, and the check of that size.

    The check refuses the first tensor whose last axis is too short. The Atlas inference series
    needs 32 bytes (product document, "约束与限制"); no reason is published, so the limit always
    holds.
    """

    def sizes(specs: Mapping[str, TensorSpec]) -> dict[str, int]:
        return {name: specs[name].shape[-1] * specs[name].itemsize for name in tensors.split()}

    def too_short(call: Inspection) -> str:
        return next(
            name
            for name, size in sizes(call.specs).items()
            if size < call.rules.last_axis_bytes_at_least
        )

    def message(call: Inspection) -> MessageAndHint:
        name, least_bytes = too_short(call), call.rules.last_axis_bytes_at_least
        spec, title = call.specs[name], call.profile.product.title
        return Text(
            "the last axis of {name} has {shape} elements of {itemsize} bytes = {row_bytes} "
            "bytes; {title} needs {least_bytes} bytes or more",
            name=name,
            shape=spec.shape[-1],
            itemsize=spec.itemsize,
            row_bytes=spec.shape[-1] * spec.itemsize,
            title=title,
            least_bytes=least_bytes,
        ), Text(
            "last axis of {name} >= {count}; {reason}",
            name=name,
            count=ceil_div(least_bytes, spec.itemsize),
            reason=Text(
                "the Unified Buffer moves blocks of {ub_block_bytes} bytes; the planner itself "
                "takes any length and no physical reason is published, so the limit holds with "
                "{hardware} too",
                ub_block_bytes=call.profile.chip.ub_block_bytes,
                hardware=Argument("limits", "hardware"),
            ),
        )

    swept = "col * (4 - 2 * min(max(dtype, gamma_dtype), 1))"
    bytes_of_shortest = Derived("last_axis_bytes", swept, lambda specs: min(sizes(specs).values()))
    return bytes_of_shortest, checks.Holds(
        "last_axis_bytes >= last_axis_bytes_at_least", too_short, message
    )
