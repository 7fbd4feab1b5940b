"""Benchmarks: PyTorch's implementations compute the same results; tables and plots."""

from importlib import import_module
from xml.etree import ElementTree

import numpy as np
import pytest

from tests.benchmarks.scripts import script
from tests.cases import every

bandwidth, cases, hot_loops, measure, operators, peers, plots, results, scaling, small_peers = map(
    script,
    (
        "bandwidth",
        "cases",
        "hot_loops",
        "measure",
        "operators",
        "peers",
        "plots",
        "results",
        "scaling",
        "small_peers",
    ),
)

SHAPES = {
    "embedding": (300, 32, 40),
    "rms_norm": (20, 96),
    "cross_entropy": (24, 50),
    "moe": (16, 3, 40),
    "moe_permute": (16, 3, 40),
    "unpermute": (16, 3, 40),
    "unpermute_grad": (16, 3, 40),
    "swi_glu": (10, 48),
    "swi_glu_grad": (10, 48),
    "rotary": (2, 9, 3, 32),
    "rotary_grad": (2, 9, 3, 32),
    "adam_w": (6, 50),
    "conv_tbc": (9, 4, 16, 24, 3),
}
TOLERANCE = {"fp32": 1e-4, "fp16": 2e-2, "bf16": 1e-1}


SPREADS = {"embedding": "uniform", "unpermute": "routed", "unpermute_grad": "routed"}


def tiny(operator, dtype="fp32"):
    return cases.Case(operator, SHAPES[operator], dtype, SPREADS.get(operator, ""))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("operator", SHAPES)
def test_every_pytorch_implementation_computes_the_same(operator, dtype):
    pytest.importorskip("torch")
    case = tiny(operator, dtype)
    problem = cases.build(case)
    problem.run(out=problem.outs)
    ways = import_module("torch_ways").ways(case, problem)
    assert ways
    for name, way in ways.items():
        for out, tensor in zip(problem.outs, way(), strict=True):
            result = tensor.detach().float().numpy()
            if name == "conv1d backward" and result.ndim == 3:
                # (batch, channels, time), and (out channels, in channels, taps)
                result = (
                    result.transpose(2, 0, 1)
                    if result.shape[0] == case.shape[1]
                    else result.transpose(2, 1, 0)
                )
            expected = out.astype(np.float32)
            assert np.abs(result - expected).max() <= TOLERANCE[dtype] * max(
                1.0, np.abs(expected).max()
            ), name


@pytest.mark.parametrize("library", list(peers.LIBRARIES))
@pytest.mark.parametrize("operator", SHAPES)
def test_compiled_formulas_compute_the_same(operator, library):
    xp = peers.LIBRARIES[library]
    if not xp.installed:
        pytest.skip(f"{library} is not installed")
    case = tiny(operator)
    problem = cases.build(case)
    problem.run(out=problem.outs)
    arrays, formula = peers.formula_of(case, problem, xp)
    for out, expected in zip(problem.outs, formula(*arrays), strict=True):
        assert np.allclose(xp.numpy(expected), out.astype(np.float32), rtol=1e-4, atol=1e-5)


def test_the_column_of_a_failing_compiler_is_empty(monkeypatch, capsys):
    def fail(function):
        raise RuntimeError("no compiler")

    monkeypatch.setattr(peers.TorchLibrary, "installed", True)
    monkeypatch.setattr(peers.TorchLibrary, "array", lambda self, values: values)
    monkeypatch.setattr(
        peers.TorchLibrary, "compiled", lambda self, function: lambda *arrays: fail(function)
    )
    assert peers.peers(tiny("moe"), cases.build(tiny("moe")), ["torch.compile"]) == {}
    assert "torch.compile does not compile" in capsys.readouterr().err


def test_every_small_alternative_has_a_row(monkeypatch):
    monkeypatch.setattr(small_peers, "CALLS", 1)
    row = small_peers.measure_small(tiny("rms_norm"), 1, [])
    assert all(row["microseconds"][name] > 0 for name in small_peers.OURS)
    assert small_peers.small_row(row, []).count(" | ") == operators.head(
        small_peers.columns([])
    ).partition("\n")[0].count(" | ")


@pytest.mark.parametrize(
    ("operator", "as_users"), every(3, [("moe", False), ("moe", True), ("conv_tbc", False)])
)
def test_a_case_is_a_row_and_bars(operator, as_users):
    row = operators.measure(tiny(operator), 1, [], as_users)
    assert row["case"] in operators.row(row)
    assert operators.row(row).count(" | ") == operators.head(operators.COLUMNS).partition("\n")[
        0
    ].count(" | ")
    texts = [
        element.text
        for element in ElementTree.fromstring(plots.bars([row])).iter()
        if element.tag.endswith("text")
    ]
    assert row["case"] in texts


def test_the_best_alternative_is_the_fastest_implementation():
    result = {
        "milliseconds": {"default": 1.0, "a way": 3.0, "another": 2.0, "jax.jit": 1.5},
        "against_torch": {"a way": 3.0, "another": 2.0, "fastest": 2.0},
    }
    assert operators.best_alternative(result) == "jax.jit"
    assert operators.best_alternative({**result, "milliseconds": {}, "against_torch": {}}) is None


def test_every_operator_and_dtype_has_cases():
    names = {case.name for case in cases.CASES}
    assert len(names) == len(cases.CASES)
    assert {case.operator for case in cases.CASES} == set(SHAPES)
    assert {case.dtype for case in cases.CASES} == set(cases.DTYPES)


@pytest.mark.parametrize("operator", SHAPES)
def test_scaling_changes_one_thing_at_a_time(operator):
    family = scaling.FAMILIES[operator]
    points = list(scaling.points(operator, "fp32", 3))
    for point in points:
        places = {"rows": {family.rows_at}, "dim": set(family.dim_at), "threads": set()}[
            point.variable
        ]
        changed = {
            place for place, size in enumerate(point.case.shape) if size != family.shape[place]
        }
        assert changed <= places
        assert point.threads == (point.value if point.variable == "threads" else 3)
    assert [point.value for point in points if point.variable == "threads"] == [1, 2, 3]


def test_the_section_of_a_machine_is_appended_once():
    page = "# Results\n"
    changed = results.with_section(page)
    assert changed.startswith(page + "\n" + results.HEADING)
    assert results.with_section(changed) == changed


def test_the_section_of_a_machine_has_a_place_for_every_part():
    page = results.with_section(results.RESULTS.read_text(encoding="utf-8"))
    for name in [
        "machine",
        *(name for name, part in results.PARTS.items() if part.printed != "too long"),
    ]:
        changed = results.filled(page, name, "NEW\n")
        assert f"<!-- {name} -->\nNEW\n<!-- /{name} -->" in changed
        assert results.filled(changed, name, "OLD") != changed
    with pytest.raises(ValueError, match="no place for another"):
        results.filled(page, "another", "")


def test_slow_work_is_timed_once(monkeypatch):
    monkeypatch.setattr(measure, "SLOW_SECONDS", -1.0)
    assert len(measure.alternate({"slow": lambda: None}, repeats=3, pause=0.0)["slow"]) == 2


def test_an_interrupt_keeps_the_results_so_far():
    measured = []
    with measure.Stoppable() as work:
        for item in measure.each("abc", str):
            measured.append(item)
            if item == "b":
                raise KeyboardInterrupt
    assert work.stopped
    assert measured == ["a", "b"]


def test_curves_are_drawn_for_the_measured_points():
    point = {
        "operator": "moe",
        "variable": "rows",
        "value": 64,
        "milliseconds": 2.0,
        "extra_bytes": 3_000_000,
    }
    drawn = scaling.draw([point, {**point, "value": 128, "milliseconds": 5.0, "extra_bytes": 0}])
    circles = [
        element
        for element in ElementTree.fromstring(drawn).iter()
        if element.tag.endswith("circle")
    ]
    assert len(circles) == 4


@pytest.mark.parametrize("ahead", bandwidth.AHEAD)
@pytest.mark.parametrize("shares", [1, 3])
def test_every_row_is_read_once_in_any_order(ahead, shares):
    rows = bandwidth.aligned(40 * 64).reshape(40, 64)
    sums = np.zeros((shares, 4 * bandwidth.LINE), np.float32)
    bandwidth.read_rows.over(
        shares, shares, rows, np.random.default_rng(0).permutation(40), ahead, sums
    )
    assert sums.sum() == rows.size


def test_loops_are_the_innermost_that_contain_samples():
    texts = [
        "xor %eax,%eax",
        "mov (%rdi),%ecx",
        "add %rcx,%rax",
        "jne 0x11",
        "cmp %eax,%edx",
        "jl 0x10",
        "test %al,%al",
        "jb 0x16",
    ]
    lines = [hot_loops.Line(0x10 + place, text) for place, text in enumerate(texts)]
    samples = hot_loops.collections.Counter({0x11: 30, 0x12: 60, 0x14: 9, 0x17: 1})
    (loop,) = hot_loops.innermost_loops(lines, samples)
    assert [line.text for line in loop.lines] == texts[1:4]
    assert loop.share == 0.9
