import pytest

from npu_sim.status import UsageError
from npu_sim.tools.explorer.state import whole_number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("4096", 4096),
        ("4K", 4096),
        ("2m", 2 << 20),
        ("1G", 1 << 30),
        ("1.5k", 1536),
        ("7168*2", 14336),
        (" 2 * 3 * 4K ", 24576),
        ("1e4", 10000),
        ("-100", -100),
        ("999999999999999999*999999999999999998", 999999999999999997000000000000000002),
    ],
)
def test_sizes_are_parsed_in_common_notations(text, number):
    assert whole_number("rows", text) == number


@pytest.mark.parametrize(
    "text",
    ["", "x", "1.5", "4KB", "1**2", "--3", "-", "1e", "٣", "1" * 101, "2*", "1e-2", "0x10", "nan"],
)
def test_a_value_that_is_no_integer_is_refused_with_examples(text):
    with pytest.raises(UsageError) as refused:
        whole_number("rows", text)
    assert "7168*2" in refused.value.hint
