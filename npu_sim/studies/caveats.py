"""The caveats of the product documents as small experiments that anyone can run: ``npu-sim caveats NAME``.

Every experiment generates its own small data, runs the simulator, and returns the numbers that show the effect.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from npu_sim.dtypes import ulp_distance
from npu_sim.ops import plan, run
from npu_sim.plain import plain

EXACT_INTEGERS = 16777216
"""2^24: from here on fp32 does not hold every integer."""
SORTABLE_BELOW = 2139095040
"""0x7F800000, the bits of +inf in fp32."""
CAST_LIMIT_BYTES = 104857600
"""100 MiB: gradient and output together, from which a 16-bit gradient is summed natively."""

Numbers = dict[str, Any]


@dataclass(frozen=True)
class Caveat:
    """One documented caveat.

    Attributes
    ----------
    name, title
        How it is called, and what it says.
    source
        Where it is documented.
    experiment
        Returns the numbers that show it.
    explain
        Says in words what the numbers show.
    """

    name: str
    title: str
    source: str
    experiment: Callable[[], Numbers]
    explain: Callable[[Numbers], list[str]]


def _different(a: np.ndarray, b: np.ndarray) -> int:
    return int(np.count_nonzero(a != b))


def _counter() -> Numbers:
    flushes = {"1 row": 1, "10 rows (deterministic)": 10, "11 rows (default)": 11}
    counters = {}
    for name, rows in flushes.items():
        counter = np.float32(EXACT_INTEGERS)
        for _ in range(100):
            counter = np.float32(counter + np.float32(rows))
        counters[name] = {"true_count": EXACT_INTEGERS + 100 * rows, "fp32_counter": int(counter)}
    rows = EXACT_INTEGERS + 65536
    ones, indices = np.ones((rows, 1), np.float32), np.zeros(rows, np.int32)
    scaled = run("embedding_dense_backward", grad=ones, indices=indices, num_weights=1, scale_grad_by_freq=True).outputs["grad_weight"]
    return {"counters": counters, "rows": rows, "mean_of_ones": float(scaled[0, 0])}


def _explain_counter(found: Numbers) -> list[str]:
    lines = [
        f"from {EXACT_INTEGERS} on, 100 flushes of {name}: the count is {one['true_count']}, the fp32 counter {one['fp32_counter']}"
        for name, one in found["counters"].items()
    ]
    return [*lines, f"the mean of {found['rows']} ones comes out as {found['mean_of_ones']:.9g}"]


def _label_aliasing() -> Numbers:
    classes, ignored = EXACT_INTEGERS + 8, EXACT_INTEGERS
    log_prob, labels = np.full((3, classes), -17.0, np.float32), np.array([ignored + 1, ignored + 2, 5])
    call: dict[str, Any] = {"grad_loss": np.float32(1), "log_prob": log_prob, "target": labels, "reduction": "sum", "ignore_index": ignored}
    gradient = run("cross_entropy_loss_grad", **call).outputs["x_grad"]
    return {"ignore_index": ignored, "labels": labels.tolist(), "masked": [not row.any() for row in gradient]}


def _explain_label_aliasing(found: Numbers) -> list[str]:
    said = ", ".join(f"{label} {'masked' if masked else 'kept'}" for label, masked in zip(found["labels"], found["masked"], strict=True))
    return [
        f"ignore_index = {found['ignore_index']}; labels: {said}",
        "labels and ignore_index are compared in fp32, where neighbours above 2^24 are one number",
    ]


def _sort_trick() -> Numbers:
    values = np.array([SORTABLE_BELOW - 1, 5, SORTABLE_BELOW + 1, 1000, SORTABLE_BELOW], np.int64)
    as_floats = values.astype(np.int32).view(np.float32)
    ordered = {f"{a} < {b}": bool(x < y) for (a, x), (b, y) in _pairs(np.sort(values), as_floats[np.argsort(values)])}
    return {"first_unsortable": SORTABLE_BELOW + 1, "comparisons": ordered, "bits_of_inf": int(np.float32(np.inf).view(np.int32))}


def _pairs(values: np.ndarray, floats: np.ndarray) -> list[tuple[tuple[int, Any], tuple[int, Any]]]:
    both = list(zip(values.tolist(), floats, strict=True))
    return list(pairwise(both))


def _explain_sort_trick(found: Numbers) -> list[str]:
    lines = [f"as fp32 bits, {name}: {'yes' if holds else 'no'}" for name, holds in found["comparisons"].items()]
    return [
        *lines,
        f"int32 indices are sorted as if their bits were fp32; {found['bits_of_inf']} is +inf, and above it every pattern is nan",
    ]


def _path_switch() -> Numbers:
    rows, dim = 600, 520
    rng = np.random.default_rng(0)
    indices = np.arange(rows, dtype=np.int32) % 20
    grad = rng.standard_normal((rows, dim))
    # Large rows that cancel leave the small ones, whose low bits the order decides.
    grad[:200] *= 8192
    grad[200:400] = -grad[:200]
    grad = grad.astype(np.float16)
    first_native = -(-CAST_LIMIT_BYTES // (2 * dim)) - rows
    results = {}
    for name, weights in (("cast", first_native - 1), ("native", first_native)):
        results[name] = run("embedding_dense_backward", grad=grad, indices=indices, num_weights=weights)
    a, b = results["cast"].outputs["grad_weight"][:20], results["native"].outputs["grad_weight"][:20]
    return {
        "weights": [first_native - 1, first_native],
        "paths": [results["cast"].plan.path, results["native"].plan.path],
        "elements": a.size,
        "different": _different(a, b),
        "max_ulp": int(ulp_distance(a, b, "float16").max()),
    }


def _explain_path_switch(found: Numbers) -> list[str]:
    small, large = found["weights"]
    return [
        f"num_weights {small}: {found['paths'][0]}; num_weights {large}: {found['paths'][1]}",
        f"one more row of weights takes gradient and output to 100 MiB: {found['different']} of {found['elements']} elements "
        f"of the same rows change, by up to {found['max_ulp']} ulp",
    ]


def _padding() -> Numbers:
    grad, indices = np.ones((6, 2), np.float32), np.array([0, 1, 2, 1, 0, 3])
    sums = {}
    for padding in (-1, 1, 7):
        result = run("embedding_dense_backward", grad=grad, indices=indices, num_weights=4, padding_idx=padding)
        sums[padding] = result.outputs["grad_weight"][:, 0].tolist()
    return {"sums": sums}


def _explain_padding(found: Numbers) -> list[str]:
    words = {-1: "negative: none", 1: "row 1 gets no gradient", 7: "beyond num_weights: matches nothing"}
    return [f"padding_idx {padding} ({words[padding]}): rows {sums}" for padding, sums in found["sums"].items()]


def _saturation() -> Numbers:
    grad, indices = np.array([[60000.0, -60000.0, np.nan]] * 2, np.float16), np.array([0, 0])
    results = {}
    for product in ("atlas_a2", "atlas_train"):
        result = run("embedding_dense_backward", grad=grad, indices=indices, num_weights=1, profile=product)
        results[product] = [float(value) for value in result.outputs["grad_weight"][0]]
    return {"results": results}


def _explain_saturation(found: Numbers) -> list[str]:
    return [f"60000 + 60000, -60000 - 60000, nan + nan in fp16 on {product}: {values}" for product, values in found["results"].items()]


def _wrap() -> Numbers:
    rows, found = 400, {}
    for columns in (1_300_000, 1_350_000):
        spec: dict[str, Any] = {
            "dy": f"{rows}x{columns}:fp32",
            "x": f"{rows}x{columns}:fp32",
            "rstd": f"{rows}:fp32",
            "gamma": f"{columns}:fp32",
        }
        tiling = plan("rms_norm_grad", deterministic=True, **spec).tiling
        total = rows * columns * 8 + rows * 4 + columns * 4
        found[columns] = {"bytes": total, "bytes_32_bit": total % 2**32, "need_chunk": tiling["need_chunk"]}
    return {"rows": rows, "columns": found}


def _explain_wrap(found: Numbers) -> list[str]:
    lines = [
        f"{found['rows']} x {columns}: {one['bytes']} bytes, {one['bytes_32_bit']} in 32 bits: need_chunk {one['need_chunk']}"
        for columns, one in found["columns"].items()
    ]
    return [*lines, "beyond 4 GiB a larger tensor is planned as a small one: the reduction of dgamma is not cut into chunks"]


def _conversion() -> Numbers:
    rng = np.random.default_rng(0)
    shape = {"grad_output": (24, 4, 64), "input": (24, 4, 48), "weight": (1, 48, 64), "bias": (64,)}
    tensors = {name: rng.standard_normal(sizes).astype(np.float32) for name, sizes in shape.items()}
    from npu_sim.ops import operator_module

    arguments = operator_module("conv_tbc_backward").Arguments.build({**tensors, "cube_math_type": 0})
    golden, errors = plain("conv_tbc_backward", arguments, tensors), {}
    for code, name in enumerate(("KEEP_DTYPE", "ALLOW_FP32_DOWN_PRECISION", "USE_FP16", "USE_HF32")):
        call: dict[str, Any] = {**tensors, "cube_math_type": code}
        outputs = run("conv_tbc_backward", **call).outputs
        scale = float(np.abs(golden["grad_weight"]).max())
        errors[f"{code} {name}"] = {
            "grad_weight": float(np.abs(outputs["grad_weight"] - golden["grad_weight"]).max()) / scale,
            "grad_bias": float(np.abs(outputs["grad_bias"] - golden["grad_bias"]).max()) / float(np.abs(golden["grad_bias"]).max()),
        }
    return {"relative_errors": errors}


def _explain_conversion(found: Numbers) -> list[str]:
    lines = [
        f"cubeMathType {name}: largest error of gradWeight {one['grad_weight']:.1e} of its largest, of gradBias {one['grad_bias']:.1e}"
        for name, one in found["relative_errors"].items()
    ]
    return [*lines, "hf32 keeps 11 bits after the point, fp16 keeps 10 and a narrow range; gradBias is never converted"]


def _reciprocal() -> Numbers:
    counts = np.arange(1, 200)
    indices = np.repeat(np.arange(counts.size), counts).astype(np.int32)
    grad = np.random.default_rng(0).standard_normal((indices.size, 8)).astype(np.float32)
    call: dict[str, Any] = {"grad": grad, "indices": indices, "num_weights": counts.size, "deterministic": True}
    sums = run("embedding_dense_backward", **call).outputs["grad_weight"]
    scaled = run("embedding_dense_backward", scale_grad_by_freq=True, **call).outputs["grad_weight"]
    divided = sums / counts[:, None].astype(np.float32)
    return {
        "elements": scaled.size,
        "different": _different(scaled, divided),
        "max_ulp": int(ulp_distance(scaled, divided, "float32").max()),
    }


def _explain_reciprocal(found: Numbers) -> list[str]:
    return [
        f"{found['different']} of {found['elements']} elements differ from sum / count, by up to {found['max_ulp']} ulp: "
        "the product multiplies with the rounded reciprocal"
    ]


def _kernels_differ() -> Numbers:
    rng = np.random.default_rng(0)
    grad, indices = rng.standard_normal((4000, 64)).astype(np.float32), rng.integers(0, 50, 4000, dtype=np.int32)
    call: dict[str, Any] = {"grad": grad, "indices": indices, "num_weights": 50}
    default = run("embedding_dense_backward", **call).outputs["grad_weight"]
    fixed = run("embedding_dense_backward", deterministic=True, **call).outputs["grad_weight"]
    fewer = run("embedding_dense_backward", soc="Ascend910B4", **call).outputs["grad_weight"]
    return {"elements": default.size, "deterministic_differs": _different(default, fixed), "forty_cores_differ": _different(default, fewer)}


def _explain_kernels_differ(found: Numbers) -> list[str]:
    return [
        f"default against deterministic: {found['deterministic_differs']} of {found['elements']} elements differ: other chunks",
        f"48 cores against 40 (Ascend910B4): {found['forty_cores_differ']} of {found['elements']} elements differ: other sums",
    ]


def _empty_bias() -> Numbers:
    tensors = {"grad_output": (5, 3, 2), "input": (5, 3, 0), "weight": (1, 0, 2), "bias": (2,)}
    arrays: dict[str, Any] = {name: np.full(shape, 0.25, np.float32) for name, shape in tensors.items()}
    outputs = run("conv_tbc_backward", **arrays).outputs
    return {"grad_bias": outputs["grad_bias"].tolist(), "sum_of_self": 0.25 * 15}


def _explain_empty_bias(found: Numbers) -> list[str]:
    return [
        f"with an empty input gradBias is {found['grad_bias']}, the constant batch * time, not the sum of self ({found['sum_of_self']})"
    ]


def _all_ignored() -> Numbers:
    call: dict[str, Any] = {
        "grad_loss": np.float32(1),
        "log_prob": np.full((4, 3), -1.0, np.float32),
        "target": np.full(4, 2),
        "ignore_index": 2,
    }
    found = {reduction: run("cross_entropy_loss_grad", reduction=reduction, **call).outputs["x_grad"] for reduction in ("mean", "sum")}
    return {reduction: "nan" if np.isnan(values).all() else float(np.abs(values).max()) for reduction, values in found.items()}


def _explain_all_ignored(found: Numbers) -> list[str]:
    return [f"every label ignored: mean gives {found['mean']} everywhere (0 divided by a weight of 0), sum gives {found['sum']}"]


CAVEATS: tuple[Caveat, ...] = (
    Caveat("counters", "fp32 counters are not exact beyond 2^24", "EmbeddingDenseBackward, scaleGradByFreq", _counter, _explain_counter),
    Caveat(
        "label-aliasing",
        "labels alias with ignoreIndex above 2^24",
        "CrossEntropyLossGrad, ignoreIndex",
        _label_aliasing,
        _explain_label_aliasing,
    ),
    Caveat(
        "sort-trick", "indices above 2139095040 do not sort as fp32", "EmbeddingDenseBackward, INT32_INF", _sort_trick, _explain_sort_trick
    ),
    Caveat(
        "path-switch",
        "16-bit gradients change bits at 100 MiB",
        "EmbeddingDenseBackward, cast or native",
        _path_switch,
        _explain_path_switch,
    ),
    Caveat("padding", "what paddingIdx matches", "EmbeddingDenseBackward, paddingIdx", _padding, _explain_padding),
    Caveat("saturation", "saturation instead of inf and nan", "Atlas training and inference series", _saturation, _explain_saturation),
    Caveat("wrap", "RmsNormGrad sizes its work in 32 bits", "RmsNormGrad, deterministic, beyond 4 GiB", _wrap, _explain_wrap),
    Caveat("conversion", "conv gradients in fp32 carry 11 or 10 bits", "ConvTbcBackward, cubeMathType", _conversion, _explain_conversion),
    Caveat(
        "reciprocal", "scaling multiplies with a reciprocal", "EmbeddingDenseBackward, scaleGradByFreq", _reciprocal, _explain_reciprocal
    ),
    Caveat("kernels-differ", "mode and core count change last bits", "determinism switch; SoCs", _kernels_differ, _explain_kernels_differ),
    Caveat("empty-bias", "an empty input gives a constant gradBias", "ConvTbcBackward, empty tensors", _empty_bias, _explain_empty_bias),
    Caveat("all-ignored", "mean over no label is nan", "CrossEntropyLossGrad, mean", _all_ignored, _explain_all_ignored),
)


def find_caveat(name: str) -> Caveat:
    """Return a caveat by name.

    Raises
    ------
    AclnnError
        161002 when there is none of that name.
    """
    from npu_sim.profile_file import closest
    from npu_sim.status import INVALID, AclnnError

    names = [one.name for one in CAVEATS]
    for one in CAVEATS:
        if one.name == name:
            return one
    raise AclnnError(INVALID, "name", f"name = {name!r}: no such caveat", f"caveats: {', '.join(names)}{closest(name, names)}")
