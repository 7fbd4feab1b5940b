"""Order masks are exact: outside no order moves an element, inside constructed data moves it.

The constructed contributions of an element are ``LARGE``, ``-LARGE`` and ``SMALL``, in program
order; all others are 0. Their sum is ``SMALL`` when the large ones meet first, and 0 otherwise.
"""

import numpy as np
import pytest

import npu_sim
from tests.reference import embedding_dense_backward as reference

LARGE, SMALL = np.float32(2.0**15), np.float32(2.0**-12)
"""Exact in fp16, which the training series computes with; fp32 absorbs ``SMALL`` in ``LARGE``."""
ORDERS = [("sequential", 0), ("reverse", 0), ("round_robin", 0)] + [
    ("random", seed) for seed in range(60)
]


def results(output, **call):
    """Return an output under every order, and its mask."""
    runs = [npu_sim.run(**call, core_order=order, seed=seed) for order, seed in ORDERS]
    masks = [run.order_dependent[output].mask for run in runs]
    assert all(np.array_equal(mask, masks[0]) for mask in masks)
    return [run.outputs[output] for run in runs], masks[0]


def moved(arrays):
    """Return which elements differ between results."""
    return np.any([array != arrays[0] for array in arrays[1:]], axis=0)


# --- EmbeddingDenseBackward ---

EMBEDDING = {
    # name: rows, dim, num_weights, product
    "sorted": (600, 520, 29, "atlas_a2"),
    "small_dim": (300, 3, 60, "atlas_a2"),
    "row_atomic": (200, 9, 50, "atlas_train"),
}
SOCS = {"atlas_a2": "Ascend910B1", "atlas_train": "Ascend910A"}


def embedding_call(name, seed):
    """Return the arguments of a call, and the rows of grad of every addition, by weight row."""
    rows, dim, num_weights, product = EMBEDDING[name]
    random = np.random.default_rng(seed)
    indices = (num_weights * random.random(rows) ** 3).astype(np.int32)
    grad = random.standard_normal((rows, dim)).astype(np.float32)
    shape = (rows, dim)
    case = reference.planned_case(SOCS[product], shape, "float32", num_weights, -1, False, False)
    assert case.path == name
    additions = {}
    for sent in reference.contributions(grad, indices.tolist(), case):
        additions.setdefault(sent.weight_row, []).append((sent.core, sent.rows))
    call = {
        "operator": "embedding_dense_backward",
        "indices": indices,
        "num_weights": num_weights,
        "product": product,
    }
    return call, grad, additions


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", EMBEDDING)
def test_only_rows_with_three_additions_by_two_cores_move(name, seed):
    call, grad, additions = embedding_call(name, seed)
    arrays, mask = results("grad_weight", grad=grad, **call)
    assert not moved(arrays)[~mask].any()
    several = {row: sent for row, sent in additions.items() if len({core for core, _ in sent}) > 1}
    assert set(np.flatnonzero(mask)) == {row for row, sent in several.items() if len(sent) > 2}
    assert any(len(sent) == 2 for sent in several.values()), "the case of two additions occurs"


@pytest.mark.parametrize("name", EMBEDDING)
def test_every_row_of_the_mask_can_move(name):
    call, grad, additions = embedding_call(name, 0)
    grad[:] = 0
    mask = npu_sim.run(grad=grad, **call).order_dependent["grad_weight"].mask
    assert mask.any()
    for row in np.flatnonzero(mask):
        first, second, *_, last = (rows[0] for _, rows in additions[row])
        grad[[first, second, last]] = [[LARGE], [-LARGE], [SMALL]]
    arrays, _ = results("grad_weight", grad=grad, **call)
    assert moved(arrays)[mask].all()


# --- RmsNormGrad ---

ROWS_AND_COLUMNS = [(1, 64), (2, 64), (3, 64), (50, 64), (2, 6144), (3, 6144), (1700, 6144)]


@pytest.mark.parametrize("product", ["atlas_a2", "atlas_inference"])
@pytest.mark.parametrize(("rows", "columns"), ROWS_AND_COLUMNS)
def test_dgamma_moves_from_three_additions_on(rows, columns, product):
    call = {
        "operator": "rms_norm_grad",
        "x": np.ones((rows, columns), np.float32),
        "rstd": np.ones(rows, np.float32),
        "gamma": np.ones(columns, np.float32),
        "product": product,
    }
    dy = np.zeros((rows, columns), np.float32)
    dy[0], dy[rows // 2], dy[-1] = LARGE, -LARGE, SMALL
    arrays, mask = results("dgamma", dy=dy, **call)
    fixed = {order.output: order.fixed for order in npu_sim.run(dy=dy, **call).plan.order}
    assert mask.all() == mask.any() == (not fixed["dgamma"])
    assert mask.all() == (rows > 2)
    assert np.array_equal(moved(arrays), mask)


# --- ConvTbcBackward ---


@pytest.mark.parametrize("product", ["atlas_a2", "atlas_train"])
@pytest.mark.parametrize(
    ("time", "batch", "taps", "pad"),
    [(33, 1, 33, 24), (17, 1, 33, 24), (40, 3, 3, 1), (9, 2, 3, 1)],
)
def test_taps_of_the_mask_move_and_others_do_not(time, batch, taps, pad, product):
    out_time = time + 2 * pad - taps + 1
    arguments = {
        "operator": "conv_tbc_backward",
        "input": np.ones((time, batch, 4), np.float32),
        "weight": np.ones((taps, 4, 4), np.float32),
        "bias": np.zeros(4, np.float32),
        "pad": pad,
        "product": product,
        "cube_math_type": 1,
    }
    random = np.random.default_rng(time)
    grad = random.standard_normal((out_time, batch, 4)).astype(np.float32)
    arrays, mask = results("grad_weight", grad_output=grad, **arguments)
    assert not moved(arrays)[~mask].any()
    plan = npu_sim.run(grad_output=grad, **arguments).plan
    fixed = {order.output: order.fixed for order in plan.order}
    assert fixed["grad_weight"] == (not mask.any())
    piece = plan.tiling["gradWeight"]["single_reduction"]
    for tap in np.flatnonzero(mask.all(axis=(1, 2))):
        times = [t for t in range(out_time) if 0 <= t + tap - pad < time]
        grad[:] = 0
        blocks = sorted({t // piece for t in times})
        chosen = [next(t for t in times if t // piece == block) for block in blocks]
        places = [(t, sample) for sample in range(batch) for t in chosen]
        grad[places[0]], grad[places[1]], grad[places[-1]] = LARGE, -LARGE, SMALL
        moving, _ = results("grad_weight", grad_output=grad, **arguments)
        assert moved(moving)[tap].all()
