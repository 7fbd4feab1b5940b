"""Tensors whose elements are not what lies in their memory, and tensors without memory."""

import numpy as np
import pytest

torch = pytest.importorskip(
    "torch", reason="PyTorch is not installed: pip install 'npu_sim[torch]'"
)

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

import npu_sim  # noqa: E402
import npu_sim.torch as simulated  # noqa: E402
from npu_sim.numbers.arrays import as_array, memory_of  # noqa: E402
from npu_sim.torch.library import tensor_as_array  # noqa: E402

VALUES = torch.arange(1.0, 33).reshape(2, 16)
GAMMA = torch.ones(16)


def negative(values):
    """Return a tensor of the same values, stored with the opposite sign and the negative bit."""
    tensor = torch._neg_view(-values)
    assert tensor.is_neg()
    assert torch.equal(tensor, values)
    return tensor


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("convert", [as_array, tensor_as_array])
def test_the_negative_bit_of_inputs_is_resolved(convert, dtype):
    values = VALUES.to(dtype)
    array = convert(negative(values))
    np.testing.assert_array_equal(array, as_array(values))
    imaginary = torch.complex(torch.zeros_like(VALUES), -VALUES).conj().imag
    np.testing.assert_array_equal(convert(imaginary), VALUES.numpy())


def test_the_conjugate_bit_of_inputs_is_resolved():
    tensor = torch.complex(VALUES, VALUES).conj()
    np.testing.assert_array_equal(as_array(tensor), VALUES.numpy() * (1 - 1j))


def test_results_of_an_input_with_the_negative_bit_have_the_right_sign():
    expected = npu_sim.rms_norm(VALUES.numpy(), GAMMA.numpy())[0]
    np.testing.assert_array_equal(npu_sim.rms_norm(negative(VALUES), GAMMA)[0], expected)
    assert torch.equal(
        simulated.npu_rms_norm(negative(VALUES), GAMMA)[0], torch.from_numpy(expected)
    )


@pytest.mark.parametrize("package", [npu_sim, simulated])
def test_results_are_not_written_to_a_tensor_with_the_negative_bit(package):
    grad, indices = torch.ones(3, 4), torch.tensor([0, 1, 1])
    out = negative(torch.zeros(2, 4))
    with pytest.raises(npu_sim.UsageError, match="cannot be written in place"):
        package.embedding_dense_backward(grad, indices, num_weights=2, out=out)
    assert torch.equal(out, torch.zeros(2, 4))


def fake():
    with FakeTensorMode():
        return torch.ones(2, 16)


def freed(size=0):
    tensor = torch.ones(2, 16)
    tensor.untyped_storage().resize_(size)
    return tensor


def freed_view():
    tensor = torch.ones(3, 16)
    view = tensor[1:]
    tensor.untyped_storage().resize_(0)
    return view


WITHOUT_MEMORY = {
    "fake": fake,
    "part of a fake": lambda: fake()[1:],
    "zero": lambda: torch._efficientzerotensor((2, 16)),
    "functional": lambda: torch._to_functional_tensor(torch.ones(2, 16)),
    "freed": freed,
    "freed in bfloat16": lambda: freed_view().view(torch.bfloat16),
    "view of a freed one": freed_view,
    "cut": lambda: freed(8),
}


@pytest.mark.parametrize("convert", [as_array, memory_of, tensor_as_array])
@pytest.mark.parametrize("kind", WITHOUT_MEMORY)
def test_tensors_without_memory_are_refused(kind, convert):
    with pytest.raises(TypeError, match="has no memory for its elements"):
        convert(WITHOUT_MEMORY[kind]())


def test_a_refused_tensor_is_named():
    with pytest.raises(npu_sim.UsageError, match=r"x: this torch\.Tensor has no memory"):
        npu_sim.rms_norm(freed(), GAMMA)


@pytest.mark.parametrize(
    "tensor",
    [VALUES[1:, ::2], VALUES.T, torch.ones(1).expand(3, 4), torch.zeros(0, 4), torch.tensor(2.0)],
)
def test_views_and_empty_tensors_have_memory(tensor):
    array = memory_of(tensor)
    assert array.shape == tuple(tensor.shape)
    np.testing.assert_array_equal(array, tensor.numpy())


def written(call, out):
    """Return a loss whose gradient needs ``out`` as it was before the call wrote it."""
    factor = torch.ones_like(out, requires_grad=True)
    loss = (factor * out).sum()
    call()
    return loss


@pytest.mark.parametrize("package", [npu_sim, simulated])
def test_autograd_knows_of_results_that_are_written(package):
    out = torch.zeros(2, 4)
    loss = written(lambda: package.swi_glu(torch.ones(2, 8), out=out), out)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_autograd_knows_of_updates_in_place():
    state = {name: torch.zeros(4) for name in ("var", "m", "v")}
    for tensor in state.values():
        lists = [[state["var"]], [torch.ones(4)], [state["m"]], [state["v"]], []]
        loss = written(
            lambda lists=lists: simulated.fused_adamw_(*lists, [torch.tensor(1.0)]), tensor
        )
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


@pytest.mark.parametrize("recorded", ["x", "out"])
def test_results_that_autograd_records_are_not_written(recorded):
    tensors = {"x": torch.ones(2, 8), "out": torch.zeros(2, 4)}
    tensors[recorded].requires_grad_()
    with pytest.raises(RuntimeError, match=r"requires grad, and calls with out= have no gradient"):
        simulated.swi_glu(**tensors)
    assert not tensors["out"].any()
    with torch.no_grad():
        simulated.swi_glu(**tensors)
    assert tensors["out"].all()
