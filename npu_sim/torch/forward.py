"""Forward passes of the five operators: plain PyTorch, computed in fp32 and rounded once, as the product documents define them.

Only what the backward operators need of a forward is simulated in its values, nothing in its order of additions.
"""

import torch
from torch.nn import functional

from npu_sim.status import INVALID, AclnnError


def rms_norm_forward(x: torch.Tensor, gamma: torch.Tensor, epsilon: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Return y in the dtype of ``x``, and rstd in fp32 with the shape of ``x`` and 1 for the axes of gamma.

    y = x * rstd * gamma with rstd = 1 / sqrt(mean(x * x) + epsilon) over the axes of gamma.
    """
    axes = tuple(range(x.dim() - gamma.dim(), x.dim()))
    wide = x.float()
    rstd = torch.rsqrt((wide * wide).mean(axes, keepdim=True) + epsilon)
    return (wide * rstd * gamma.float()).to(x.dtype), rstd


def cross_entropy_forward(
    logits: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the loss, 0-D or (N,), and the log-probabilities (N, C), both in the dtype of the logits."""
    log_prob = functional.log_softmax(logits.float(), dim=1)
    loss = functional.cross_entropy(
        log_prob, target, weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing
    )
    return loss.to(logits.dtype), log_prob.to(logits.dtype)


def moe_token_permute_forward(
    tokens: torch.Tensor, indices: torch.Tensor, num_out_tokens: int | None
) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Sort copies of tokens by expert; return them, where each copy went (int32, (tokens * topk,)), and topk.

    Copy i of the flattened indices is token i // topk and goes to row sorted_indices[i]; rows from ``num_out_tokens`` on are dropped
    (0 and None drop nothing, a negative number counts from the end).

    Raises
    ------
    AclnnError
        161002 for tokens that are not 2-D or indices that do not belong to them.
    """
    if tokens.dim() != 2 or indices.dim() not in (1, 2) or indices.shape[0] != tokens.shape[0]:
        message = f"tokens {tuple(tokens.shape)} and indices {tuple(indices.shape)} do not belong together"
        raise AclnnError(INVALID, "indices", message, "tokens: (tokens, hidden); indices: (tokens, topk) or (tokens,)")
    topk = indices.shape[1] if indices.dim() == 2 else 1
    by_expert = torch.argsort(indices.reshape(-1), stable=True)
    sorted_indices = torch.argsort(by_expert, stable=True).to(torch.int32)
    kept = by_expert[:num_out_tokens] if num_out_tokens else by_expert
    return tokens.index_select(0, kept // topk), sorted_indices, topk
