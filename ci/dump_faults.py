"""Plant faults in pairs of dumps, and count which are found and named; healthy pairs are quiet.

    PYTHONPATH=. python ci/dump_faults.py
    PYTHONPATH=. python ci/dump_faults.py --mutate 20000

The second line changes so many entries of ``dump.json`` to what msprobe does not write; reading
them must neither fail nor take long.

Every pair is a training step of an embedding, a normalisation and a permutation, whose gradients
depend on timing, and of functions that npu_sim does not model. The second dump of a pair differs
by the timing of cores, or by one fault. A third of the faults lie behind a difference that timing
explains, a third in gradients of parameters alone, and some dumps have an unreadable entry.
"""

import copy
import json
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import npu_sim
from npu_sim.tools.dumps.reader import DumpReading
from tests.studies import calls
from tests.tools.dumps.msprobe import Writer

DEVICE = {"soc": "Ascend910B1", "release": "9.1"}
TARGET = DEVICE | {"deterministic": False}
Fault = Callable[[np.ndarray], np.ndarray]


def scaled(factor: float) -> Fault:
    """Return a fault that scales a result."""
    return lambda values: values * np.float32(factor)


def replaced(rows: slice, number: float) -> Fault:
    """Return a fault that replaces rows by a number."""

    def change(values: np.ndarray) -> np.ndarray:
        changed = values.copy()
        changed[rows] = number
        return changed

    return change


def flipped(values: np.ndarray) -> np.ndarray:
    """Flip a high bit of one element."""
    changed = np.ascontiguousarray(values).copy()
    changed.view(np.uint32).reshape(-1)[3] ^= 1 << 22
    return changed


def shifted(values: np.ndarray) -> np.ndarray:
    """Exchange two rows."""
    return np.roll(values, 1, axis=0)


FAULTS: dict[str, Fault] = {
    "scaled by 1.02": scaled(1.02),
    "scaled by 1.5": scaled(1.5),
    "scaled by 5": scaled(5),
    "halved": scaled(0.5),
    "rows of 1e6": replaced(slice(1, 3), 1e6),
    "rows of 0": replaced(slice(1, 3), 0.0),
    "a flipped bit": flipped,
    "rows shifted": shifted,
}


def write(folder: Path, task: str, seed: int, faults: dict[str, Fault]) -> None:
    """Write a step; ``faults`` change results by the name of their entry."""

    def result(entry: str, values: np.ndarray) -> np.ndarray:
        found = faults.get(entry)
        return values if found is None else found(values)

    def run(operator: str, call: dict) -> dict:
        return npu_sim.run(operator, core_order="random", seed=seed, **call, **TARGET).outputs

    writer = Writer(folder, task)
    call = calls.embedding(400, 16, 24, used_weights=20)
    weight = np.ones((24, 16), call["grad"].dtype)
    writer.call(
        "Functional.embedding.0",
        (call["indices"], weight),
        (weight[call["indices"]],),
        (call["grad"],),
        (result("embedding", run("embedding_dense_backward", call)["grad_weight"]),),
    )
    call = calls.rms_norm(130, 64, "fp32")
    forward = run("rms_norm", {"x": call["x"], "gamma": call["gamma"]})
    call["rstd"] = forward["rstd"]
    gradient = run("rms_norm_grad", call)
    writer.call(
        "NPU.npu_rms_norm.0",
        (call["x"], call["gamma"], 1e-6),
        (result("rms_norm", forward["y"]), forward["rstd"]),
        (call["dy"], None),
        (result("dx", gradient["dx"]), result("dgamma", gradient["dgamma"])),
    )
    call = calls.permutation(20, 4, 16)
    permuted = run("moe_token_permute", call)
    writer.call(
        "NPU.npu_moe_token_permute.0",
        (call["tokens"], call["indices"]),
        (result("permute", permuted["permuted_tokens"]), permuted["sorted_indices"]),
    )
    values = np.linspace(-1, 1, 60, dtype=np.float32).reshape(6, 10)
    writer.call("Torch.cos.0", (values,), (result("cos", np.cos(values)),))
    entry = "Module.head.Linear"
    writer.data |= {
        f"{entry}.forward.0": {
            "input_args": [writer.value(f"{entry}.forward.0.input.0", values)],
            "output": [],
            "parameters": {"weight": writer.value(f"{entry}.weight", values)},
        },
        f"{entry}.parameters_grad.0": {
            "weight": [writer.value(f"{entry}.grad", result("linear", values))]
        },
    }
    writer.close()


ENTRIES = {
    "embedding": "Functional.embedding.0.backward",
    "dx": "NPU.npu_rms_norm.0.backward",
    "dgamma": "NPU.npu_rms_norm.0.backward",
    "rms_norm": "NPU.npu_rms_norm.0.forward",
    "permute": "NPU.npu_moe_token_permute.0.forward",
    "cos": "Torch.cos.0.forward",
    "linear": "Module.head.Linear.parameters_grad.0",
}
"""Where a fault is planted: the entry that must be named."""


def planted() -> Iterator[tuple[str, str, str, int, bool]]:
    """Yield 30 faults: place, fault, task, seed of the second dump, whether a file is broken."""
    faults = list(FAULTS)
    for number in range(10):  # behind a difference that timing explains
        place = ("dgamma", "cos", "permute", "dx", "rms_norm")[number % 5]
        yield place, faults[number % len(faults)], "tensor", 2, False
    for number in range(8):  # only in the gradients of parameters
        task = "statistics" if number < 4 else "tensor"  # statistics do not show every fault
        yield "linear", faults[number], task, 1 + number % 2, False
    for number in range(8):  # one side unreadable
        place = ("embedding", "cos", "permute", "dgamma")[number % 4]
        yield place, faults[(number * 3) % 5], "tensor", 1 + number % 2, True
    yield "embedding", "rows of 1e6", "statistics", 2, False
    yield "embedding", "scaled by 5", "tensor", 2, False
    yield "permute", "halved", "md5", 2, False
    yield "cos", "a flipped bit", "md5", 2, False


def break_file(folder: Path, place: str) -> None:
    """Truncate the file of the result of an entry; its statistics remain."""
    entry = ENTRIES[place]
    for path in (folder / "dump_tensor_data").glob(f"{entry}.output*.npy"):
        path.write_bytes(path.read_bytes()[:70])


def healthy() -> Iterator[tuple[str, str, int]]:
    """Yield 30 healthy pairs: tasks of both dumps, seed of the second."""
    tasks = ("tensor", "statistics", "md5")
    for number in range(30):
        yield tasks[number % 3], tasks[(number // 3) % 3], 1 + number // 9


def alarms(reading: DumpReading) -> set[str]:
    """Return the entries that a reading names as wrong: impossible, or not put down to timing."""
    wrong = {call.entry for call in (*reading.calls, *reading.other_calls) if call.impossible}
    unproved = {
        found.entry
        for found in reading.differences
        if not found.can_differ and not found.reason.startswith("timing may")
    }
    return wrong | unproved


ODD = (
    *(None, True, -1, 2**63, 10**401, 1.5, float("inf"), float("nan"), "", "x", "NaN", "\ud800"),
    *([], [[]], {}, [1, [2, [3]]], {"a": {"b": [1]}}, {"type": "int", "value": "3"}),
    {"type": "torch.Size", "value": [3, 4]},
    {"type": "torch.Tensor"},
    {"type": "torch.Tensor", "shape": [3, 4], "dtype": "torch.float32", "Max": 1.0, "Min": -1},
    {"type": "torch.Tensor", "shape": [], "dtype": "torch.int64", "Max": float("nan")},
    {"type": "torch.Tensor", "shape": [2**40, 3], "dtype": "BFloat16"},
    {"type": "torch.Tensor", "shape": [3] * 70, "dtype": "torch.float32"},
)
"""Values that stand nowhere, or elsewhere, in a dump."""
KEYS = ("shape", "dtype", "Max", "Norm", "md5", "data_name", "value", "type", "padding_idx")
ENTRIES_TOGETHER = 12
"""Changed entries in one dump."""


def places_in(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the keys and positions that lead to every value in a value."""
    keys = value if isinstance(value, dict) else range(len(value) if type(value) is list else 0)
    for key in keys:
        yield (*place, key)
        yield from places_in(value[key], (*place, key))


def mutated(entry: Any, draw: random.Random) -> Any:
    """Return an entry with a few values replaced, left out or added."""
    changed = copy.deepcopy(entry)
    for _ in range(draw.choice((1, 1, 2, 4))):
        *path, last = draw.choice([*places_in(changed), (None,)])
        if last is None:
            continue
        holder = changed
        for key in path:
            holder = holder[key]
        how = draw.random()
        if how < 0.1:
            del holder[last]
        elif how < 0.2 and isinstance(holder, dict):
            holder[draw.choice(KEYS)] = copy.deepcopy(draw.choice(ODD))
        else:
            holder[last] = copy.deepcopy(draw.choice(ODD))
    return changed


def mutate(entries: int, seed: int = 0) -> int:
    """Read dumps with changed entries; return how many could not be read or took a minute."""
    draw, failures = random.Random(seed), 0
    with tempfile.TemporaryDirectory() as temporary:
        first, second = Path(temporary, "a"), Path(temporary, "b")
        write(first, "statistics", 1, {})
        write(second, "statistics", 1, {})
        document = json.loads((first / "dump.json").read_text("utf-8"))
        for _ in range(-(-entries // ENTRIES_TOGETHER)):
            data = dict(document["data"])
            for name in draw.choices(list(data), k=ENTRIES_TOGETHER):
                data[name] = mutated(data[name], draw)
            (first / "dump.json").write_text(json.dumps(document | {"data": data}), "utf-8")
            begin = time.monotonic()
            try:
                reading = npu_sim.read_dump(first, against=second)
                json.dumps(reading.as_dict())
                str(reading)
            except Exception:  # what it counts
                traceback.print_exc()
                failures += 1
            failures += time.monotonic() - begin > 60
    print(f"{entries} changed entries: {failures} failures")
    return failures


def main() -> int:
    """Print what was not found and what was blamed wrongly; return the number of both."""
    failures = 0
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        for number, (place, fault, task, seed, broken) in enumerate(planted()):
            first, second = (root / f"fault{number}{side}" for side in "ab")
            write(first, task, 1, {})
            write(second, task, seed, {place: FAULTS[fault]})
            if broken:
                break_file(second, place)
            reading = npu_sim.read_dump(first, against=second, **TARGET)
            named = alarms(reading)
            if named != {ENTRIES[place]}:
                failures += 1
                print(f"fault {number}: {place} {fault}, {task}, seed {seed}: named {named}")
                print(json.dumps([one.model_dump() for one in reading.differences], indent=1))
        for number, (task, other, seed) in enumerate(healthy()):
            first, second = (root / f"healthy{number}{side}" for side in "ab")
            write(first, task, 1, {})
            write(second, other, seed, {})
            named = alarms(npu_sim.read_dump(first, against=second, **TARGET))
            if named:
                failures += 1
                print(f"healthy {number}: {task} against {other}, seed {seed}: named {named}")
    print(f"30 faults, 30 healthy pairs: {failures} wrong answers")
    return failures


if __name__ == "__main__":
    wanted = int(sys.argv[2]) if sys.argv[1:2] == ["--mutate"] else 0
    sys.exit(min(1, mutate(wanted) if wanted else main()))
