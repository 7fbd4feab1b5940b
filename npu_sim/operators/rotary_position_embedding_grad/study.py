"""Studies of RotaryPositionEmbeddingGrad: the trees of dcos and dsin, and dumps.

Every order is fixed; dx has no sums of more than two terms.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np

from npu_sim.framework.vocabulary import Index, Result, Text
from npu_sim.operators.rotary_position_embedding_grad.plan import ranges_of
from npu_sim.operators.shared.rotations.compute import four_axes, rotated
from npu_sim.operators.shared.rotations.study import FP64, ROTARY_MUL, attributes_of
from npu_sim.operators.shared.study import (
    FoundCall,
    InDumps,
    LastWrites,
    NamedTerms,
    StudyCall,
    WrappedCall,
    no_claims,
)
from npu_sim.operators.shared.unfused import Ends, Formulas, ends_of, is_16_bit, rounded, short

claims = no_claims
"""The trees of dcos and dsin are not declared for probes."""


def terms(call: StudyCall, output: str, index: Index) -> NamedTerms:
    """Return the terms of an element in float64: products of x and dy, or both of dx."""
    mode = int(call.arguments.mode)
    dy, cos, sin = (call.tensors[name].astype(FP64) for name in ("dy", "cos", "sin"))
    if output == "dx":
        products = np.broadcast_arrays(dy * cos, -rotated(dy * sin, mode))
        return [
            (name, float(product[index]))
            for name, product in zip(("cos*dy", "sin*dy"), products, strict=True)
        ]
    x = call.tensors["x"].astype(FP64)
    product = four_axes((x if output == "dcos" else rotated(x, mode)) * dy)
    axes, place = four_axes(cos).shape, ((0,) * (4 - len(index))) + tuple(index)
    chosen = tuple(
        slice(None) if axis == 1 and size > 1 else slice(at, at + 1)
        for axis, size, at in zip(axes, product.shape, place, strict=True)
    )
    values = product[chosen].reshape(-1)
    return [(f"row {number}", float(value)) for number, value in enumerate(values)]


def unfused(call: StudyCall, output: str) -> Formulas:
    """Yield the gradients of separate products, each rounded to 16 bits."""
    dy = call.tensors["dy"]
    if is_16_bit(dy):
        text = Text("products rounded to {dtype} before the sum", dtype=short(dy.dtype))
        yield text, partial(_of_products, call, output)


def _of_products(call: StudyCall, output: str) -> Ends:
    dtype, mode = call.tensors["dy"].dtype, int(call.arguments.mode)
    dy, cos, sin = (call.tensors[name].astype(FP64) for name in ("dy", "cos", "sin"))
    if output == "dx":
        total = rounded(dy * cos, dtype) - rotated(rounded(dy * sin, dtype), mode)
        return ends_of(total, np.zeros(1), dtype)
    x = call.tensors["x"].astype(FP64)
    products = rounded((x if output == "dcos" else rotated(x, mode)) * dy, dtype)
    axes = tuple(np.flatnonzero(np.array(cos.shape) != np.array(dy.shape)).tolist())
    total, sizes = (part.sum(axis=axes, keepdims=True) for part in (products, np.abs(products)))
    return ends_of(total, sizes, dtype)


def writes(call: StudyCall, result: Result, output: str) -> Iterator[LastWrites]:
    """Yield the rows of dcos and dsin that a race can overwrite: their sums, or the next row."""
    rows = result.outputs[output].reshape(-1, result.outputs[output].shape[-1])
    shape = result.outputs[output].shape[:-1]
    cores = {
        position: core
        for core, (start, stop) in enumerate(ranges_of(call.case.tiling))
        for position in range(start, stop)
    }
    for position in np.flatnonzero(result.order_dependent[output].mask).tolist():
        place = tuple(int(at) for at in np.unravel_index(position, shape))
        names = (
            Text("its own sum"),
            Text("the sum of the next position of core {core}", core=cores[position]),
        )
        yield LastWrites(place, rows[position : position + 2], (cores[position],) * 2, names)


def _in_dump(wrapped: WrappedCall) -> FoundCall:
    arguments = {
        "dy": wrapped.output_gradient(),
        "cos": wrapped.tensor("r1"),
        "sin": wrapped.tensor("r2"),
        **attributes_of(wrapped),
    }
    names = {"dx": "input", "dcos": "r1", "dsin": "r2"}
    results = {name: wrapped.gradients.get(tensor) for name, tensor in names.items()}
    if results["dcos"] is not None or results["dsin"] is not None:
        arguments["x"] = wrapped.tensor("input")
    return arguments, results


IN_DUMPS = InDumps((ROTARY_MUL,), _in_dump)
