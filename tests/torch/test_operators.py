"""Operators on tensors: the bits are those of arrays, and memory is shared."""

import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip(
    "torch", reason="PyTorch is not installed: pip install 'npu_sim[torch]'"
)

import npu_sim  # noqa: E402
import npu_sim.torch as simulated  # noqa: E402
from npu_sim.torch.library import array_as_tensor, tensor_as_array  # noqa: E402


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.bool]
)
def test_memory_is_shared_both_ways(dtype):
    tensor = torch.zeros(4, 6).to(dtype)[:, ::2]
    array = tensor_as_array(tensor)
    assert array.strides == tuple(step * tensor.element_size() for step in tensor.stride())
    array[1, 2] = 1
    assert tensor[1, 2] == 1
    back = array_as_tensor(array)
    assert back.dtype == dtype
    assert back.data_ptr() == tensor.data_ptr()


def test_sparse_tensors_are_an_error():
    with pytest.raises(TypeError, match="sparse"):
        tensor_as_array(torch.zeros(3, 4).to_sparse())


CALLS = {
    "embedding_dense_backward": {
        "grad": torch.randn(30, 8),
        "indices": torch.randint(0, 9, (30,)),
        "num_weights": 9,
    },
    "rms_norm_grad": {
        "dy": torch.randn(9, 64),
        "x": torch.randn(9, 64),
        "rstd": torch.rand(9),
        "gamma": torch.randn(64),
    },
    "cross_entropy_loss_grad": {
        "grad_loss": torch.tensor(0.5),
        "log_prob": -torch.rand(9, 5),
        "target": torch.randint(0, 5, (9,)),
    },
    "moe_token_permute_grad": {
        "permuted_output_grad": torch.randn(8, 6),
        "sorted_indices": torch.arange(8, dtype=torch.int32),
        "num_topk": 2,
    },
    "conv_tbc_backward": {
        "grad_output": torch.randn(5, 2, 4),
        "input": torch.randn(5, 2, 3),
        "weight": torch.randn(3, 3, 4),
        "bias": torch.randn(4),
        "pad": 1,
        "cube_math_type": 0,
    },
}


@pytest.mark.parametrize("operator", CALLS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tensors_have_the_bits_of_arrays(operator, dtype):
    call = {
        name: value.to(dtype)
        if torch.is_tensor(value) and value.is_floating_point() and name != "rstd"
        else value
        for name, value in CALLS[operator].items()
    }
    arrays = {
        name: tensor_as_array(value) if torch.is_tensor(value) else value
        for name, value in call.items()
    }
    expected = [
        array_as_tensor(array)
        for array in npu_sim.run(operator, deterministic=True, **arrays).outputs.values()
    ]
    with simulated.use(deterministic=True):
        result = getattr(simulated, operator)(**call)
        outs = tuple(torch.empty_like(tensor) for tensor in expected)
        given = getattr(simulated, operator)(**call, out=outs if len(outs) > 1 else outs[0])
    for results in (result, given):
        tensors = results if isinstance(results, tuple) else (results,)
        for tensor, right in zip(tensors, expected, strict=True):
            assert torch.equal(tensor, right)
    assert (given if isinstance(given, tuple) else (given,))[0] is outs[0]


def test_without_pytorch_the_import_error_names_the_extra():
    code = (
        "import sys; sys.modules['torch'] = None; import npu_sim, npu_sim.cli; import npu_sim.torch"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "pip install 'npu_sim[torch]'" in done.stderr


def test_the_package_does_not_load_pytorch():
    arguments = "grad='4x4:fp32', indices='4:int32', num_weights=3"
    call = f"npu_sim.plan('embedding_dense_backward', {arguments})"
    code = f"import sys, npu_sim, npu_sim.aclnn; {call}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_arrays_are_numpy():
    assert isinstance(tensor_as_array(torch.zeros(2)), np.ndarray)
