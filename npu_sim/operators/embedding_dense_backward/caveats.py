"""Documented caveats of EmbeddingDenseBackward as experiments."""

from itertools import pairwise
from typing import Any

import numpy as np

from npu_sim.kernels.elementwise import ulp_distance
from npu_sim.language import Text
from npu_sim.operators import run
from npu_sim.operators.shared.study import Caveat, Numbers, different

OPERATOR = "embedding_dense_backward"
EXACT_INTEGERS = 16777216
"""2^24: from here on fp32 does not hold every integer."""
SORTABLE_BELOW = 2139095040
"""0x7F800000, the bits of +inf in fp32."""
CAST_LIMIT_BYTES = 104857600
"""100 MiB: from this sum of gradient and output on, a 16-bit gradient is added natively."""


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
    call: dict[str, Any] = {"grad": ones, "indices": indices, "num_weights": 1}
    scaled = run(OPERATOR, scale_grad_by_freq=True, **call).outputs["grad_weight"]
    return {"counters": counters, "rows": rows, "mean_of_ones": float(scaled[0, 0])}


def _explain_counter(numbers: Numbers) -> list[str]:
    lines = [
        Text(
            "from {exact_integers} on, 100 flushes of {name}: the count is {true_count}, the "
            "fp32 counter {fp32_counter}",
            exact_integers=EXACT_INTEGERS,
            name=name,
            **counter,
        )
        for name, counter in numbers["counters"].items()
    ]
    mean = f"{numbers['mean_of_ones']:.9g}"
    rows = numbers["rows"]
    return [
        *lines,
        Text("the mean of {rows} ones comes out as {mean_of_ones}", rows=rows, mean_of_ones=mean),
    ]


def _sort_trick() -> Numbers:
    values = np.array([SORTABLE_BELOW - 1, 5, SORTABLE_BELOW + 1, 1000, SORTABLE_BELOW], np.int64)
    as_floats = values.astype(np.int32).view(np.float32)
    both = zip(np.sort(values).tolist(), as_floats[np.argsort(values)], strict=True)
    ordered = {f"{a} < {b}": bool(x < y) for (a, x), (b, y) in pairwise(both)}
    return {
        "first_unsortable": SORTABLE_BELOW + 1,
        "comparisons": ordered,
        "bits_of_inf": int(np.float32(np.inf).view(np.int32)),
    }


def _explain_sort_trick(numbers: Numbers) -> list[str]:
    def grouped(comparison: str) -> str:
        return " < ".join(f"{int(number):,}" for number in comparison.split(" < "))

    lines = [
        Text("as fp32 bits, {name}: {bits}", name=grouped(name), bits="yes" if holds else "no")
        for name, holds in numbers["comparisons"].items()
    ]
    return [
        *lines,
        Text(
            "int32 indices are sorted as if their bits were fp32; {bits_of_inf} is +inf, and "
            "above it every pattern is nan",
            **numbers,
        ),
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
    weights = [first_native - 1, first_native]
    results = [run(OPERATOR, grad=grad, indices=indices, num_weights=count) for count in weights]
    a, b = (result.outputs["grad_weight"][:20] for result in results)
    return {
        "weights": weights,
        "paths": [result.plan.path for result in results],
        "elements": a.size,
        "different": different(a, b),
        "max_ulp": int(ulp_distance(a, b, "float16").max()),
    }


def _explain_path_switch(numbers: Numbers) -> list[str]:
    small, large = numbers["weights"]
    return [
        Text(
            "num_weights {small}: {small_output}; num_weights {large}: {large_output}",
            small=small,
            small_output=numbers["paths"][0],
            large=large,
            large_output=numbers["paths"][1],
        ),
        Text(
            "one more row of weights takes gradient and output to 100 MiB: {different} of "
            "{elements} elements of the same rows change, by up to {max_ulp} ulp",
            **numbers,
        ),
    ]


def _padding() -> Numbers:
    grad, indices = np.ones((6, 2), np.float32), np.array([0, 1, 2, 1, 0, 3])
    sums = {}
    for padding in (-1, 1, 7):
        result = run(OPERATOR, grad=grad, indices=indices, num_weights=4, padding_idx=padding)
        sums[padding] = result.outputs["grad_weight"][:, 0].tolist()
    return {"sums": sums}


def _explain_padding(numbers: Numbers) -> list[str]:
    words = {
        -1: "negative: none",
        1: "row 1 gets no gradient",
        7: "beyond num_weights: matches nothing",
    }
    return [
        Text(
            "padding_idx {padding} ({words}): rows {sums}",
            padding=padding,
            words=words[padding],
            sums=sums,
        )
        for padding, sums in numbers["sums"].items()
    ]


def _saturation() -> Numbers:
    grad, indices = np.array([[60000.0, -60000.0, np.nan]] * 2, np.float16), np.array([0, 0])
    results = {}
    for product in ("atlas_a2", "atlas_train"):
        result = run(OPERATOR, grad=grad, indices=indices, num_weights=1, product=product)
        results[product] = [float(value) for value in result.outputs["grad_weight"][0]]
    return {"results": results}


def _explain_saturation(numbers: Numbers) -> list[str]:
    return [
        Text(
            "60000 + 60000, -60000 - 60000, nan + nan in fp16 on {product}: {values}",
            product=product,
            values=values,
        )
        for product, values in numbers["results"].items()
    ]


def _reciprocal() -> Numbers:
    counts = np.arange(1, 200)
    indices = np.repeat(np.arange(counts.size), counts).astype(np.int32)
    grad = np.random.default_rng(0).standard_normal((indices.size, 8)).astype(np.float32)
    call: dict[str, Any] = {"grad": grad, "indices": indices, "num_weights": counts.size}
    call["deterministic"] = True
    sums = run(OPERATOR, **call).outputs["grad_weight"]
    scaled = run(OPERATOR, scale_grad_by_freq=True, **call).outputs["grad_weight"]
    divided = sums / counts[:, None].astype(np.float32)
    return {
        "elements": scaled.size,
        "different": different(scaled, divided),
        "max_ulp": int(ulp_distance(scaled, divided, "float32").max()),
    }


def _explain_reciprocal(numbers: Numbers) -> list[str]:
    return [
        Text(
            "{different} of {elements} elements differ from sum / count, by up to {max_ulp} ulp: "
            "the product multiplies by the rounded reciprocal",
            **numbers,
        )
    ]


def _kernels_differ() -> Numbers:
    rng = np.random.default_rng(0)
    grad = rng.standard_normal((4000, 64)).astype(np.float32)
    indices = rng.integers(0, 50, 4000, dtype=np.int32)
    call: dict[str, Any] = {"grad": grad, "indices": indices, "num_weights": 50}
    default = run(OPERATOR, **call).outputs["grad_weight"]
    fixed = run(OPERATOR, deterministic=True, **call).outputs["grad_weight"]
    fewer = run(OPERATOR, soc="Ascend910B4", **call).outputs["grad_weight"]
    return {
        "elements": default.size,
        "deterministic_differs": different(default, fixed),
        "forty_cores_differ": different(default, fewer),
    }


def _explain_kernels_differ(numbers: Numbers) -> list[str]:
    return [
        Text(
            "default against deterministic: {deterministic_differs} of {elements} elements "
            "differ: other chunks",
            **numbers,
        ),
        Text(
            "48 cores against 40 (Ascend910B4): {forty_cores_differ} of {elements} elements "
            "differ: other sums",
            **numbers,
        ),
    ]


LATER_SOC = "Ascend950DT_9591"
CORES, CORE_ROWS, COLUMNS = 72, 32, 16
SHARED_PAIRS = (63, 66)
"""The cores 63 and 64, or 66 and 67, have an index in common."""


def _merge_test() -> Numbers:
    counts = {}
    for pair in SHARED_PAIRS:
        indices = np.repeat(np.arange(CORES, dtype=np.int32), CORE_ROWS)
        indices[(pair + 1) * CORE_ROWS] = pair
        ones = np.ones((indices.size, COLUMNS), np.float32)
        result = run(OPERATOR, soc=LATER_SOC, grad=ones, indices=indices, num_weights=CORES)
        counts[pair] = float(result.outputs["grad_weight"][pair, 0])
    return {"soc": LATER_SOC, "rows_of_the_index": CORE_ROWS + 1, "sums": counts}


def _explain_merge_test(numbers: Numbers) -> list[str]:
    lines = [
        Text(
            "only the cores {core} and {next_core} share an index, which has {rows} rows of ones: "
            "its sum is {found}",
            core=pair,
            next_core=pair + 1,
            rows=numbers["rows_of_the_index"],
            found=f"{found:g}",
        )
        for pair, found in numbers["sums"].items()
    ]
    return [
        *lines,
        "whether neighbouring cores share an index is tested for cores 0 to 64 only, and without "
        "one the sums of the cores are not added; read in the public sources, not run on a device",
    ]


CAVEATS: tuple[Caveat, ...] = (
    Caveat(
        "merge-test",
        "On Ascend 950 with 72 cores EmbeddingDenseBackward may leave out the sums of other cores",
        "public sources of summer 2026, EmbeddingDenseGradV2, test before the merge",
        _merge_test,
        _explain_merge_test,
        ("merge_test_sees_64_pairs",),
    ),
    Caveat(
        "counters",
        "fp32 counters are not exact beyond 2^24",
        "EmbeddingDenseBackward, scaleGradByFreq",
        _counter,
        _explain_counter,
        ("counter_stops",),
    ),
    Caveat(
        "sort-trick",
        "indices above 2,139,095,040 do not sort as fp32",
        "EmbeddingDenseBackward, INT32_INF",
        _sort_trick,
        _explain_sort_trick,
        ("indices_above_sortable",),
    ),
    Caveat(
        "path-switch",
        "16-bit gradients change bits at 100 MiB",
        "EmbeddingDenseBackward, cast or native",
        _path_switch,
        _explain_path_switch,
    ),
    Caveat(
        "padding",
        "what paddingIdx matches",
        "EmbeddingDenseBackward, paddingIdx",
        _padding,
        _explain_padding,
        ("padding_matches_nothing",),
    ),
    Caveat(
        "saturation",
        "saturation instead of inf and nan",
        "Atlas training and inference series",
        _saturation,
        _explain_saturation,
    ),
    Caveat(
        "reciprocal",
        "scaling multiplies by a reciprocal",
        "EmbeddingDenseBackward, scaleGradByFreq",
        _reciprocal,
        _explain_reciprocal,
    ),
    Caveat(
        "kernels-differ",
        "mode and core count change last bits",
        "determinism switch; SoCs",
        _kernels_differ,
        _explain_kernels_differ,
    ),
)
