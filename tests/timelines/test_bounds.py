"""Bounds hold for every state of the L2, do not jump with the sizes, and state what they assume."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import npu_sim
from npu_sim.operators.timelines import timeline
from npu_sim.show.forms.layout import render
from npu_sim.show.timelines import timeline_view
from tests.cases import every
from tests.timelines.calls import (
    CONV,
    CROSS_ENTROPY,
    EMBEDDING,
    MOE,
    PERMUTE,
    RMS,
    UNPERMUTE,
    UNPERMUTE_GRAD,
    conv,
    cross_entropy,
    embedding,
    moe,
    permute,
    rms,
    unpermute,
    unpermute_grad,
)

OPERATORS = {
    EMBEDDING: lambda rows, columns: embedding(f"{rows}x{columns}:fp32"),
    CONV: lambda rows, columns: conv(
        (min(rows, 500) + 8, 64, min(columns, 500) + 16, 64, 3, 1), "fp16"
    ),
    "rms_norm": lambda rows, columns: {"x": f"{rows}x{columns}:bf16", "gamma": f"{columns}:bf16"},
    RMS: lambda rows, columns: rms(rows, columns, "fp32"),
    CROSS_ENTROPY: lambda rows, columns: cross_entropy(rows, columns, "bf16"),
    PERMUTE: lambda rows, columns: permute(rows, 4, columns, "bf16"),
    MOE: lambda rows, columns: moe(rows, 4, columns, "bf16"),
    UNPERMUTE: lambda rows, columns: unpermute(rows, 4, columns, "bf16", "fp32"),
    UNPERMUTE_GRAD: lambda rows, columns: unpermute_grad(rows, 4, columns, "bf16", "fp32"),
}
A2 = npu_sim.load_profile("atlas_a2", "Ascend910B3")


L2_BYTES = 1 << 22
"""Size of the second-level cache in the property test; near it the sizes are quick to plan."""


def with_l2(size: int) -> npu_sim.Profile:
    """Return the device with another second-level cache."""
    chip = A2.chip.model_copy(update={"l2_bytes": size})
    product = A2.product.model_copy(update={"socs": {A2.soc: chip}})
    return A2.model_copy(update={"product": product})


def bounds_of(operator: str, rows: int, columns: int) -> list[float]:
    """Return the bounds of a call: with the L2, with an endless one, and with none."""
    plan = npu_sim.plan(operator, product=A2, **OPERATORS[operator](rows, columns))
    return [timeline(plan, with_l2(size)).bound_us for size in (L2_BYTES, 1 << 60, 0)]


@pytest.mark.parametrize("operator", every(3, OPERATORS))
@settings(max_examples=15, deadline=None)
@given(
    columns=st.integers(16, 20000),
    part=st.sampled_from([0.25, 0.5, 1, 2]),
    near=st.integers(-3, 3),
    more=st.sampled_from([(1, 0), (0, 1)]),
)
def test_one_more_row_or_column_adds_at_most_its_work(operator, columns, part, near, more):
    """Work added: what the bound adds without an L2 or with an endless one, and a part of the work
    without one, the row or column of the tensors, that is more sure to come from memory.
    """
    rows = max(int(part * L2_BYTES / (4 * columns)) + near, 1)
    sizes = (rows, columns), (rows + more[0], columns + more[1])
    before, after = (bounds_of(operator, *size) for size in sizes)
    added, from_l2, from_memory = (
        later - earlier for earlier, later in zip(before, after, strict=True)
    )
    new_part = max(after[2], before[2]) / (rows if more[0] else columns)
    assert added <= max(from_l2, from_memory, 0) + new_part
    if from_l2 >= 0 and from_memory >= 0:
        assert added >= -1e-9 * after[0]


def test_a_gradient_that_outgrows_the_l2_takes_a_little_longer():
    before, after = (
        npu_sim.plan(RMS, soc="Ascend910B1", **rms(1024, columns, "fp32"))
        for columns in (49152, 49160)
    )
    b1 = npu_sim.load_profile(None, "Ascend910B1")
    assert 1 < timeline(after, b1).bound_us / timeline(before, b1).bound_us < 1.01


@pytest.mark.parametrize("soc", ["Ascend910B1", "Ascend910B2"])
def test_a_sum_of_tokens_with_half_of_the_probabilities_0_took_longer_than_its_bound(soc):
    """A public measurement of 65536 rows of 2048 bf16, top-8, on 48 cores: 115.9 us."""
    profile = npu_sim.load_profile(None, soc)
    plan = npu_sim.plan(UNPERMUTE, product=profile, **unpermute(8192, 8, 2048, "bf16", "bf16"))
    table = timeline(plan, profile)
    assert (profile.chip.vector_cores, table.bound_us < 115.9) == (48, True)
    assert table.assumptions == ("no token is dropped", "no probs is 0")


@pytest.mark.parametrize(
    ("operator", "arguments", "assumption"),
    [
        (UNPERMUTE, unpermute(4096, 8, 7168, "bf16", "bf16"), "every probs is 0"),
        (
            EMBEDDING,
            embedding("20000x512:fp32", padding_idx=3),
            "every row carries the padding index",
        ),
        (
            EMBEDDING,
            embedding("20000x1024:fp32", padding_idx=3, scale_grad_by_freq=True),
            "every row carries the padding index",
        ),
    ],
)
def test_a_bound_under_the_other_assumption_stands_beside_it(operator, arguments, assumption):
    table = timeline(npu_sim.plan(operator, product=A2, **arguments), A2)
    (other,) = table.otherwise
    assert other.assumption == assumption
    assert 0 < other.kernel_us < table.kernel_us
    assert other.bound_us == pytest.approx(table.bound_us - table.kernel_us + other.kernel_us)
    text = " ".join(render(timeline_view(table), 300).split())
    assert assumption in text
    assert table.as_dict()["otherwise"][0]["bound_us"] == other.bound_us


def test_without_an_assumption_there_is_no_other_bound():
    call = rms(4096, 1024, "bf16")
    assert timeline(npu_sim.plan(RMS, product=A2, **call), A2).otherwise == ()
