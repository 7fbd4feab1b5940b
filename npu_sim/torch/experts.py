"""Experts of a layer of transformers with the product's routing of tokens, as adapters write them.

The tokens are sorted by expert, pass through grouped matrix products of this CPU, and are added up.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol
from unittest.mock import patch

import torch
from torch import Tensor

from npu_sim.language import Text
from npu_sim.torch.flow import NotReplacedError
from npu_sim.torch.operators import moe_token_permute, moe_token_unpermute
from npu_sim.torch.recorder import spec_of

OPERATOR = "moe_token_permute"
RETURN = "moe_token_unpermute"
OF_EXPERTS = (OPERATOR, RETURN)
"""Operators by which experts are replaced."""


class Replacing(Protocol):
    """What an emulation does with experts."""

    def replaced(
        self,
        operator: str,
        calls: Mapping[str, Mapping[str, Any]],
        compute: Callable[[], Tensor],
        program: Callable[[], Tensor],
    ) -> Tensor:
        """Return ``compute()`` if the product accepts the calls, else ``program()``."""


@contextmanager
def replaced_experts(emulator: Replacing) -> Iterator[None]:
    """Compute the experts of transformers' models with the product's routing in the block."""
    try:
        from transformers.integrations.moe import ExpertsInterface
    except ImportError:
        yield
        return
    original = ExpertsInterface.get_interface

    def get_interface(self: Any, implementation: str, default: Any) -> Any:
        known = original(self, implementation, default)

        def forward(module: Any, tokens: Any, indices: Any, probs: Any) -> Any:
            return emulator.replaced(
                RETURN,
                _calls(tokens, indices, probs),
                lambda: _experts(module, tokens, indices, probs),
                lambda: known(module, tokens, indices, probs),
            )

        return forward

    with patch.object(ExpertsInterface, "get_interface", get_interface):
        yield


def _calls(tokens: Tensor, indices: Tensor, probs: Tensor) -> dict[str, Mapping[str, Any]]:
    """Return the calls of a layer, forward and backward, by operator."""
    count, topk = indices.shape
    permuted = spec_of(tokens, (count * topk, tokens.shape[-1]), copied=True)
    places, weights = f"{count * topk}:int32", spec_of(probs, copied=True)
    rows = spec_of(tokens, copied=True)
    returned = {"permuted_tokens": permuted, "sorted_indices": places, "probs": weights}
    return {
        OPERATOR: {"tokens": rows, "indices": spec_of(indices, copied=True)},
        RETURN: returned,
        "moe_token_permute_grad": {
            "permuted_output_grad": permuted,
            "sorted_indices": places,
            "num_topk": topk,
        },
        "moe_token_unpermute_grad": {**returned, "unpermuted_tokens_grad": rows},
    }


def _experts(module: Any, tokens: Tensor, indices: Tensor, probs: Tensor) -> Tensor:
    """Return the result of a module of experts.

    Raises NotReplacedError for experts with a bias, a norm, or on several devices.
    """
    from transformers.integrations.moe import _grouped_linear

    if module.has_bias or module.has_post_expert_norm or module._is_expert_parallel:
        raise NotReplacedError(Text("its experts have a bias or a norm, or are on several devices"))
    rows, places = moe_token_permute.moe_token_permute(tokens, indices)
    counts = torch.bincount(indices.reshape(-1), minlength=module.num_experts)
    ends = counts.cumsum(0).to(torch.int32)
    first = module.gate_up_proj if module.has_gate else module.up_proj
    rows = _grouped_linear(rows, first, ends, is_transposed=module.is_transposed)
    rows = module._apply_gate(rows) if module.has_gate else module.act_fn(rows)
    rows = _grouped_linear(rows, module.down_proj, ends, is_transposed=module.is_transposed)
    return moe_token_unpermute.moe_token_unpermute(rows, places, probs)
