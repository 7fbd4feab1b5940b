"""What strangers might do, drawn at random: one function a kind of trial, each ends in an answer or in an NpuSimError."""

import json
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import npu_sim
from npu_sim import NpuSimError
from npu_sim.cores import config_directory, load_profile, shipped_products
from npu_sim.files.tensors import read_tensor
from npu_sim.operators.contract.axes import Number, Switch, Word
from npu_sim.questions.preflight import check_line
from npu_sim.registry import load_operator
from tests.hostile.calls import NAMES, same_bits, small_call
from tests.hostile.guarded import guarded

Trial = Callable[[np.random.Generator], bool]
"""Does something with drawn values; says whether it was answered rather than refused. Any other exception is a find."""
PROFILE = (config_directory() / "atlas_a2.yaml").read_bytes()
STRANGE = (None, -1, 0, 1.5, float("nan"), 2**31, 2**63, 10**30, "", "x", "4x4:fp32", b"x", [], {}, (1, 2), True, np.int8(3), np.float16(1))


def draw(rng: np.random.Generator, options: Any) -> Any:
    return options[int(rng.integers(len(options)))]


def size(rng: np.random.Generator, most: int) -> int:
    """A number of any order of magnitude up to ``most``, often beside a power of two."""
    bits = rng.uniform(0, math.log2(most))
    return max(int(2 ** (bits if rng.random() < 0.5 else round(bits))) + int(rng.integers(-1, 2)), 0)


def values_of(rng: np.random.Generator, operator: str, most: int) -> dict[str, Any]:
    values = load_operator(operator).defaults()
    for axis in load_operator(operator).axes:
        if isinstance(axis, Number):
            values[axis.name] = min(max(size(rng, most), axis.low), axis.high)
        elif isinstance(axis, Word):
            values[axis.name] = draw(rng, axis.words)
        elif isinstance(axis, Switch):
            values[axis.name] = bool(rng.integers(2))
    return values


def plan(rng: np.random.Generator) -> bool:
    """Plan a call of any size on any SoC, now and then with a strange argument."""
    operator = draw(rng, NAMES)
    declared = load_operator(operator)
    profile = load_profile(draw(rng, shipped_products()))
    soc = draw(rng, list(profile.product.socs))
    options = {"product": profile, "soc": soc, "deterministic": bool(rng.integers(2)), "limits": draw(rng, ("documented", "hardware"))}
    call = declared.call(values_of(rng, operator, 1 << 34))
    if rng.random() < 0.2:
        call[draw(rng, [one.name for one in declared.arguments])] = draw(rng, STRANGE)
    made = npu_sim.plan(operator, **options, **call)
    json.dumps(made.as_dict())
    assert made.block_dim >= 0
    assert made.workspace.total_bytes >= 0
    return True


def run(rng: np.random.Generator) -> bool:
    """Run a small call on arrays between forbidden pages, and once more on plain ones: the same bits."""
    operator = draw(rng, NAMES)
    values = {name: value for name, value in values_of(rng, operator, 40).items() if rng.random() < 0.7}
    options = {"deterministic": bool(rng.integers(2)), "core_order": draw(rng, ("sequential", "reverse", "round_robin", "random"))}
    call = small_call(operator, int(rng.integers(1 << 30)), **values)
    at_end = bool(rng.integers(2))
    expected = npu_sim.run(operator, **call, **options).outputs
    inside = {name: guarded(value, at_end) if isinstance(value, np.ndarray) else value for name, value in call.items()}
    outs = tuple(guarded(array, at_end) for array in expected.values())
    npu_sim.run(operator, **inside, **options, out=outs)
    for name, out in zip(expected, outs, strict=True):
        assert same_bits(expected[name], out), f"{operator} {name} {values} {options}"
    return True


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
                data[place:place] = draw(rng, (b"[", b"{", b"&a ", b"*a", b"!!x ", b"- ", b"\n", b"\0", b"\xff", b"9" * 30, b"'", b": "))
            case _:
                other = int(rng.integers(len(data) + 1))
                data[place:place] = data[other : other + 50]
    return bytes(data)


def profile(rng: np.random.Generator) -> bool:
    """Load a damaged profile, and plan with it when it is one."""
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


LINE = b'{"op": "rms_norm", "product": "atlas_a2", "inputs": {"x": "4x128:fp32", "gamma": "128:fp32"}, "expect": {"status": 0}}'


def line(rng: np.random.Generator) -> bool:
    """Check a damaged line of calls: that ends in an outcome, whatever it is."""
    checked = check_line(damaged(rng, LINE))
    json.dumps(checked.as_dict())
    return checked.outcome == "runs"


TRIALS: dict[str, Trial] = {"plan": plan, "run": run, "profile": profile, "tensor": tensor, "line": line}


def attempt(trial: Trial, seed: int) -> bool:
    """Carry out one trial; a refusal is an answer as well."""
    try:
        return trial(np.random.default_rng(seed))
    except NpuSimError:
        return False
