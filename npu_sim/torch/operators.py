"""The five operators on CPU tensors, under the settings of the current context (:func:`npu_sim.torch.use`)."""

from typing import Any

import torch

from npu_sim.ops import run
from npu_sim.settings import Settings, current_device
from npu_sim.torch.memory import array_as_tensor, tensor_as_array

Outputs = tuple[torch.Tensor, ...]


def compute(operator: str, settings: Settings, arguments: dict[str, Any], out: Any = None) -> Outputs:
    """Run an operator on tensors; return its outputs in order.

    Parameters
    ----------
    operator
        Name of the operator.
    settings
        Simulated device.
    arguments
        The operator's arguments; tensors share their memory with the simulator.
    out
        Tensor, or tuple of tensors, to write the results to; new ones when None.
    """
    arrays: dict[str, Any] = {
        name: tensor_as_array(value) if isinstance(value, torch.Tensor) else value for name, value in arguments.items()
    }
    given = (out,) if isinstance(out, torch.Tensor) else out
    result = run(
        operator,
        profile=settings.profile,
        deterministic=settings.deterministic,
        core_order=settings.order.core_order,
        seed=settings.order.seed,
        limits=settings.limits,
        out=None if given is None else tuple(tensor_as_array(one) for one in given),
        **arrays,
    )
    return tuple(given) if given is not None else tuple(array_as_tensor(array) for array in result.outputs.values())


def embedding_dense_backward(
    grad: torch.Tensor,
    indices: torch.Tensor,
    num_weights: int,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the gradient of an embedding table, (num_weights, dim); see :func:`npu_sim.embedding_dense_backward`."""
    arguments = {
        "grad": grad,
        "indices": indices,
        "num_weights": num_weights,
        "padding_idx": padding_idx,
        "scale_grad_by_freq": scale_grad_by_freq,
    }
    return compute("embedding_dense_backward", current_device(), arguments, out)[0]


def conv_tbc_backward(
    grad_output: torch.Tensor,
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    pad: int = 0,
    cube_math_type: int = 0,
    *,
    out: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None = None,
) -> Outputs:
    """Return the gradients of input, weight and bias of a temporal convolution; see :func:`npu_sim.conv_tbc_backward`."""
    arguments = {"grad_output": grad_output, "input": input, "weight": weight, "bias": bias, "pad": pad, "cube_math_type": cube_math_type}
    return compute("conv_tbc_backward", current_device(), arguments, out)


def rms_norm_grad(
    dy: torch.Tensor,
    x: torch.Tensor,
    rstd: torch.Tensor,
    gamma: torch.Tensor,
    *,
    out: tuple[torch.Tensor, torch.Tensor] | None = None,
) -> Outputs:
    """Return dx and dgamma of an RMS normalisation; see :func:`npu_sim.rms_norm_grad`."""
    return compute("rms_norm_grad", current_device(), {"dy": dy, "x": x, "rstd": rstd, "gamma": gamma}, out)


def cross_entropy_loss_grad(
    grad_loss: torch.Tensor,
    log_prob: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the gradient of the logits, (N, C); see :func:`npu_sim.cross_entropy_loss_grad`."""
    arguments = {
        "grad_loss": grad_loss,
        "log_prob": log_prob,
        "target": target,
        "weight": weight,
        "reduction": reduction,
        "ignore_index": ignore_index,
    }
    return compute("cross_entropy_loss_grad", current_device(), arguments, out)[0]


def moe_token_permute_grad(
    permuted_output_grad: torch.Tensor, sorted_indices: torch.Tensor, num_topk: int, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Return the gradient of the tokens, (tokens, hidden); see :func:`npu_sim.moe_token_permute_grad`."""
    arguments = {"permuted_output_grad": permuted_output_grad, "sorted_indices": sorted_indices, "num_topk": num_topk}
    return compute("moe_token_permute_grad", current_device(), arguments, out)[0]
