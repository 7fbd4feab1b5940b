import json

import pytest

import npu_sim
from npu_sim.operators.timelines import timed_plan, timeline
from npu_sim.show.forms.layout import render
from npu_sim.show.timelines import timeline_view
from npu_sim.timelines.tracks import EVENTS_OF_A_PIPE, trace
from tests.cases import every
from tests.timelines.calls import CALLS

HIGHEST_PUBLISHED_RATE_910B2 = 1.89e12
"""Bytes a second, read and write, of an element-wise operator (throughput data of the vendor's
documents)."""


def planned(name, soc=None):
    operator, product, arguments = CALLS[name]
    profile = npu_sim.load_profile(product, soc)
    return npu_sim.plan(operator, product=profile, **arguments), profile


@pytest.mark.parametrize("name", every(9, CALLS))
def test_the_trace_adds_up_to_the_table_and_nothing_overlaps(name):
    plan, profile = planned(name)
    table = timeline(plan, profile)
    content = json.loads(json.dumps(trace([timed_plan(plan, profile)]), allow_nan=False))
    threads = {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in content["traceEvents"]
        if event["name"] == "thread_name"
    }
    totals, last, events = (
        dict.fromkeys(threads, 0.0),
        dict.fromkeys(threads, 0.0),
        dict.fromkeys(threads, 0),
    )
    copied = {}
    for event in content["traceEvents"]:
        if event["ph"] == "X" and event["cat"] != "launch":
            track = event["pid"], event["tid"]
            assert event["ts"] >= last[track] - 1e-8
            assert event["dur"] >= 0
            last[track] = event["ts"] + event["dur"]
            totals[track] += event["dur"]
            events[track] += 1
            copied[event["cat"]] = copied.get(event["cat"], 0) + event["args"]["bytes"]
    busy = {
        f"core {core.core} {pipe}": us for core in table.cores for pipe, us in core.busy_us.items()
    } | {"launches": 0.0}
    assert {threads[track]: total for track, total in totals.items()} == pytest.approx(
        busy, rel=1e-6, abs=1e-6
    )
    assert copied.get("MTE2", 0) == table.read_bytes
    assert copied.get("MTE3", 0) + copied.get("FIXP", 0) == table.written_bytes
    assert max(last.values(), default=0.0) <= table.bound_us * (1 + 1e-9) + 1e-8
    assert max(events.values(), default=0) <= 3 * EVENTS_OF_A_PIPE * max(len(table.phases), 1)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "small dim",
            "small dim, native 16-bit",
            "sorted",
            "sorted, native 16-bit",
            "deterministic, scaled",
        ),
        *("conv, deterministic", "conv, many samples", "moe", "moe, fp32, wide"),
        *(
            "rms, long",
            "rms, long, deterministic",
            "rms, short",
            "cross entropy, mean",
            "cross entropy, none, weights",
        ),
    ],
)
def test_the_bound_is_below_the_highest_published_rate(name):
    plan, profile = planned(name, "Ascend910B2")
    table = timeline(plan, profile)
    traffic = table.read_bytes + table.written_bytes
    assert 0 < table.kernel_us < traffic / HIGHEST_PUBLISHED_RATE_910B2 * 1e6


@pytest.mark.parametrize(
    ("name", "read", "written"),
    [
        ("small dim", 20000 * 512 * 4 + 20000 * 4, 0),
        ("sorted, in pieces", 777 * 40000 * 4, 0),
        ("atomic rows", 20000 * 128 * 4, 20000 * 128 * 4),
        ("permute", 4096 * 7168 * 2 + 4096 * 8 * 4, 4096 * 8 * 7168 * 2 + 4096 * 8 * 4),
        ("permute, one core sorts", 500 * 1024 * 2 + 500 * 8 * 8, 500 * 8 * 1024 * 2 + 500 * 8 * 4),
        ("moe", 4096 * 8 * 7168 * 2 + 4096 * 8 * 4, 4096 * 7168 * 2),
        ("moe, fp32, wide", 300 * 70000 * 4, 100 * 70000 * 4),
        ("rms, long", 2 * 2 * 4096 * 8192 * 2, 4096 * 8192 * 2 + 48 * 8192 * 4),
        ("rms, short", 2 * 100000 * 640 * 4, 100000 * 640 * 4 + 48 * 640 * 4),
        ("cross entropy, mean", 8192 * 32000 * 2 + 8192 * 8, 8192 * 32000 * 2),
        ("cross entropy, none, weights", 199999 * 1000 * 4, 199999 * 1000 * 4),
        ("conv", 2 * 1024 * 16 * 512 * 2, 1024 * 16 * 512 * 2 + 3 * 512 * 512 * 4),
        ("conv, many samples", 2 * 50 * 300000 * 16 * 2, 50 * 300000 * 16 * 2),
        ("conv, deterministic", 2 * 1000 * 50 * 64 * 2, 1000 * 50 * 64 * 2 + 50 * 9 * 64 * 64 * 4),
    ],
)
def test_everything_is_read_and_written_at_least_once(name, read, written):
    """Bytes of the tensors that the kernel must move, whatever its tiling."""
    table = timeline(*planned(name))
    assert (
        read <= table.read_bytes <= 13 * read
    )  # conv: 24 cores load shared operands each for themselves
    assert written <= table.written_bytes <= max(1.2 * written, table.read_bytes)


@pytest.mark.parametrize("name", every(9, CALLS))
def test_shares_and_sums_are_consistent(name):
    table = timeline(*planned(name))
    assert table.label == "lower bound"
    assert table.kernel_us == pytest.approx(sum(phase.us for phase in table.phases))
    assert table.bound_us == pytest.approx(sum(launch.us for launch in table.launches))
    assert sum(launch.share for launch in table.launches) == pytest.approx(
        1 if table.launches else 0
    )
    assert table.kernel_us == pytest.approx(
        sum(launch.us for launch in table.launches if launch.planned)
    )
    assert all(0 <= share <= 1 + 1e-12 for share in table.busy_share.values())
    assert table.copy_share <= 1 + 1e-12
    assert table.imbalance >= 1 - 1e-12
    for core in table.cores:
        assert max(core.busy_us.values()) <= core.us * (1 + 1e-12)
        assert core.us <= table.kernel_us * (1 + 1e-12)
    assert not table.cores or "kernel launch" in table.not_counted


def test_a_small_call_by_hand():
    """One core, two rows of 8 fp32 columns on the small-dim kernel, 1850 MHz."""
    profile = npu_sim.load_profile("atlas_a2")
    plan = npu_sim.plan(
        "embedding_dense_backward",
        product=profile,
        grad="1x8:fp32",
        indices="1:int32",
        num_weights=5,
    )
    table = timeline(plan, profile)
    copy_in = (
        32 + 32
    ) / 110  # one padded block of indices, one row of 32 bytes: both tensors fit the L2
    vector = (
        1 + 0 + 1 + 1
    )  # convert the index, sort (unknown: 0), clear the accumulator, add the row: a repeat each
    copy_out = 32 / 86
    assert table.kernel_us == pytest.approx((copy_in + vector + copy_out) / 1850)
    clearing = 5 * 8 * 4 / 86 / 48  # MemSet on all cores
    assert [launch.kernel for launch in table.launches] == ["MemSet", "EmbeddingDenseGradV2"]
    assert table.bound_us == pytest.approx((clearing + copy_in + vector + copy_out) / 1850)
    assert table.unknown_rates == ("sort_and_merge float32",)
    assert (table.read_bytes, table.written_bytes) == (64, 32)


def test_a_permutation_by_hand():
    """Two tokens of 16 fp32 columns, two experts each: core 0 sorts, then two cores move a row."""
    profile = npu_sim.load_profile("atlas_a2")
    plan = npu_sim.plan(
        "moe_token_permute", product=profile, tokens="2x16:fp32", indices="2x2:int64"
    )
    table = timeline(plan, profile)
    block_in, block_out = 32 / 110, 32 / 86  # every tensor fits the L2
    ids = (
        block_in + (1 + 1 + 1) + block_out
    )  # cast, times -1 and unused lanes, a repeat each; the sort counts 0
    row = block_in + 2 * block_in + 2 * 2 * block_out  # places; a row of 64 bytes in, and out twice
    assert [phase.name for phase in table.phases] == ["sort ids", "sort order", "move rows"]
    assert [phase.us for phase in table.phases] == pytest.approx(
        [ids / 1850, ids / 1850, row / 1850]
    )
    assert table.unknown_rates == ("sort_and_merge float32",)
    assert (table.read_bytes, table.written_bytes) == (32 + 32 + 2 * (32 + 64), 32 + 32 + 2 * 128)


def test_a_sort_on_several_cores_merges_until_one_list_is_left():
    plan, profile = planned("permute")
    table = timeline(plan, profile)
    assert [phase.name for phase in table.phases] == [
        *("sort ids", "merge ids", "merge last ids"),
        *("sort order", "merge order", "merge last order"),
        "move rows",
    ]
    sorts, moved = table.phases[:-1], table.phases[-1]
    assert 0 < sum(phase.us for phase in sorts) < moved.us


def test_a_dropped_copy_is_not_written():
    full, profile = planned("permute, split rows, dropped")
    operator, _, arguments = CALLS["permute, split rows, dropped"]
    fewer = npu_sim.plan(operator, product=profile, **{**arguments, "num_out_tokens": 3000})
    assert timeline(fewer, profile).kernel_us < timeline(full, profile).kernel_us
    assert timeline(fewer, profile).assumptions == (
        "dropped copies are spread evenly over the cores",
    )


@pytest.mark.parametrize(("release", "flushes"), [("8.3", 11), ("8.5", 10), ("9.1", 10)])
def test_a_core_flushes_its_rows_as_often_as_its_release_must(release, flushes):
    profile = npu_sim.load_profile("atlas_a2", release=release)
    call = {
        "grad": "5280x1024:fp32",
        "indices": "5280:int32",
        "num_weights": 1000,
    }  # 110 rows for every one of 48 cores
    table = timeline(npu_sim.plan("embedding_dense_backward", product=profile, **call), profile)
    assert table.written_bytes == 48 * flushes * 1024 * 4


def test_a_series_without_published_rates_counts_them_zero_and_names_them():
    table = timeline(*planned("weights split"))
    assert table.busy_share["V"] == 0
    assert "add_sub_mul_max_min float32" in table.unknown_rates
    assert (table.clock, table.clock_mhz) == ("core clock", 1000)


def test_the_vector_clock_is_taken_where_there_is_one():
    plan, _ = planned("one row")
    inference = npu_sim.load_profile("atlas_inference")
    table = timeline(
        plan, inference
    )  # the plan of another product: only the clock is of interest here
    assert (table.clock, table.clock_mhz) == ("vector clock", 1000)


def test_a_faster_clock_shortens_the_bound_in_proportion():
    first, second = (
        timeline(*planned("sorted", soc)).bound_us for soc in ("Ascend910B3", "Ascend910B4")
    )
    assert second / first == pytest.approx(1800 / 1500)


@pytest.mark.parametrize("name", every(9, CALLS))
def test_the_trace_shows_all_launches_one_after_the_other(name):
    plan, profile = planned(name)
    table = timeline(plan, profile)
    events = [
        event
        for event in trace([timed_plan(plan, profile)])["traceEvents"]
        if event.get("cat") == "launch"
    ]
    assert [event["name"] for event in events] == [launch.kernel for launch in plan.launches]
    assert [event["dur"] for event in events] == pytest.approx(
        [launch.us for launch in table.launches], abs=1e-8
    )
    ends = [0.0, *(event["ts"] + event["dur"] for event in events)]
    assert [event["ts"] for event in events] == pytest.approx(ends[:-1], abs=1e-8)
    assert ends[-1] == pytest.approx(table.bound_us, abs=1e-8)


def test_every_soc_is_a_process_of_its_own():
    content = trace(
        [timed_plan(*planned("one row")), timed_plan(*planned("one row", "Ascend910B4"))]
    )
    names = {
        event["args"]["name"] for event in content["traceEvents"] if event["name"] == "process_name"
    }
    assert names == {
        f"{soc}: EmbeddingDenseBackward (lower bound)" for soc in ("Ascend910B1", "Ascend910B4")
    }


def test_merged_events_say_so():
    content = trace([timed_plan(*planned("billions of rows"))])
    merged = [
        event
        for event in content["traceEvents"]
        if event["ph"] == "X" and event["args"].get("tiles", 1) > 1
    ]
    assert merged
    assert content["otherData"]["merged_events"] == len(merged)
    assert "lower bound" in content["otherData"]["label"]


@pytest.mark.parametrize(
    ("operator", "arguments", "reads"),
    [
        # One pass for the sums of a row and one for dx; each core reads gamma for its groups.
        ("rms_norm_grad", {"dy": "64x8192:fp32", "gamma": "8192:fp32"}, {"dy": 2, "x": 2}),
        ("rms_norm_grad", {"dy": "4096x512:fp32", "gamma": "512:fp32"}, {"dy": 1, "x": 1}),
        ("rms_norm", {"x": "64x102400:bf16", "gamma": "102400:bf16"}, {"x": 2}),
    ],
)
def test_reads_of_every_tensor_add_up_to_the_traffic(operator, arguments, reads):
    plan = npu_sim.plan(operator, **arguments)
    found = npu_sim.timeline(operator, **arguments)
    tensors = {tensor.name: tensor.bytes for tensor in plan.launches[0].inputs}
    assert found.tensor_bytes == sum(tensors.values()) == found.launches[0].read_bytes
    assert found.read_bytes == pytest.approx(
        sum(times * tensors[name] for name, times in found.tensor_reads.items())
    )
    assert {name: found.tensor_reads[name] for name in reads} == reads


def test_copies_from_the_workspace_are_not_reads_of_a_tensor():
    call = {"tokens": "4096x1024:bf16", "indices": "4096x8:int64"}
    found = npu_sim.timeline("moe_token_permute", **call)
    assert found.tensor_reads == {"tokens": 1.0, "indices": 1.0}
    assert found.read_bytes > found.tensor_bytes


def test_the_text_says_why_more_is_read_than_the_tensors_have():
    found = npu_sim.timeline("rms_norm_grad", dy="4096x7168:bf16", gamma="7168:bf16")
    lines = render(timeline_view(found), 200).splitlines()
    line = next(line for line in lines if line.startswith("read again"))
    assert "2.03x the 112.0 MiB (117,471,232) of the tensors" in line
    assert "read more than once: dy 2x, x 2x, gamma 286x" in line
