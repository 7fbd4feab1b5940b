"""Bits of two commits: cases depend on their number alone, and a changed bit is found."""

from functools import partial

import numpy as np
import pytest

from tests.benchmarks.scripts import script
from tests.small_calls import NAMES

same_bits = script("same_bits")
OPERATOR = "moe_token_permute_grad"
NAN, OTHER_NAN = np.array([0x7FC00000, 0x7FC00001], np.uint32).view(np.float32)


@pytest.mark.parametrize("operator", NAMES)
def test_every_operator_has_legal_calls(operator):
    call, options = same_bits.drawn_call(operator, 0)
    assert same_bits.drawn_call(operator, 0)[0] == call
    assert options["core_order"] in same_bits.CORE_ORDERS


@pytest.mark.parametrize(
    ("first", "second", "equal"),
    [
        (NAN, OTHER_NAN, True),
        (NAN, 1.0, False),
        (0.0, -0.0, False),
        (1.0, np.nextafter(np.float32(1), np.float32(2)), False),
    ],
)
def test_digests_differ_by_any_bit_but_those_of_nan(first, second, equal):
    digests = [same_bits.digest([np.array([one], np.float32)]) for one in (first, second)]
    assert (digests[0] == digests[1]) == equal


def test_an_operator_that_takes_contiguous_arrays_alone_gets_them(monkeypatch):
    gaps = partial(same_bits.guarded, at_end=True, layout="gaps")
    monkeypatch.setattr(
        same_bits, "anywhere", lambda _, array, written: gaps(array, written=written)
    )
    refusal = same_bits.digest(["AclnnError", "dy"])
    assert same_bits.digests("rms_norm_grad", 0)[1] != refusal


def test_a_changed_digest_is_reported(capsys):
    expected = {number: same_bits.digests(OPERATOR, number) for number in range(3)}
    assert same_bits.compare(OPERATOR, expected, "default") == 0
    expected[1] = (expected[1][0], "other")
    assert same_bits.compare(OPERATOR, expected, "default") == 1
    assert "case 1, default: other results" in capsys.readouterr().out
