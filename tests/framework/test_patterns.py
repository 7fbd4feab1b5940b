"""Patterns of shapes: building and binding are inverse, and errors name the invalid part."""

import re
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu_sim.framework import patterns
from npu_sim.framework.patterns import PatternError, Sizes, bind, build, parse, reshape

NAME = r"[^\W\d]\w*"
AXIS = re.compile(rf"1?{NAME}[*+~?]?|{NAME}{{[0-9]}}|([1-9]\d*\*)?{NAME}(//[1-9]\d*)?")
NAMES = ("row", "col", "batch", "hidden", "out_channels")
sizes_of_axes = st.integers(0, 12)
shapes = st.lists(sizes_of_axes, max_size=4).map(tuple)
nonempty_shapes = st.lists(sizes_of_axes, min_size=1, max_size=4).map(tuple)


@st.composite
def patterns_with_one_group(draw):
    """Draw a pattern with at most one group, its sizes, and the axes of the group."""
    names = draw(st.permutations(NAMES).map(lambda order: order[: draw(st.integers(0, 5))]))
    values = {name: draw(sizes_of_axes) for name in names}
    groups, tokens = {}, list(names)
    if names and draw(st.booleans()):
        kind = draw(st.sampled_from("*+"))
        group = draw(st.sampled_from(names))
        groups[group] = draw(shapes if kind == "*" else nonempty_shapes)
        values[group] = prod(groups[group])
        tokens[names.index(group)] += kind
    return " ".join(tokens), values, groups


@st.composite
def patterns_with_known_groups(draw):
    """Draw a pattern with two groups known from other tensors, axes of size 1, and single axes."""
    groups = {"row": draw(shapes), "col": draw(nonempty_shapes)}
    tokens = draw(
        st.permutations(("row*", "col+", "1col", "batch")).map(
            lambda order: order[: draw(st.integers(1, 4))]
        )
    )
    values = {"batch": draw(sizes_of_axes), **{name: prod(axes) for name, axes in groups.items()}}
    return " ".join(tokens), values, groups


def bound(pattern, shape, sizes=None):
    """Return the sizes of a shape, or None if it does not match the pattern or known sizes."""
    result = Sizes() if sizes is None else sizes
    return result if bind(pattern, shape, result) else None


@pytest.mark.parametrize(
    ("pattern", "shape", "sizes"),
    [
        ("row 2*col", (3, 10), {"row": 3, "col": 5}),
        ("row 2*col", (3, 11), None),
        ("col//2", (4,), {"col": 8}),
        ("row* 2*col", (2, 3, 10), {"row": 6, "col": 5}),
    ],
)
def test_related_sizes_bind_to_the_size_they_are_made_of(pattern, shape, sizes):
    found = bound(pattern, shape)
    assert (found and found.values) == sizes


def test_a_part_of_a_known_size_is_rounded_down():
    sizes = bound("col", (9,))
    assert bind("col//2", (4,), sizes)
    assert not bind("col//2", (5,), sizes)
    assert build("col//2 3*col", sizes.values) == (4, 27)


@given(patterns_with_one_group())
def test_a_built_shape_binds_to_its_sizes_and_axes(drawn):
    pattern, values, groups = drawn
    sizes = bound(pattern, build(pattern, values, groups))
    assert sizes.values == values
    assert sizes.groups == groups


@given(patterns_with_known_groups())
def test_a_shape_built_from_axes_of_other_tensors_binds_to_its_sizes(drawn):
    pattern, values, groups = drawn
    sizes = bound(pattern, build(pattern, values, groups), Sizes(groups=dict(groups)))
    assert sizes.groups == groups
    assert sizes.values == {
        token.name: values[token.name] for token in parse(pattern) if token.kind != "1"
    }


@given(patterns_with_one_group())
def test_a_shape_agrees_with_its_own_sizes_and_a_changed_shape_does_not(drawn):
    pattern, values, groups = drawn
    shape = build(pattern, values, groups)
    sizes = bound(pattern, shape)
    assert bound(pattern, shape, sizes) is sizes
    for place, size in enumerate(shape):
        assert bound(pattern, (*shape[:place], size + 1, *shape[place + 1 :]), sizes) is None
        assert sizes == Sizes(values, groups)


@given(st.lists(sizes_of_axes, min_size=1, max_size=5).map(tuple))
def test_the_last_of_two_unknown_groups_is_the_last_axis(shape):
    sizes = bound("row* col+", shape)
    assert sizes.groups == {"row": shape[:-1], "col": shape[-1:]}
    assert sizes.values == {"row": prod(shape[:-1]), "col": shape[-1]}


@given(patterns_with_one_group())
def test_a_group_of_unknown_axes_is_built_as_one_axis(drawn):
    pattern, values, _ = drawn
    assert build(pattern, values) == tuple(values[token.name] for token in parse(pattern))


@given(nonempty_shapes, sizes_of_axes)
def test_reshape_keeps_the_rank_and_inner_axes_where_possible(axes, size):
    changed = reshape(axes, size)
    assert prod(changed) == size
    assert len(changed) == len(axes)
    inner = prod(axes[1:])
    if prod(axes) == size:
        assert changed == axes
    elif inner and size % inner == 0:
        assert changed[1:] == axes[1:]


def test_a_group_with_another_size_is_built_with_as_many_axes():
    assert build("row* col+", {"row": 30, "col": 4}, {"row": (2, 5), "col": (4,)}) == (6, 5, 4)
    assert build("row* col+", {"row": 7, "col": 4}, {"row": (2, 5), "col": (4,)}) == (1, 7, 4)


def test_a_group_without_axes_gets_an_axis_for_another_size():
    assert build("row topk*", {"row": 5, "topk": 1}, {"topk": ()}) == (5,)
    assert build("row topk*", {"row": 5, "topk": 3}, {"topk": ()}) == (5, 3)


@pytest.mark.parametrize(("axes", "built"), [((3, 4), (5, 3, 4)), ((), (5, 12)), (None, (5, 12))])
def test_elements_of_any_shape_get_the_axes_of_other_tensors(axes, built):
    groups = {"col": axes} if axes is not None else {}
    assert build("row col~", {"row": 5, "col": 12}, groups) == built


@pytest.mark.parametrize(
    ("pattern", "shape", "values"),
    [
        ("", (), {}),
        ("row", (5,), {"row": 5}),
        ("row row", (5, 5), {"row": 5}),
        ("row*", (), {"row": 1}),
        ("rows~", (2, 3, 4), {"rows": 24}),
        ("rows~ dim", (2, 3, 4), {"rows": 6, "dim": 4}),
        ("rows~ dim", (0, 4), {"rows": 0, "dim": 4}),
        ("row* 1col*", (2, 3, 1), {"row": 6}),
    ],
)
def test_shapes_that_match_a_pattern(pattern, shape, values):
    assert bound(pattern, shape).values == values


@pytest.mark.parametrize(
    ("pattern", "shape"),
    [
        ("", (1,)),
        ("row", ()),
        ("row", (5, 1)),
        ("row row", (5, 6)),
        ("row+", ()),
        ("rows~", ()),
        ("rows~ dim", (4,)),
        ("row* 1col*", (2, 3)),
    ],
)
def test_shapes_that_do_not_match_a_pattern(pattern, shape):
    assert bound(pattern, shape) is None


@pytest.mark.parametrize(
    ("kind", "counts"),
    [("1col", (2,)), ("1col?", (0, 1, 2)), ("1col*", (0, 1, 2, 3))],
    ids=["as many", "as many or fewer", "any"],
)
@pytest.mark.parametrize("count", range(4))
def test_axes_of_size_1_are_counted_by_the_axes_they_replace(kind, counts, count):
    sizes = Sizes(groups={"row": (6,), "col": (3, 4)})
    assert (bound(f"row* {kind}", (6, *[1] * count), sizes) is not None) == (count in counts)


def test_axes_declared_as_1_must_have_size_1():
    assert bound("row* 1col", (6, 2), Sizes(groups={"row": (6,), "col": (3,)})) is None


@given(
    st.text(st.characters(exclude_categories=["Z", "C"]), min_size=1).filter(
        lambda part: not AXIS.fullmatch(part)
    )
)
def test_an_invalid_axis_is_named(part):
    with pytest.raises(PatternError) as refused:
        parse(f"row {part}")
    assert repr(part) in str(refused.value)


@pytest.mark.parametrize("part", ["row?", "1row+", "1row~", "2row", "row**", "*", "1", "row-col"])
def test_the_message_names_part_and_pattern_and_the_allowed_syntax(part):
    with pytest.raises(PatternError) as refused:
        parse(f"batch {part} hidden")
    for text in (repr(part), repr(f"batch {part} hidden"), "name*", "1name?"):
        assert text in str(refused.value)


def test_more_than_two_groups_are_refused():
    with pytest.raises(PatternError, match=r"'row\* col\+ rows~' has more than two groups"):
        parse("row* col+ rows~")


def test_an_unknown_size_is_named():
    with pytest.raises(KeyError, match="hidden"):
        build("tokens hidden", {"tokens": 3})


def test_patterns_list_their_sizes_and_their_help_text():
    assert patterns.names("row* 1col? hidden") == ("row", "col", "hidden")
    assert patterns.text("row* 1col? hidden rows~") == "(row ..., 1 ..., hidden, rows elements)"
    assert patterns.text("") == "scalar"
