"""Functions of ``torch_npu`` whose operators are not modelled, computed by PyTorch."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

HEADS_AXES = {"BSND": (0, 2, 1, 3), "BNSD": (0, 1, 2, 3), "BSH": (0, 2, 1, 3), "SBH": (1, 2, 0, 3)}
"""Axes of a tensor of four axes that give (batch, heads, tokens, columns), by layout."""
CAUSAL = (2, 3)
"""Values of ``sparse_mode`` with a lower triangle of true scores, whatever the mask."""


def npu_fusion_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    head_num: int,
    input_layout: str,
    pse: Tensor | None = None,
    padding_mask: Tensor | None = None,
    atten_mask: Tensor | None = None,
    scale: float = 1.0,
    keep_prob: float = 1.0,
    pre_tockens: int = 2147483647,
    next_tockens: int = 2147483647,
    inner_precise: int = 0,
    prefix: Sequence[int] | None = None,
    actual_seq_qlen: Sequence[int] | None = None,
    actual_seq_kvlen: Sequence[int] | None = None,
    sparse_mode: int = 0,
    **_: Any,
) -> tuple[Any, ...]:
    """Return (attention, softmax_max, softmax_sum, softmax, seed, offset, number).

    ``scaled_dot_product_attention`` computes the first; the others are empty. ``pre_tockens`` and
    ``next_tockens`` limit nothing.
    """
    is_causal = sparse_mode in CAUSAL
    mask: Tensor | None = None
    if not is_causal:
        mask = pse if atten_mask is None else ~atten_mask.bool()  # true elements are left out
        if pse is not None and atten_mask is not None:
            mask = pse.masked_fill(atten_mask.bool(), -torch.inf)
    options: dict[str, Any] = {"scale": scale, "dropout_p": 1 - keep_prob, "is_causal": is_causal}
    if input_layout == "TND":
        ends = actual_seq_qlen, actual_seq_kvlen
        result = _of_sequences(query, key, value, *ends, options)
    else:
        columns = query.shape[-1] // (head_num if input_layout in ("BSH", "SBH") else 1)
        order = HEADS_AXES[input_layout]
        q, k, v = (_heads(tensor, columns, order) for tensor in (query, key, value))
        options["attn_mask"] = mask
        result = _attention(q, k, v, options).permute(_inverse(order)).reshape(query.shape)
    empty = query.new_empty(0, dtype=torch.float32)
    return result, empty, empty.clone(), empty.clone(), 0, 0, 0


def _heads(tensor: Tensor, columns: int, order: tuple[int, ...]) -> Tensor:
    """Return a tensor as (batch, heads, tokens, columns)."""
    whole = tensor if tensor.dim() == len(order) else tensor.unflatten(-1, (-1, columns))
    return whole.permute(order)


def _inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(order.index(axis) for axis in range(len(order)))


def _attention(query: Tensor, key: Tensor, value: Tensor, options: dict[str, Any]) -> Tensor:
    groups = query.shape[1] // key.shape[1]
    key, value = (tensor.repeat_interleave(groups, 1) for tensor in (key, value))
    return functional.scaled_dot_product_attention(query, key, value, **options)


def _of_sequences(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_ends: Sequence[int] | None,
    key_ends: Sequence[int] | None,
    options: dict[str, Any],
) -> Tensor:
    """Return the attention of sequences that follow each other on the first axis (T, N, D)."""
    ends = [[len(query)] if query_ends is None else [int(end) for end in query_ends]]
    ends += [ends[0] if key_ends is None else [int(end) for end in key_ends]]
    starts = [[0, *places[:-1]] for places in ends]
    parts = []
    for first, last, key_first, key_last in zip(
        starts[0], ends[0], starts[1], ends[1], strict=True
    ):
        rows = (query[first:last], key[key_first:key_last], value[key_first:key_last])
        q, k, v = (part.transpose(0, 1)[None] for part in rows)
        parts.append(_attention(q, k, v, options)[0].transpose(0, 1))
    return torch.cat(parts)


def npu_grouped_matmul(
    x: Sequence[Tensor],
    weight: Sequence[Tensor],
    *,
    bias: Sequence[Tensor] | None = None,
    group_list: Any = None,
    split_item: int = 0,
    group_type: int = -1,
    group_list_type: int = 0,
    **_: Any,
) -> list[Tensor]:
    """Return the products of groups of rows of x with the weight of each group."""
    weights = list(weight[0]) if len(weight) == 1 and weight[0].dim() == 3 else list(weight)
    rows = list(x)
    if len(rows) == 1 and group_list is not None:
        counts = torch.as_tensor(group_list, device="cpu")
        if group_list_type == 0:  # ends, not numbers of rows
            counts = torch.diff(counts, prepend=counts.new_zeros(1))
        rows = list(rows[0].split(counts.tolist()))
    products = [part @ matrix for part, matrix in zip(rows, weights, strict=True)]
    if bias is not None:
        products = [part + added for part, added in zip(products, bias, strict=True)]
    return [torch.cat(products)] if split_item in (2, 3) else products


def npu_fast_gelu(self: Tensor) -> Tensor:
    """Return x * sigmoid(1.702 * x)."""
    return self * torch.sigmoid(1.702 * self)


def npu_gelu(self: Tensor, *, approximate: str = "none") -> Tensor:
    """Return the gelu."""
    return functional.gelu(self, approximate=approximate)


def npu_scaled_masked_softmax(
    x: Tensor, mask: Tensor, scale: float = 1.0, fixed_triu_mask: bool = False
) -> Tensor:
    """Return the softmax of scale * x, without the elements where the mask is true."""
    left_out = torch.ones_like(x, dtype=torch.bool).triu(1) if fixed_triu_mask else mask.bool()
    return torch.softmax((scale * x).masked_fill(left_out, -10000.0), -1)


def npu_dtype_cast(self: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a tensor in another dtype."""
    return self.to(dtype)


def npu_format_cast(self: Tensor, acl_format: int, **_: Any) -> Tensor:
    """Return the tensor: the CPU has one format."""
    return self


def get_npu_format(self: Tensor) -> int:
    """Return the number of the format ND."""
    return 2
