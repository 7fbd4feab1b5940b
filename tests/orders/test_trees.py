import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu_sim.orders import trees

SUMS = {
    "left fold": trees.left_fold,
    "reduce_sum": trees.reduce_sum,
    "halving": trees.halving,
    "lane_sum": trees.lane_sum,
}


@st.composite
def random_trees(draw):
    """A random tree over up to 12 terms."""
    parts = list(range(draw(st.integers(1, 12))))
    while len(parts) > 1:
        left = parts.pop(draw(st.integers(0, len(parts) - 1)))
        right = parts.pop(draw(st.integers(0, len(parts) - 1)))
        parts.append((left, right))
    return parts[0]


def evaluate(tree, values):
    """Add float32 values as the tree says."""
    if isinstance(tree, tuple):
        return np.float32(evaluate(tree[0], values) + evaluate(tree[1], values))
    return values[tree]


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("terms", [1, 2, 63, 64, 65, 128, 130, 500])
def test_every_term_is_added_exactly_once(name, terms):
    assert sorted(trees.leaves(SUMS[name](range(terms)))) == list(range(terms))


def test_forms_of_the_specification():
    assert trees.left_fold([0, 1, 2]) == ((0, 1), 2)
    assert trees.tree64([0, 1, 2, 3]) == ((0, 1), (2, 3))
    assert trees.tree64([0, 1, 2]) == ((0, 1), 2)
    assert trees.reduce_sum(range(66)) == (trees.tree64(range(64)), (64, 65))
    assert trees.halving(range(65)) == trees.tree64([(0, 64), *range(1, 64)])
    assert trees.lane_sum(range(65)) == trees.tree64([(0, 64), *range(1, 64)])
    assert trees.halving(range(128)) == trees.tree64([(lane, lane + 64) for lane in range(64)])


@given(random_trees())
def test_a_tree_is_recovered_from_where_its_terms_meet(tree):
    terms = len(trees.leaves(tree))
    assert trees.from_meeting_sizes(trees.meeting_sizes(tree, terms)) == trees.canonical(tree)


@given(random_trees(), st.randoms(use_true_random=False))
def test_sides_do_not_matter(tree, random):
    def mirrored(node):
        if not isinstance(node, tuple):
            return node
        left, right = mirrored(node[0]), mirrored(node[1])
        return (right, left) if random.random() < 0.5 else (left, right)

    other = mirrored(tree)
    values = np.float32([random.uniform(-1, 1) for _ in range(12)])
    assert evaluate(other, values) == evaluate(tree, values)
    assert trees.canonical(other) == trees.canonical(tree)
    assert trees.shape_hash(other) == trees.shape_hash(tree)


def test_the_hash_ignores_which_terms_but_not_how_they_are_added():
    assert trees.shape_hash(((4, 7), 9)) == trees.shape_hash(((0, 1), 2))
    assert trees.shape_hash(((0, 1), 2)) != trees.shape_hash((0, (1, 2)))


def test_text_and_json():
    tree = trees.join(trees.left_fold([0, 1, 2]), trees.left_fold([3, 4]))
    assert trees.text(tree) == "0 + 1 + 2 + (3 + 4)"
    assert trees.as_lists(tree) == {"fold": [0, 1, 2, {"fold": [3, 4]}]}
    assert trees.text(None) == "0"


def test_sizes_of_no_tree_are_refused():
    sizes = np.full((3, 3), 3) - 2 * np.eye(3, dtype=int)
    with pytest.raises(ValueError, match="no two parts"):
        trees.from_meeting_sizes(sizes)


def test_folds_of_many_terms_do_not_run_out_of_stack():
    deep = trees.left_fold(range(20000))
    assert len(trees.leaves(deep)) == 20000
    assert trees.shape_hash(deep) == trees.shape_hash(trees.left_fold(range(20000)))
    assert trees.text(deep).startswith("0 + 1 + 2")
