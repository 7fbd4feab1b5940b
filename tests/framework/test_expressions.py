"""Conditions as text have the value that Python gives; errors name the disallowed syntax."""

import re
from collections import namedtuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu_sim.framework.arguments import ExpressionError, evaluate, in_row, names, parse

NAMES = ("row", "col", "tokens", "num_topk")
RULES = ("num_topk_at_most", "rows_below")
Row = namedtuple("Row", NAMES)
Switches = namedtuple("Switches", RULES)
names_and_numbers = st.one_of(st.sampled_from(NAMES + RULES), st.integers(0, 40).map(str))


def _combined(parts):
    binary = st.sampled_from(
        ("+", "-", "*", "//", "%", "<", "<=", ">", ">=", "==", "!=", "and", "or")
    )
    return st.one_of(
        st.builds("({} {} {})".format, parts, binary, parts),
        st.builds("{}({}, {})".format, st.sampled_from(("min", "max")), parts, parts),
        st.builds("(-{})".format, parts),
        st.builds("(not {})".format, parts),
        st.builds("({} <= {} < {})".format, parts, parts, parts),
    )


expressions = st.recursive(names_and_numbers, _combined, max_leaves=12)
values = st.fixed_dictionaries({name: st.integers(-1, 40) for name in NAMES + RULES})


def outcome(evaluated):
    """Return the value, or a marker for division by zero."""
    try:
        return evaluated()
    except ZeroDivisionError:
        return "divides by zero"


@given(expressions, values)
def test_an_expression_has_the_value_that_python_gives(text, numbers):
    assert outcome(lambda: evaluate(text, numbers.__getitem__)) == outcome(
        lambda: eval(text, {}, numbers)
    )


@given(expressions, values)
def test_a_row_gives_the_same_value(text, numbers):
    scope = {
        "row": Row(*(numbers[name] for name in NAMES)),
        "rules": Switches(*(numbers[name] for name in RULES)),
    }
    condition = in_row(text, RULES)
    assert outcome(lambda: eval(condition, scope)) == outcome(
        lambda: evaluate(text, numbers.__getitem__)
    )


@given(expressions, values)
def test_exactly_the_names_of_an_expression_are_looked_up_once(text, numbers):
    lookups = []
    outcome(lambda: evaluate(text, lambda name: lookups.append(name) or numbers[name]))
    assert tuple(lookups) == names(text)
    assert set(lookups) == set(re.findall("[a-z_]+", text)) & set(NAMES + RULES)


@given(expressions)
def test_parsing_an_expression_is_repeatable(text):
    first = in_row(text, RULES)
    assert in_row(text, RULES) == first
    assert parse(text) is parse(text)


def test_names_are_qualified_by_row_or_rules():
    assert in_row("num_topk <= num_topk_at_most", RULES) == "row.num_topk <= rules.num_topk_at_most"
    assert in_row("max(row, 3) < rows_below", RULES) == "max(row.row, 3) < rules.rows_below"
    assert in_row("row < rows_below") == "row.row < row.rows_below"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("row.col", "row.col"),
        ("row[0]", "row[0]"),
        ("row ** 2", "**"),
        ("row / 2", "/"),
        ("row < 1.5", "1.5"),
        ("row == 'x'", "'x'"),
        ("row or True", "True"),
        ("abs(row) > 1", "abs(row)"),
        ("__import__('os')", "__import__('os')"),
        ("row.min(3)", "row.min(3)"),
        ("min(*row)", "*row"),
        ("min(row, key=col)", "key=col"),
        ("[row]", "[row]"),
        ("row if col else 0", "row if col else 0"),
        ("(lambda: 1)()", "lambda: 1"),
        ("(row := 1)", "row := 1"),
    ],
)
def test_disallowed_syntax_is_named(text, part):
    with pytest.raises(ExpressionError) as refused:
        evaluate(text, {"row": 1, "col": 1}.__getitem__)
    message = str(refused.value)
    assert repr(text) in message
    assert part in message.removeprefix(repr(text)) or part in ("**", "/")
    assert "integers, names" in message


@pytest.mark.parametrize("text", ["", "row <", "row = 3", "row; col", "1 2"])
def test_invalid_syntax_is_an_expression_error(text):
    with pytest.raises(ExpressionError, match="is not an expression") as refused:
        parse(text)
    assert repr(text) in str(refused.value)


def test_an_unknown_value_raises_the_error_of_the_lookup():
    with pytest.raises(KeyError, match="col"):
        evaluate("row < col", {"row": 1}.__getitem__)
