"""Order masks on every product: random orders outside, and all elements inside can move.

Two additions to zero commute, so an element depends on the order of arrival when two cores or more
add to it, three times or more in all.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

import npu_sim
from npu_sim.tiling import rms_norm_grad as rms_tiling
from tests.cases import every
from tests.reference import embedding_dense_backward as reference
from tests.studies import calls

BIG, TINY = 2.0**15, 2.0**-14
"""Exact in every dtype; BIG + TINY rounds to BIG in fp32."""
SOCS = {"atlas_a2": "Ascend910B1", "atlas_a3": "Ascend910_9391", "atlas_train": "Ascend910A"}

Additions = list[tuple[int, Any]]
"""Core and first term of every addition to one element, core by core in program order."""


class Path(NamedTuple):
    operator: str
    output: str
    call: dict[str, Any]


def embedding(rows: int, *arguments: Any, **more: Any) -> Path:
    call = calls.embedding(rows, *arguments, **{"product": "atlas_a2", **more})
    return Path("embedding_dense_backward", "grad_weight", call)


def rms(*arguments: Any, **more: Any) -> Path:
    return Path("rms_norm_grad", "dgamma", calls.rms_norm(*arguments, **more))


def conv(output: str, *arguments: int, dtype: type = np.float32, **more: Any) -> Path:
    call = calls.conv(*arguments, **more)
    cast = {
        name: value.astype(dtype) if isinstance(value, np.ndarray) else value
        for name, value in call.items()
    }
    return Path("conv_tbc_backward", output, cast)


PATHS = {
    "small dim": embedding(90, 3, 30),
    "small dim, scaled": embedding(90, 3, 30, scale_grad_by_freq=True, padding_idx=4),
    "small dim, fp16": embedding(90, 3, 30, "fp16", product="atlas_a3"),
    "small dim, two rows": embedding(2, 3, 1),
    "sorted": embedding(150, 513, 30),
    "sorted, scaled": embedding(150, 513, 30, scale_grad_by_freq=True, padding_idx=4),
    "sorted, bf16": embedding(150, 520, 30, "bf16", product="atlas_a3"),
    "sorted, flush of 10 rows": embedding(1500, 513, 9, release="8.3"),
    "every row": embedding(90, 3, 40, product="atlas_train"),
    "every row, fp16": embedding(90, 17, 40, "fp16", product="atlas_train"),
    "split N, two rows": rms(2, 40),
    "split N, three rows": rms(3, 40),
    "split N, Atlas inference": rms(90, 40, "fp16", product="atlas_inference"),
    "split D, two rows": rms(2, 6100),
    "split D, groups": rms(1700, 5000),
    "conv, two samples": conv("grad_weight", 16, 2, 4, 4, 1, 0),
    "conv, samples": conv("grad_weight", 12, 8, 5, 6, 2, 1),
    "conv, time": conv("grad_weight", 44, 1, 3, 4, 60, 40),
    "conv, time, two of three": conv("grad_weight", 17, 1, 4, 4, 33, 24),
    "conv, fp16": conv("grad_weight", 44, 1, 3, 4, 60, 40, dtype=np.float16),
    "conv, bf16": conv("grad_weight", 40, 1, 3, 4, 5, 2, dtype=ml_dtypes.bfloat16),
    "bias, two cores": conv("grad_bias", 400, 1, 4, 5, 1, 0, product="atlas_train"),
    "bias, cores": conv("grad_bias", 900, 1, 4, 5, 1, 0, product="atlas_train"),
}
for path in PATHS.values():
    if path.output == "grad_bias":
        path.call["cube_math_type"] = 1


def run(path: Path, order: str = "sequential", seed: int = 0, **changes: Any) -> Any:
    return npu_sim.run(path.operator, core_order=order, seed=seed, **{**path.call, **changes})


def mask_of(path: Path, result: Any) -> np.ndarray:
    """Return the mask in the shape of the output."""
    found, output = result.order_dependent[path.output], result.outputs[path.output]
    flags = found.mask[:, None] if found.axis == "row" else found.mask.reshape(output.shape)
    return np.broadcast_to(flags, output.shape)


def bits(array: np.ndarray) -> np.ndarray:
    """Return the bits, with one pattern for every nan."""
    patterns = array.view({2: np.uint16, 4: np.uint32}[array.itemsize]).copy()
    patterns[np.isnan(array.astype(np.float32))] = np.iinfo(patterns.dtype).max
    return patterns


# --- the additions, from the rules of the kernels ---


def embedding_additions(path: Path) -> Iterator[Additions]:
    call = path.call
    grad, num_weights = call["grad"], call["num_weights"]
    case = reference.planned_case(
        SOCS[call["product"]],
        grad.shape,
        "float32",
        num_weights,
        call.get("padding_idx", -1),
        call.get("scale_grad_by_freq", False),
        False,
    )
    if "release" in call:
        case = replace(case, flush_rows=reference.SORTED_FLUSH_ROWS[call["release"]])
    found: dict[int, Additions] = {row: [] for row in range(num_weights)}
    sent = reference.contributions(grad.astype(np.float32), call["indices"].tolist(), case)
    for part in sent:
        found[part.weight_row].append((part.core, part.rows[0]))
    for row in range(num_weights):
        yield found[row]


def rms_additions(path: Path) -> Additions:
    rows, columns = path.call["x"].shape
    each = run(path).plan.tiling["block_factor"]
    group = 32 if columns > 5000 else each
    return [
        (core, row)
        for core, first in enumerate(range(0, rows, each))
        for row in range(first, min(first + each, rows), group)
    ]


def weight_additions(path: Path) -> Iterator[Additions]:
    call, tiling = path.call, run(path).plan.tiling["gradWeight"]
    out_times, samples, _ = call["grad_output"].shape
    for tap in range(call["weight"].shape[0]):
        additions: Additions = []
        core = 0
        for sample in range(0, samples, tiling["single_samples"]):
            for start in range(0, out_times, tiling["single_reduction"]):
                stop = min(start + tiling["single_reduction"], out_times)
                meets = [
                    time
                    for time in range(start, stop)
                    if 0 <= time + tap - call["pad"] < call["input"].shape[0]
                ]
                additions += [(core, (meets[0], sample))] if meets else []
                core += 1
        yield additions


def bias_additions(path: Path) -> Additions:
    rows = path.call["grad_output"].shape[0]
    return [(core, (row, 0)) for core, row in enumerate(range(0, rows, 256))]


def depends(additions: Additions) -> bool:
    return len({core for core, _ in additions}) > 1 and len(additions) > 2


def spikes(additions: Additions) -> dict[Any, float]:
    """Return terms whose sum is 0 when cores arrive in order, and TINY in reverse order."""
    last = [term for core, term in additions if core == additions[-1][0]]
    (first_core, first), (second_core, second) = additions[:2]
    if len(last) > 1:
        return {first: TINY, last[0]: BIG, last[1]: -BIG}
    if first_core == second_core:
        return {first: BIG, second: TINY, last[0]: -BIG}
    return {first: TINY, second: BIG, last[0]: -BIG}


# --- constructed calls, with the elements that move in them ---


def embedding_calls(path: Path) -> Iterator[tuple[dict[str, Any], np.ndarray]]:
    grad, moving = np.zeros_like(path.call["grad"]), np.zeros(path.call["num_weights"], bool)
    for row, additions in enumerate(embedding_additions(path)):
        if depends(additions):
            moving[row] = True
            for term, value in spikes(additions).items():
                grad[term] = value
    yield {"grad": grad}, np.repeat(moving[:, None], grad.shape[1], axis=1)


def rms_calls(path: Path) -> Iterator[tuple[dict[str, Any], np.ndarray]]:
    additions = rms_additions(path)
    ones = {name: np.ones_like(path.call[name]) for name in ("x", "rstd", "gamma")}
    dy = np.zeros_like(path.call["dy"])
    if depends(additions):
        for term, value in spikes(additions).items():
            dy[term] = value
    yield {**ones, "dy": dy}, np.full(dy.shape[1], depends(additions))


def weight_calls(path: Path) -> Iterator[tuple[dict[str, Any], np.ndarray]]:
    """Yield a call for every tap: a spike reaches other taps too, whose elements do not count."""
    for tap, additions in enumerate(weight_additions(path)):
        grad = np.zeros_like(path.call["grad_output"])
        moving = np.zeros(path.call["weight"].shape, bool)
        if depends(additions):
            moving[tap] = True
            for term, value in spikes(additions).items():
                grad[term] = value
        yield {"grad_output": grad, "input": np.ones_like(path.call["input"])}, moving


def bias_calls(path: Path) -> Iterator[tuple[dict[str, Any], np.ndarray]]:
    additions, grad = bias_additions(path), np.zeros_like(path.call["grad_output"])
    if depends(additions):
        for term, value in spikes(additions).items():
            grad[term] = value
    yield {"grad_output": grad}, np.full(grad.shape[2], depends(additions))


CONSTRUCTED = {"grad_weight": weight_calls, "grad_bias": bias_calls, "dgamma": rms_calls}


def constructed(path: Path) -> Iterator[tuple[dict[str, Any], np.ndarray]]:
    embeds = path.operator == "embedding_dense_backward"
    return embedding_calls(path) if embeds else CONSTRUCTED[path.output](path)


# --- the facts ---


@pytest.mark.parametrize("orders", every(2, [100, 1000]))
@pytest.mark.parametrize("name", every(3, PATHS))
def test_an_element_outside_the_mask_never_moves(name, orders):
    path = PATHS[name]
    wide = {
        key: scattered(value, seed)
        for seed, (key, value) in enumerate(path.call.items())
        if key in ("grad", "dy", "grad_output")
    }
    with np.errstate(all="ignore"):
        first = run(path, **wide)
        outside, expected = ~mask_of(path, first), bits(first.outputs[path.output])
        for seed in range(orders) if outside.any() else ():
            found = bits(run(path, "random", seed, **wide).outputs[path.output])
            assert np.array_equal(found[outside], expected[outside])


def scattered(values: np.ndarray, seed: int) -> np.ndarray:
    """Return values of many magnitudes, with zeros of both signs, infinities and nan."""
    random = np.random.default_rng(seed)
    wide = values.astype(np.float64) * 10.0 ** random.integers(-4, 4, values.shape)
    special = random.random(values.shape) < 0.02
    wide[special] = random.choice([0.0, -0.0, np.inf, -np.inf, np.nan], special.sum())
    return wide.astype(values.dtype)


@pytest.mark.parametrize("name", PATHS)
def test_every_element_inside_the_mask_can_move(name):
    path = PATHS[name]
    moved = np.zeros(run(path).outputs[path.output].shape, bool)
    for changes, expected in constructed(path):
        first, other = (run(path, order, **changes) for order in ("sequential", "reverse"))
        differs = bits(first.outputs[path.output]) != bits(other.outputs[path.output])
        assert differs[expected].all()
        moved |= differs & expected
    assert np.array_equal(moved, mask_of(path, run(path)))


def test_some_paths_have_elements_inside_some_outside_and_some_both():
    masks = [mask_of(path, run(path)) for path in PATHS.values()]
    assert {(bool(mask.any()), bool(mask.all())) for mask in masks} == {
        (True, True),
        (True, False),
        (False, False),
    }


@pytest.mark.parametrize("name", PATHS)
def test_deterministic_computation_leaves_the_mask_empty(name):
    path = PATHS[name]
    result = run(path, deterministic=True)
    assert not mask_of(path, result).any()
    assert all(order.fixed for order in result.plan.order)


@pytest.mark.parametrize("product", ["atlas_a2", "atlas_a3", "atlas_train"])
@pytest.mark.parametrize("dim", [3, 513])
@pytest.mark.parametrize("num_weights", [1, 2])
def test_a_plan_of_an_embedding_allows_for_what_some_indices_do(product, dim, num_weights):
    """The most additions reach a row when all indices are equal."""
    for rows in (1, 2, 3, 4, 30, 97, 200):
        for padding_idx in (-1, 0):
            path = embedding(rows, dim, num_weights, product=product, padding_idx=padding_idx)
            indices = np.full(rows, num_weights - 1, np.int32)
            result = run(path, indices=indices)
            assert result.plan.order[0].fixed != mask_of(path, result).any()


@pytest.mark.parametrize("name", [name for name in PATHS if "grad" not in PATHS[name].call])
def test_a_plan_states_what_the_mask_of_the_run_states(name):
    result = run(PATHS[name])
    for order in result.plan.order:
        assert order.fixed == (result.order_dependent[order.output].count == 0)


@pytest.mark.parametrize(
    ("rows_of_core", "rows", "expected"), [(32, 64, False), (33, 66, True), (33, 34, True)]
)
def test_two_cores_that_add_group_after_group_depend_on_the_order(rows_of_core, rows, expected):
    planned = rms_tiling.Tiling(
        **dict.fromkeys(rms_tiling.Tiling._fields, 0)
        | {
            "tiling_key": rms_tiling.SPLIT_D,
            "block_dim": 2,
            "block_factor": rows_of_core,
            "rows": rows,
        }
    )
    assert rms_tiling.depends_on_arrival(planned) == expected
