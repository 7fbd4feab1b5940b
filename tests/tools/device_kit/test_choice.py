"""The calls of a kit: every path that a sweep meets, few and small; and the script's Python."""

import ast
from pathlib import Path

import numpy as np
import pytest

from npu_sim.cores import load_profile
from npu_sim.framework.arguments import Number
from npu_sim.operators.loading import load_operator
from npu_sim.sweeps.runner import sweep
from npu_sim.tools.device_kit import choice, run_on_device
from npu_sim.tools.device_kit.choice import chosen_calls, described, reachable
from npu_sim.tools.device_kit.run_on_device import CALLS

SOC, RELEASE = "Ascend910B3", "8.5"
SWEPT = 250_000
SEED = 20261124
TELLING = ("status", "tiling_key", "kernel", "route", "compute")
COUNTS = ("is_double_buffer", "hidden_pieces", "column_loop", "align_columns")
"""Columns of sweeps by which the planned calls are chosen; of counts, whether 0, 1 or more."""


@pytest.fixture(scope="module")
def profile():
    return load_profile(None, SOC, RELEASE)


@pytest.fixture(scope="module")
def chosen(profile):
    return chosen_calls(profile, lambda stage, fraction: None)


def paths_of(calls):
    """Return the paths on which a kernel runs."""
    return {path for call in calls for path in call.paths}


@pytest.mark.long
def test_a_kit_is_small(chosen):
    assert len(chosen) <= 280
    assert sum(call.bytes for call in chosen) <= 64 << 20
    assert {call.operator.name for call in chosen} == set(CALLS)
    assert {call.special for call in chosen} == {False, True}


def grid_of(name, operator):
    """Return the grid of a sweep: sizes of cos agree with those of x only if they are few."""
    how, largest = CALLS[name], 131072 if len(operator.sizes) < 5 else 4096
    grid = {"soc": [SOC], "release": [RELEASE], "deterministic": [False, True]}
    for axis in operator.axes:
        if not isinstance(axis, Number) or axis.name in how.reach:
            grid[axis.name] = [*reachable(operator, axis)]
        elif how.broadcast:
            grid[axis.name] = [1, 3, 8, 20, 64, 100, 200, 256, 320]
        else:
            grid[axis.name] = f"{max(axis.low, 0)}..{min(axis.high, largest)}:log"
    return grid


@pytest.mark.long
@pytest.mark.parametrize("name", CALLS)
def test_no_path_of_a_large_sweep_is_left_out(name, profile, chosen):
    """Calls of every group of equal records of a large sweep are planned."""
    operator = load_operator(name).on(profile)
    records = sweep(name, grid_of(name, operator), sample=SWEPT, seed=SEED)
    reached = np.ones(len(records), bool)
    for axis, other in CALLS[name].equal.items():
        reached &= records[axis] == records[other]
    known = records.dtype.names
    classes = [records[name] for name in TELLING if name in known]
    classes += [records[name].clip(max=2) for name in COUNTS if name in known]
    groups = np.unique(np.stack(classes), axis=1, return_inverse=True)[1].reshape(-1)
    met = []
    for group in np.unique(groups[reached]):
        rows = np.flatnonzero(reached & (groups == group))
        sizes = sum(np.log2(np.maximum(records[axis.name][rows], 1)) for axis in operator.sizes)
        for row in rows[np.argsort(sizes)[:: max(1, len(rows) // 200)]]:
            call = described(operator, records.space.call_at(int(row))[1], profile)
            if call is not None and call.bytes <= choice.MOST_BYTES:
                met.append(call)
    assert paths_of(met)
    assert not paths_of(met) - paths_of(chosen)


@pytest.mark.long
def test_every_dtype_is_there(profile, chosen):
    for name in CALLS:
        operator = load_operator(name).on(profile)
        calls = [call for call in chosen if call.operator.name == name and call.paths]
        for axis in operator.dtype_axes:
            assert {call.values[axis.name] for call in calls} == {*reachable(operator, axis)}, name


def test_a_kit_without_room_has_all_paths_and_nothing_else(profile, monkeypatch):
    monkeypatch.setattr(choice, "CALLS", {"rms_norm": CALLS["rms_norm"]})
    monkeypatch.setattr(choice, "DRAWN", 1 << 12)
    whole = chosen_calls(profile, lambda stage, fraction: None)
    monkeypatch.setattr(choice, "MOST_CALLS", 1)
    least = chosen_calls(profile, lambda stage, fraction: None)
    assert len(least) < len(whole)
    assert paths_of(least) == paths_of(whole)
    assert all(call.paths for call in least)


def test_calls_at_thresholds_are_left_out_first(profile, monkeypatch):
    monkeypatch.setattr(choice, "CALLS", {"rms_norm": CALLS["rms_norm"]})
    monkeypatch.setattr(choice, "DRAWN", 1 << 12)
    whole = chosen_calls(profile, lambda stage, fraction: None)
    edges = [call for call in whole if any(feature[1] == "edge" for feature in call.features)]
    assert edges
    monkeypatch.setattr(choice, "MOST_CALLS", len(whole) - len(edges))
    fewer = chosen_calls(profile, lambda stage, fraction: None)
    assert fewer == [call for call in whole if call not in edges]


def test_the_script_is_python_3_8():
    source = Path(run_on_device.__file__).read_text(encoding="utf-8")
    tree = ast.parse(source, feature_version=(3, 8))
    newer = ("removeprefix", "removesuffix", "match_args", "zip_strict", "bit_count", "pairwise")
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not used & {*newer}
    strict = [
        word.arg
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for word in node.keywords
        if word.arg in ("strict", "root_dir", "delete_on_close")
    ]
    assert strict == []
    imported = {
        alias.name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    standard = {"argparse", "glob", "hashlib", "json", "os", "shutil", "sys", "tempfile", "time"}
    assert imported == {*standard, "numpy", "torch", "torch_npu"}
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
