import numpy as np
import pytest

import npu_sim
from npu_sim.framework.inference import arguments_of
from npu_sim.numbers.values import CHUNK, zipf
from npu_sim.operators.loading import load_operator
from npu_sim.operators.shared.generate import generate
from npu_sim.status import UsageError

OPERATOR = "embedding_dense_backward"


def data(seed=0, **arguments):
    call = {"grad": "40x25x8:bf16", "indices": "40x25:int32", "num_weights": 50000, **arguments}
    return generate(OPERATOR, arguments_of(load_operator(OPERATOR), call), seed)


@pytest.mark.parametrize(
    "dtype", ["int32", "int64", "int16", "int8", "uint8", "bool", "fp16", "fp32", "fp64"]
)
@pytest.mark.parametrize("num_weights", [1, 2, 100, 50000])
def test_indices_of_every_dtype_are_integers_in_range(dtype, num_weights):
    indices = data(indices=f"40x25:{dtype}", num_weights=num_weights)["indices"]
    spec = npu_sim.TensorSpec.of(indices)
    assert str(spec) == f"40x25:{dtype}"
    values = indices.astype(np.float64)
    assert values.min() >= 0
    assert values.max() < num_weights
    assert (values == np.floor(values)).all()


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_the_gradient_is_normal_in_its_dtype(dtype):
    grad = data(grad=f"40x25x64:{dtype}")["grad"]
    assert str(npu_sim.TensorSpec.of(grad)) == f"40x25x64:{dtype}"
    values = grad.astype(np.float64)
    assert abs(values.mean()) < 0.02
    assert abs(values.std() - 1) < 0.02


def test_the_seed_decides():
    first, again, other = data(seed=3), data(seed=3), data(seed=4)
    for name, values in first.items():
        assert np.array_equal(values, again[name])
        assert not np.array_equal(values, other[name])


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_numbers_occur_as_often_as_zipfs_law_says(size):
    count = CHUNK + 100_000
    counts = np.bincount(zipf(np.random.default_rng(0), count, size), minlength=size)
    expected = count * np.log1p(1 / np.arange(1, size + 1)) / np.log(size + 1)
    assert counts.size == size
    assert (np.abs(counts - expected) < 6 * np.sqrt(expected)).all()


def test_the_data_runs():
    arrays = data(grad="40x25x8:fp32")
    assert npu_sim.run(OPERATOR, num_weights=50000, **arrays).outputs["grad_weight"].shape == (
        50000,
        8,
    )


def test_an_unknown_operator_is_refused():
    with pytest.raises(UsageError, match="no such operator"):
        generate("embedding", arguments_of(load_operator(OPERATOR), {"num_weights": 1}))
