import numpy as np
import pytest

import npu_sim
from npu_sim.framework.inference import arguments_of
from npu_sim.framework.operator import DATA
from npu_sim.numbers.values import CHUNK
from npu_sim.operators.loading import load_operator


def data(grad="60x20:bf16", indices="64:int32", seed=0):
    call = {"permuted_output_grad": grad, "sorted_indices": indices, "num_topk": 4}
    operator = load_operator("MoeTokenPermuteGrad")
    return operator.hook(DATA)(arguments_of(operator, call), seed)


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_normal_gradients_and_a_permutation(dtype):
    arrays = data(grad=f"4096x300:{dtype}", indices="4096:int32")
    grad, indices = arrays["permuted_output_grad"], arrays["sorted_indices"]
    assert grad.size > CHUNK
    assert str(npu_sim.TensorSpec.of(grad)) == f"4096x300:{dtype}"
    assert abs(grad.astype(np.float64).std() - 1) < 0.01
    assert indices.dtype == np.int32
    assert np.array_equal(np.sort(indices), np.arange(4096))
    assert not np.array_equal(indices, np.arange(4096))


def test_the_seed_decides():
    first, again, other = data(seed=3), data(seed=3), data(seed=4)
    for name, values in first.items():
        assert np.array_equal(values, again[name])
        assert not np.array_equal(values, other[name])


def test_the_data_runs():
    assert npu_sim.moe_token_permute_grad(**data(), num_topk=4).shape == (16, 20)
