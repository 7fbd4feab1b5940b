from itertools import pairwise

import pytest

from npu_sim.cores import load_profile
from npu_sim.timelines.program import Copy, Instruction, Multiply
from npu_sim.timelines.schedule import copied_bytes, cycles, rate_name

A2 = load_profile("atlas_a2")
ENDLESS = 1 << 100
"""Bytes of a tensor of which the L2 holds nothing."""


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        (Copy(32, 8, tensor_bytes=ENDLESS), 1),
        (Copy(33, 8, tensor_bytes=ENDLESS), 2),  # whole blocks of 32 bytes
        (Copy(33, 8, times=5, tensor_bytes=ENDLESS), 10),
        (
            Copy(110 * 32, 880, tensor_bytes=A2.chip.l2_bytes),
            32,
        ),  # what fits the L2 is read at its rate
        (Copy(1024, 256, rate="l1_to_l0a_bytes_per_cycle"), 2),
        (Instruction("add_sub_mul_max_min", "float32", 1), 1),  # one repeat of 64 lanes
        (Instruction("add_sub_mul_max_min", "float32", 65), 2),
        (Instruction("add_sub_mul_max_min", "float16", 128, times=3), 3),
        (Instruction("exp_ln_sqrt_div", "float32", 100), 4),  # two repeats, 32 lanes a cycle
        (
            Instruction("reduce_repeat", "float32", 64),
            7,
        ),  # seven cycles a repeat, which 9.142857 elements a cycle stand for
        (Instruction("reduce_repeat", "float32", 64 * 10**6), 7 * 10**6),
        (
            Instruction("cast_32_to_16", "float32", 64 * 1000),
            500,
        ),  # twice the published rate: a device was faster than that
        (Instruction("cast_16_to_32", "float32", 64 * 1000), 1000),
        (Instruction("sort_and_merge", "float32", 64), None),
        (Multiply("float16", 16, 16, 16), 1),
        (Multiply("bfloat16", 17, 16, 1), 2),
        (Multiply("float32", 16, 16, 5), 2),  # k in blocks of 8, 4 a cycle
        (Multiply("hf32", 32, 32, 32), 16),
        (Multiply("int8", 16, 16, 16), None),
    ],
)
def test_cycles_at_the_published_rates(work, expected):
    assert cycles(work, A2, "MTE2") == pytest.approx(expected)


def test_what_fits_the_l2_is_written_at_another_rate_than_it_is_read():
    copy = Copy(86 * 32, 688, tensor_bytes=1000)
    assert (cycles(copy, A2, "MTE3"), cycles(copy, A2, "FIXP")) == pytest.approx((32, 32))
    assert cycles(copy, A2, "MTE2") == pytest.approx(86 * 32 / 110)


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_only_what_the_l2_cannot_hold_is_sure_to_come_from_memory(parts):
    l2 = A2.chip.l2_bytes
    copy = Copy(parts * l2, 1, tensor_bytes=parts * l2)
    expected = l2 / 110 + (parts - 1) * l2 / 32
    assert cycles(copy, A2, "MTE2") == pytest.approx(expected)


@pytest.mark.parametrize("pipe", ["MTE2", "MTE3"])
def test_a_tensor_that_outgrows_the_l2_has_no_jump(pipe):
    sizes = [A2.chip.l2_bytes + 32 * more for more in (-1, 0, 1, 2)]
    times = [cycles(Copy(size, 1, tensor_bytes=size), A2, pipe) for size in sizes]
    steps = [after - before for before, after in pairwise(times)]
    assert all(0 < step < 1.001 for step in steps)


def test_other_series_have_no_published_instruction_rates_but_copies():
    train = load_profile("atlas_train")
    inference = load_profile("atlas_inference")
    assert cycles(Instruction("add_sub_mul_max_min", "float32", 64), train, "V") is None
    assert cycles(Multiply("float16", 16, 16, 16), train, "M") is None
    assert cycles(Copy(64, 16, tensor_bytes=ENDLESS), train, "MTE2") == 2
    assert cycles(Copy(64, 16, tensor_bytes=ENDLESS), inference, "MTE2") == 64 / 17


def test_names_and_bytes():
    assert rate_name(Instruction("sort_and_merge", "float32", 1), A2) == "sort_and_merge float32"
    misspelt = Instruction("sort_and_merg", "float32", 1)
    assert rate_name(misspelt, A2) == "sort_and_merg float32; did you mean sort_and_merge?"
    assert copied_bytes(Copy(33, 8, times=2)) == 128
    assert copied_bytes(Instruction("sort_and_merge", "float32", 1)) == 0


@pytest.mark.parametrize("kind", ["adds", "exp", "add_sub_mul_max", "duplicate"])
def test_an_instruction_without_a_rate_is_answered_with_the_nearest_name(kind):
    nearest = {
        "adds": "adds_muls_maxs_mins",
        "exp": "exp_ln_sqrt_div",
        "add_sub_mul_max": "add_sub_mul_max_min",
        "duplicate": "duplicate_create_index",
    }
    named = rate_name(Instruction(kind, "float32", 64), A2)
    assert named == f"{kind} float32; did you mean {nearest[kind]}?"
