"""Benchmarks: peers compute the same results; tables and plots."""

import json
from xml.etree import ElementTree

import numpy as np
import pytest

from tests.benchmarks.scripts import script
from tests.small_calls import NAMES

bandwidth, cases, hot_loops, measure, operators, peers, results, scaling, torch_ways = map(
    script,
    (
        "bandwidth",
        "cases",
        "hot_loops",
        "measure",
        "operators",
        "peers",
        "results",
        "scaling",
        "torch_ways",
    ),
)
OPERATORS = tuple(dict.fromkeys(case.operator for case in cases.CASES))
SMALL = {
    "embedding_dense_backward": {"rows": 300, "dim": 32, "num_weights": 40},
    "conv_tbc_backward": {"T": 9, "B": 4, "Cin": 16, "Cout": 24, "K": 3, "pad": 1},
}


def tiny(operator, dtype="fp32"):
    """Return the smallest case of an operator."""
    case = next(case for case in cases.CASES if case.operator == operator)
    return case._replace(sizes=SMALL.get(operator, case.sizes), dtype=dtype)


def test_every_operator_has_cases_of_every_size_and_dtype():
    assert set(OPERATORS) == set(NAMES)
    assert len({case.name for case in cases.CASES}) == len(cases.CASES)
    for operator in OPERATORS:
        found = {(case.size_class, case.dtype) for case in cases.CASES if case.operator == operator}
        sizes = set(cases.CLASSES) - {"call"}
        assert found == {("call", "fp32")} | {
            (one, dtype) for one in sizes for dtype in cases.DTYPES
        }


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["rms_norm"], {"rms_norm"}),
        (["norm"], {"rms_norm", "rms_norm_grad", "add_rms_norm"}),
        (["norm", "col=16384"], {"rms_norm_grad"}),
        (["nothing"], set()),
    ],
)
def test_words_select_operators_and_sizes(words, expected):
    assert {case.operator for case in cases.select(words)} == expected


def test_rows_are_addressed_as_the_case_says():
    uniform = cases.Case(
        "embedding_dense_backward", {"rows": 4000, "dim": 8, "num_weights": 40}, "fp32", "uniform"
    )
    counts = np.bincount(cases.build(uniform).inputs["indices"])
    assert counts.max() < 2 * counts.min()
    routed = tiny("moe_token_unpermute")
    places = cases.build(routed).inputs["sorted_indices"]
    assert sorted(places) == list(range(places.size))
    assert (np.diff(np.sort(places.reshape(-1, routed.sizes["num_topk"]), axis=1)) > 1).any()


@pytest.mark.parametrize("dtype", cases.DTYPES)
@pytest.mark.parametrize("operator", OPERATORS)
def test_every_pytorch_implementation_computes_the_same(operator, dtype):
    pytest.importorskip("torch")
    case = tiny(operator, dtype)
    problem = cases.build(case)
    found = torch_ways.ways(case, problem)
    assert found
    for name, way in found.items():
        error = operators.relative_error(problem.outs, peers.as_arrays(way()))
        assert error <= operators.TOLERANCE[dtype], name


@pytest.mark.parametrize("library", list(peers.LIBRARIES))
@pytest.mark.parametrize("operator", OPERATORS)
def test_compiled_formulas_compute_the_same(operator, library):
    xp = peers.LIBRARIES[library]
    if not xp.installed:
        pytest.skip(f"{library} is not installed")
    case = tiny(operator)
    problem = cases.build(case)
    arrays, formula = peers.formula_of(case, problem, xp)
    found = peers.as_arrays(formula(*arrays))
    assert operators.relative_error(problem.outs, found) <= operators.TOLERANCE["fp32"]


@pytest.mark.parametrize(
    ("found", "error"),
    [
        ([1.0, 2.0, 2.0], 0.0),
        ([1.0, 2.0, 2.3], 0.1),
        ([1.0, 2.0, np.nan], np.inf),
        ([1.0, 2.0], np.inf),
        (None, 0.0),
    ],
)
def test_the_error_of_a_peer_is_relative(found, error):
    expected = [np.array([1.0, 2.0, 2.0], np.float32)]
    theirs = [None if found is None else np.array(found, np.float32)]
    assert operators.relative_error(expected, theirs) == pytest.approx(error, rel=1e-5)


def test_peers_that_fail_compute_something_else_or_are_slow_are_left_out(monkeypatch):
    case = tiny("swi_glu")
    problem = cases.build(case)

    def fails():
        raise RuntimeError("no compiler")

    def slow():
        return problem.outs

    rivals = {
        "fails": fails,
        "wrong": lambda: (problem.outs[0] + 1,),
        "slow": slow,
        "good": lambda: problem.outs,
    }
    monkeypatch.setattr(operators, "timed", lambda work: (3.0 if work is slow else 0.01, work()))
    found = set()
    for word in ("takes", "is"):  # a slow peer is not called again
        kept, left_out = operators.checked(case, problem, rivals, found)
        assert list(kept) == ["good"]
        assert {name: why.split()[0] for name, why in left_out.items()} == {
            "fails": "fails:",
            "wrong": "computes",
            "slow": word,
        }
    assert found == {("swi_glu", case.dtype, "slow")}


@pytest.mark.parametrize("operator", ["rms_norm", "conv_tbc_backward"])
def test_a_case_is_a_row_for_every_number_of_threads(operator):
    case = tiny(operator)._replace(size_class="cache")
    found = list(operators.measure(case, [1, measure.machine()["threads"]], 2, [], set()))
    assert [one["threads"] for one in found] == [1, measure.machine()["threads"]]
    printed = operators.table(found).splitlines()
    assert [line.count(" | ") for line in printed[2:]] == [printed[0].count(" | ")] * 2
    assert all(one["milliseconds"][way] > 0 for one in found for way in operators.OURS)
    assert not json.loads(operators.as_json(found, False))["complete"]


def result(name, **ratios):
    """Return a result in which the only peer has these quartiles, by our way."""
    return {
        "case": name,
        "threads": 1,
        "best_peer": "peer",
        "milliseconds": {"into": 1.0, "new": 1.0, "peer": 1.0},
        "ratios": {way: {"peer": quartiles} for way, quartiles in ratios.items()},
        "limit": "copy",
        "of_limit": 0.5,
        "left_out": {},
    }


def test_cases_where_a_peer_is_ahead_beyond_the_spread_are_on_top():
    found = [
        result("ours", into=[1.5, 1.6, 1.7], new=[1.2, 1.3, 1.4]),
        result("behind", into=[1.1, 1.2, 1.3], new=[0.8, 0.9, 0.95]),
        result("level", into=[0.8, 0.9, 1.1], new=[1.1, 1.2, 1.3]),
        result("far behind", into=[0.4, 0.5, 0.6], new=[0.4, 0.5, 0.6]),
    ]
    text = operators.report(found)
    assert "in 2 of 4 cases; in 1 more" in text
    first, every = text.split("All cases:")
    assert first.index("far behind") < first.index("| behind")
    assert "| level" not in first
    assert "| ours" not in first
    assert all(f"| {one['case']} |" in every for one in found)


def test_a_rival_that_is_much_slower_is_left_out_after_the_first_round(monkeypatch):
    works = {"ours": lambda: 5.0, "fast": lambda: 1.0, "near": lambda: 1.9, "slow": lambda: 2.1}
    monkeypatch.setattr(measure, "seconds", lambda work, *_: work())
    times = measure.alternate(works, 4, ["fast", "near", "slow"])
    rounds = {name: len(values) for name, values in times.items()}
    assert rounds == {"ours": 4, "fast": 4, "near": 4, "slow": 1}


def test_the_first_calls_after_a_pause_are_not_measured(monkeypatch):
    now, durations = [0.0], iter([0.015, 0.015, *[0.01] * 100])

    def work():
        now[0] += next(durations)

    monkeypatch.setattr(measure.time, "sleep", lambda _: None)
    monkeypatch.setattr(measure.time, "perf_counter", lambda: now[0])
    assert measure.seconds(work) == pytest.approx(0.01)
    assert now[0] == pytest.approx(2 * 0.015 + measure.MEASURED_SECONDS, abs=0.011)


def test_a_call_longer_than_a_measurement_is_made_three_times(monkeypatch):
    calls, now = [], [0.0]

    def work():
        calls.append(None)
        now[0] += 1.0

    monkeypatch.setattr(measure.time, "sleep", lambda _: None)
    monkeypatch.setattr(measure.time, "perf_counter", lambda: now[0])
    assert measure.seconds(work) == 1.0
    assert len(calls) == 1 + measure.LEAST_CALLS


def test_our_adam_w_is_timed_in_place_as_its_peers_are():
    problem = cases.build(cases.select(["apply_adam_w_v2"], ["fp32"], ["call"])[0])
    assert [
        one is problem.inputs[name]
        for one, name in zip(problem.given, ["var", "m", "v"], strict=True)
    ]


@pytest.mark.parametrize("operator", OPERATORS)
def test_scaling_changes_one_thing_at_a_time(operator):
    family = scaling.FAMILIES[operator]
    points = list(scaling.points(operator, "fp32", 3))
    for point in points:
        axes = {"rows": family.rows_axes, "dim": family.dim_axes, "threads": ()}
        changed = {axis for axis, size in point.case.sizes.items() if size != family.sizes[axis]}
        assert changed <= set(axes[point.variable])
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
