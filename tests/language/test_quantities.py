import pytest

from npu_sim.language import calls_text, time_text, ulp_text, using_language


@pytest.mark.parametrize(
    ("microseconds", "shown"),
    [
        (0.0, "0 us"),
        (0.00414, "4.14 ns"),
        (0.0999, "99.9 ns"),
        (0.1, "0.1 us"),
        (3.4567, "3.46 us"),
        (1234.0, "1.23 ms"),
        (2e6, "2.00 s"),
    ],
)
def test_a_time_has_the_unit_that_people_read(microseconds, shown):
    assert time_text(microseconds) == shown


@pytest.mark.parametrize(
    ("error", "shown"), [(0.515, "0.515 ulp"), (171.2, "171 ulp"), (4913.0, "4,913 ulp")]
)
def test_a_large_error_has_no_exponent(error, shown):
    assert ulp_text(error) == shown


def test_one_call_is_singular():
    assert calls_text(1, 1) == "1 call"
    assert calls_text(67, 3) == "67 calls, 3 of them distinct"
    with using_language("zh"):
        assert calls_text(2) == "2 次调用"
