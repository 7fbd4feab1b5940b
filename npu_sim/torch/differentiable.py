"""Functions whose forward is PyTorch's and whose backward is the simulated operator.

The simulated device is the one chosen where ``backward`` is called; when none was chosen there, the one of the forward call.
"""

from typing import Any

import torch
from torch.autograd.function import once_differentiable
from torch.nn import functional

from npu_sim.settings import Settings, chosen_device, current_device
from npu_sim.torch.forward import cross_entropy_forward, moe_token_permute_forward, rms_norm_forward
from npu_sim.torch.operators import compute

Gradients = tuple[torch.Tensor | None, ...]


def _device(ctx: Any) -> Settings:
    settings: Settings = chosen_device() or ctx.settings
    return settings


class _Embedding(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, indices: torch.Tensor, weight: torch.Tensor, padding_idx: int, scale_grad_by_freq: bool) -> torch.Tensor:
        ctx.settings = current_device()
        ctx.save_for_backward(indices)
        ctx.call = {"num_weights": weight.shape[0], "padding_idx": padding_idx, "scale_grad_by_freq": scale_grad_by_freq}
        return functional.embedding(indices, weight)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: torch.Tensor) -> Gradients:
        (indices,) = ctx.saved_tensors
        tensors = {"grad": grad.reshape(-1, grad.shape[-1]), "indices": indices.reshape(-1)}
        (weight_grad,) = compute("embedding_dense_backward", _device(ctx), {**tensors, **ctx.call})
        return None, weight_grad, None, None


class _ConvTbc(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, pad: int, cube_math_type: int) -> torch.Tensor:
        ctx.settings = current_device()
        ctx.save_for_backward(input, weight, bias)
        ctx.call = {"pad": pad, "cube_math_type": cube_math_type}
        return torch.conv_tbc(input, weight, bias, pad)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: torch.Tensor) -> Gradients:
        input, weight, bias = ctx.saved_tensors
        tensors = {"grad_output": grad, "input": input, "weight": weight, "bias": bias}
        return *compute("conv_tbc_backward", _device(ctx), {**tensors, **ctx.call}), None, None


class RmsNorm(torch.autograd.Function):  # type: ignore[misc]
    """(x, gamma, epsilon) to (y, rstd); rstd carries no gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, gamma: torch.Tensor, epsilon: float) -> tuple[torch.Tensor, torch.Tensor]:
        """Normalise, and keep what the gradient needs."""
        ctx.settings = current_device()
        y, rstd = rms_norm_forward(x, gamma, epsilon)
        ctx.save_for_backward(x, rstd, gamma)
        ctx.mark_non_differentiable(rstd)
        return y, rstd

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, dy: torch.Tensor, _: Any) -> Gradients:
        """Return the gradients of x and gamma."""
        x, rstd, gamma = (tensor.contiguous() for tensor in ctx.saved_tensors)
        dx, dgamma = compute("rms_norm_grad", _device(ctx), {"dy": dy.contiguous(), "x": x, "rstd": rstd, "gamma": gamma})
        return dx, dgamma.to(gamma.dtype), None


class CrossEntropy(torch.autograd.Function):  # type: ignore[misc]
    """(logits, target, weight, reduction, ignore_index, label_smoothing) to (loss, log_prob); log_prob carries no gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        logits: torch.Tensor,
        target: torch.Tensor,
        weight: torch.Tensor | None,
        reduction: str,
        ignore_index: int,
        label_smoothing: float,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute the loss, and keep what the gradient needs."""
        ctx.settings = current_device()
        loss, log_prob = cross_entropy_forward(logits, target, weight, reduction, ignore_index, label_smoothing)
        ctx.save_for_backward(log_prob, target, weight)
        ctx.call = {"reduction": reduction, "ignore_index": ignore_index, "label_smoothing": label_smoothing}
        ctx.mark_non_differentiable(log_prob)
        return loss, log_prob

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad_loss: torch.Tensor, _: Any) -> Gradients:
        """Return the gradient of the logits."""
        log_prob, target, weight = ctx.saved_tensors
        tensors = {"grad_loss": grad_loss.contiguous(), "log_prob": log_prob.contiguous(), "target": target.contiguous(), "weight": weight}
        (logits_grad,) = compute("cross_entropy_loss_grad", _device(ctx), {**tensors, **ctx.call})
        return logits_grad, None, None, None, None, None


class MoeTokenPermute(torch.autograd.Function):  # type: ignore[misc]
    """(tokens, indices, num_out_tokens) to (permuted tokens, sorted indices); the indices carry no gradient."""

    @staticmethod
    def forward(ctx: Any, tokens: torch.Tensor, indices: torch.Tensor, num_out_tokens: int | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Permute, and keep what the gradient needs."""
        ctx.settings = current_device()
        permuted, sorted_indices, ctx.topk = moe_token_permute_forward(tokens, indices, num_out_tokens)
        ctx.save_for_backward(sorted_indices)
        ctx.mark_non_differentiable(sorted_indices)
        return permuted, sorted_indices

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: torch.Tensor, _: Any) -> Gradients:
        """Return the gradient of the tokens."""
        (sorted_indices,) = ctx.saved_tensors
        arguments = {"permuted_output_grad": grad.contiguous(), "sorted_indices": sorted_indices, "num_topk": ctx.topk}
        (tokens_grad,) = compute("moe_token_permute_grad", _device(ctx), arguments)
        return tokens_grad, None, None


def embedding(input: torch.Tensor, weight: torch.Tensor, padding_idx: int | None = None, scale_grad_by_freq: bool = False) -> torch.Tensor:
    """Look rows of ``weight`` up, as :func:`torch.nn.functional.embedding`; its gradient is EmbeddingDenseBackward.

    A negative ``padding_idx`` counts from the end of the table.
    """
    if padding_idx is None:
        padding = -1
    else:
        padding = padding_idx + weight.shape[0] if padding_idx < 0 else padding_idx
        if not 0 <= padding < weight.shape[0]:
            raise ValueError(f"padding_idx = {padding_idx} is not a row of a table of {weight.shape[0]}")
    result: torch.Tensor = _Embedding.apply(input, weight, padding, scale_grad_by_freq)
    return result


def conv_tbc(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, pad: int = 0, cube_math_type: int = 0) -> torch.Tensor:
    """Temporal convolution, as :func:`torch.conv_tbc`; its gradients are ConvTbcBackward.

    ``cube_math_type`` is the product's: 0 keeps fp32 (Atlas A2, A3); 1, legal on every product, lets the cube unit take fp32 as hf32
    (Atlas A2, A3) or as fp16 (Atlas training series).
    """
    result: torch.Tensor = _ConvTbc.apply(input, weight, bias, pad, cube_math_type)
    return result


def rms_norm(input: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """Normalise over the axes of ``weight``, as :func:`torch.nn.functional.rms_norm`; its gradients are RmsNormGrad."""
    result: torch.Tensor = RmsNorm.apply(input, weight, eps)[0]
    return result


def cross_entropy(
    input: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> torch.Tensor:
    """Cross entropy of logits (N, C), as :func:`torch.nn.functional.cross_entropy`; its gradient is CrossEntropyLossGrad."""
    result: torch.Tensor = CrossEntropy.apply(input, target, weight, reduction, ignore_index, 0.0)[0]
    return result


def moe_token_permute(tokens: torch.Tensor, indices: torch.Tensor, num_out_tokens: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Sort copies of tokens by expert; return them and where each went. The gradient is MoeTokenPermuteGrad."""
    permuted, sorted_indices = MoeTokenPermute.apply(tokens, indices, num_out_tokens)
    return permuted, sorted_indices
