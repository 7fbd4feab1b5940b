"""Random trials, a function for each kind: they end in an answer or in an NpuSimError."""

import json
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import npu_sim
from benchmarks.hostile.race import LAYOUTS, guarded
from npu_sim.cores import config_directory, load_profile, release_names, shipped_products
from npu_sim.files.tensors import read_tensor
from npu_sim.framework.arguments import Number, Switch, Word
from npu_sim.framework.inference import call_with
from npu_sim.framework.target import CORE_ORDERS
from npu_sim.operators.loading import load_operator
from tests.lines import check_line
from tests.small_calls import NAMES, same_bits, small_call

Trial = Callable[[np.random.Generator], bool]
"""Runs with random values; returns True for an answer, raises NpuSimError for a refusal. Any other
exception is a failure."""
PROFILE = (config_directory() / "atlas_a2.yaml").read_bytes()
INVALID = (
    None,
    -1,
    0,
    1.5,
    float("nan"),
    2**31,
    2**63,
    10**30,
    "",
    "x",
    "4x4:fp32",
    b"x",
    [],
    {},
    (1, 2),
    True,
    np.int8(3),
    np.float16(1),
)
EXTREMES = (np.nan, np.inf, -np.inf, -0.0, 6e-8, 1e-45, 65504.0, 3e38)


def draw(rng: np.random.Generator, options: Any) -> Any:
    return options[int(rng.integers(len(options)))]


def size(rng: np.random.Generator, maximum: int) -> int:
    """Draw a number of any order of magnitude up to ``maximum``, often next to a power of two."""
    bits = rng.uniform(0, math.log2(maximum))
    return max(
        int(2 ** (bits if rng.random() < 0.5 else round(bits))) + int(rng.integers(-1, 2)), 0
    )


def values_of(rng: np.random.Generator, operator: str, maximum: int) -> dict[str, Any]:
    values = load_operator(operator).defaults()
    for axis in load_operator(operator).axes:
        if isinstance(axis, Number):
            values[axis.name] = min(max(size(rng, maximum), axis.low), axis.high)
        elif isinstance(axis, Word):
            values[axis.name] = draw(rng, axis.words)
        elif isinstance(axis, Switch):
            values[axis.name] = bool(rng.integers(2))
    return values


def device_of(rng: np.random.Generator, operator: str) -> dict[str, Any]:
    """Draw a product, mostly one with the operator, one of its SoCs and a release."""
    profile = load_profile(draw(rng, shipped_products()))
    while operator not in profile.product.operators and rng.random() < 0.9:
        profile = load_profile(draw(rng, shipped_products()))
    return {
        "product": profile,
        "soc": draw(rng, list(profile.product.socs)),
        "release": draw(rng, release_names()),
    }


def plan(rng: np.random.Generator) -> bool:
    """Plan a call of any size on any SoC, sometimes with an invalid argument."""
    operator = draw(rng, NAMES)
    declared = load_operator(operator)
    options = {
        "deterministic": bool(rng.integers(2)),
        "limits": draw(rng, ("documented", "hardware")),
    }
    call = call_with(declared, values_of(rng, operator, 1 << int(rng.integers(3, 35))))
    if rng.random() < 0.1:
        call[draw(rng, [argument.name for argument in declared.arguments])] = draw(rng, INVALID)
    planned = npu_sim.plan(operator, **device_of(rng, operator), **options, **call)
    json.dumps(planned.as_dict())
    assert 0 <= planned.block_dim <= planned.cores_available
    assert {
        f"hardware_limit_{memory.name.lower()}" for memory in planned.memories if memory.overflows
    } <= {caveat.code for caveat in planned.caveats}
    assert all(0 <= begin <= end for core in planned.cores for begin, end in core.ranges.values())
    assert 0 <= planned.workspace.kernel_bytes <= planned.workspace.total_bytes
    if rng.random() < 0.02:
        assert planned.title in str(planned)
    return True


def run(rng: np.random.Generator) -> bool:
    """Compare the bits of a small call on plain arrays and on guarded arrays of any layout."""
    operator = draw(rng, NAMES)
    values = {
        name: value for name, value in values_of(rng, operator, 40).items() if rng.random() < 0.7
    }
    if rng.random() < 0.05:
        values[
            draw(
                rng,
                [axis.name for axis in load_operator(operator).axes if isinstance(axis, Number)],
            )
        ] = size(rng, 3000)
    options = {
        "deterministic": bool(rng.integers(2)),
        "core_order": draw(rng, CORE_ORDERS),
        "seed": int(rng.integers(100)),
    }
    options |= device_of(rng, operator)
    call = disturbed(rng, small_call(operator, int(rng.integers(1 << 30)), **values))
    expected = npu_sim.run(operator, **call, **options).outputs

    def relocated(array: np.ndarray, written: bool) -> np.ndarray:
        return guarded(array, bool(rng.integers(2)), draw(rng, LAYOUTS), written)

    inside = {
        name: relocated(value, False) if isinstance(value, np.ndarray) else value
        for name, value in call.items()
    }
    outs = tuple(relocated(array, True) for array in expected.values())
    npu_sim.run(operator, **inside, **options, out=outs)
    for name, out in zip(expected, outs, strict=True):
        assert same_bits(expected[name], out), f"{operator} {name} {values} {options}"
    return True


def disturbed(rng: np.random.Generator, call: dict[str, Any]) -> dict[str, Any]:
    """Replace some addresses by random integers, and some numbers by extreme values."""
    for array in call.values():
        if not isinstance(array, np.ndarray) or not array.size or rng.random() > 0.1:
            continue
        places = rng.integers(array.size, size=3)
        if array.dtype.kind in "iu":
            array.reshape(-1)[places] = rng.integers(
                np.iinfo(array.dtype).min, np.iinfo(array.dtype).max, 3, array.dtype, endpoint=True
            )
        else:
            with np.errstate(over="ignore"):
                array.reshape(-1)[places] = np.array([draw(rng, EXTREMES) for _ in places]).astype(
                    array.dtype
                )
    return call


def damaged(rng: np.random.Generator, content: bytes) -> bytes:
    data = bytearray(content)
    for _ in range(int(rng.integers(1, 6))):
        place = int(rng.integers(len(data) + 1))
        match int(rng.integers(4)):
            case 0 if place < len(data):
                data[place] ^= 1 << int(rng.integers(8))
            case 1:
                del data[place : place + int(rng.integers(1, 40))]
            case 2:
                data[place:place] = draw(
                    rng,
                    (
                        b"[",
                        b"{",
                        b"&a ",
                        b"*a",
                        b"!!x ",
                        b"- ",
                        b"\n",
                        b"\0",
                        b"\xff",
                        b"9" * 30,
                        b"'",
                        b": ",
                    ),
                )
            case _:
                other = int(rng.integers(len(data) + 1))
                data[place:place] = data[other : other + 50]
    return bytes(data)


def profile(rng: np.random.Generator) -> bool:
    """Load a damaged profile, and plan with it if it is valid."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "own.yaml"
        path.write_bytes(damaged(rng, PROFILE))
        loaded = npu_sim.load_profile(path)
    npu_sim.plan(draw(rng, NAMES), product=loaded, **small_call(draw(rng, NAMES)))
    return True


def tensor(rng: np.random.Generator) -> bool:
    """Read a damaged array."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.npy"
        np.save(path, np.arange(6, dtype=draw(rng, ("f2", "f4", "i4", "i8", "u2"))).reshape(2, 3))
        path.write_bytes(damaged(rng, path.read_bytes()))
        read_tensor("x", str(path) + draw(rng, ("", ":bf16", ":fp32")))
    return True


LINE = (
    b'{"op": "rms_norm", "product": "atlas_a2", '
    b'"inputs": {"x": "4x128:fp32", "gamma": "128:fp32"}, "expect": {"status": 0}}'
)


def line(rng: np.random.Generator) -> bool:
    """Check a damaged line of calls; any outcome is valid."""
    checked = check_line(damaged(rng, LINE))
    json.dumps(checked.as_dict())
    return checked.outcome == "runs"


CALLS: dict[str, Trial] = {
    "plan": plan,
    "run": run,
    "profile": profile,
    "tensor": tensor,
    "line": line,
}
