"""AdamW of all parameters as op-plugin makes it: a call of ApplyAdamWV2 for each.

PyTorch has added 1 to the steps before; op-plugin subtracts it, as the kernel adds it again.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function

from npu_sim.framework.execution import output_array
from npu_sim.framework.target import current_device
from npu_sim.language import Text
from npu_sim.numbers.formats import TensorSpec
from npu_sim.operators import prepare
from npu_sim.status import UsageError
from npu_sim.torch.fused import Forward, FusedCall
from npu_sim.torch.library import tensor_as_array
from npu_sim.torch.recorder import Span, spec_of

__all__: list[str] = []

OPERATOR = "apply_adam_w_v2"
LAUNCHES = Text("each parameter takes one further launch, which subtracts 1 from its step")
UNSCALED = Text(
    "grad_scale and found_inf are ignored on an NPU: nothing is unscaled, and no step is skipped"
)
Tensors = Sequence[Tensor]
STATE = ("var", "m", "v", "max_grad_norm")
"""Tensors that an update changes."""


class _Lists(NamedTuple):
    """Tensors of an update, under PyTorch's names: one of each for every parameter."""

    params: Tensors
    grads: Tensors
    exp_avgs: Tensors
    exp_avg_sqs: Tensors
    state_steps: Tensors
    max_exp_avg_sqs: Tensors | None
    """None without amsgrad."""

    def require_equal_lengths(self) -> None:
        """Raise UsageError for lists that have not one tensor for each parameter."""
        for name, tensors in self._asdict().items():
            if tensors is not None and len(tensors) != len(self.params):
                raise UsageError(
                    name,
                    "{name} has {count} tensors, params has {expected}",
                    "one for each parameter",
                    name=name,
                    count=len(tensors),
                    expected=len(self.params),
                )

    def of_each_parameter(self) -> Iterator[dict[str, Tensor]]:
        """Yield the tensors of each parameter, under the operator's names."""
        lists = {
            "var": self.params,
            "m": self.exp_avgs,
            "v": self.exp_avg_sqs,
            "grad": self.grads,
            "step": self.state_steps,
        }
        if self.max_exp_avg_sqs is not None:
            lists["max_grad_norm"] = self.max_exp_avg_sqs
        for tensors in zip(*lists.values(), strict=True):
            yield dict(zip(lists, tensors, strict=True))


def fused_adamw_(
    params: Tensors,
    grads: Tensors,
    exp_avgs: Tensors,
    exp_avg_sqs: Tensors,
    max_exp_avg_sqs: Tensors,
    state_steps: Tensors,
    *,
    lr: float = 1e-3,
    beta1: float = 0.9,
    beta2: float = 0.999,
    weight_decay: float = 1e-2,
    eps: float = 1e-8,
    amsgrad: bool = False,
    maximize: bool = False,
) -> None:
    """Update parameters and their state in place, as ``torch._fused_adamw_`` does on an NPU.

    ``state_steps`` are the numbers of this update, from 1 on, as PyTorch has them: one element
    each. ``max_exp_avg_sqs`` is empty without ``amsgrad``.

    Raises
    ------
    UsageError
        For lists of other lengths, and tensors that cannot be written; nothing is updated then.
    AclnnError
        For a call that the product refuses; nothing is updated then.
    """
    options = {
        "lr": lr,
        "beta1": beta1,
        "beta2": beta2,
        "weight_decay": weight_decay,
        "eps": eps,
        "amsgrad": amsgrad,
        "maximize": maximize,
    }
    if has_torch_function(params):  # a recorder reads the call, as those of PyTorch's functions
        tensors = (params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps)
        handle_torch_function(fused_adamw_, params, *tensors, **options)
        return
    largest = max_exp_avg_sqs if amsgrad else None
    lists = _Lists(params, grads, exp_avgs, exp_avg_sqs, state_steps, largest)
    lists.require_equal_lengths()
    with torch.no_grad():
        updates = [_checked_update(tensors, options) for tensors in lists.of_each_parameter()]
        for update in updates:
            update()


def _checked_update(tensors: dict[str, Tensor], options: dict[str, Any]) -> Callable[[], Any]:
    """Return a function that updates one parameter; raise what its call would raise."""
    # op-plugin passes storage as one axis, also of a parameter without axes.
    tensors = {
        name: tensor if tensor.dim() else tensor.reshape(1) for name, tensor in tensors.items()
    }
    step = tensors["step"]
    if step.numel() != 1:
        raise UsageError(
            "state_steps",
            "state_steps has a tensor of {count} elements",
            "one element each, the number of this update",
            count=step.numel(),
        )
    arrays: dict[str, Any] = {
        name: tensor_as_array(tensor)
        for name, tensor in {**tensors, "step": step.reshape(1) - 1}.items()
    }
    target = current_device()
    call = prepare(
        OPERATOR,
        product=target.profile,
        deterministic=target.deterministic,
        core_order=target.order.core_order,
        seed=target.order.seed,
        limits=target.limits,
        **arrays,
        **options,
    )
    state = {name: tensors.get(name) for name in STATE}
    for name, tensor in state.items():
        if tensor is not None:
            output_array(name, tensor, TensorSpec.of(arrays[name]), None)
    return partial(call, **arrays, out=tuple(state.values()))


def _fused_adamw(
    span: Span,
    params: Tensors,
    grads: Tensors,
    exp_avgs: Tensors,
    exp_avg_sqs: Tensors,
    max_exp_avg_sqs: Tensors,
    state_steps: Tensors,
    *,
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
    **options: Any,
) -> FusedCall:
    """Return one call for each parameter; op-plugin passes storage as one axis.

    Raises ValueError for a learning rate that is a tensor.
    """
    if torch.is_tensor(options.get("lr")):
        raise ValueError("lr is a tensor: torch_npu has no fused AdamW for it; give a number")
    state = (exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps)
    largest = max_exp_avg_sqs if options.get("amsgrad") else None
    lists = _Lists(params, grads, exp_avgs, exp_avg_sqs, state_steps, largest)
    calls = []
    for tensors in lists.of_each_parameter():
        specs = {
            name: spec_of(tensor, (tensor.numel(),), copied=True)
            for name, tensor in tensors.items()
        }
        calls.append(Forward(OPERATOR, specs | options, tensors["var"]))
    is_scaled = grad_scale is not None or found_inf is not None
    return FusedCall(
        compute=lambda: fused_adamw_(params, grads, *state, **options),
        forward=calls,
        remarks=[UNSCALED] if is_scaled else [],
        when_recorded=LAUNCHES,
    )


def inputs_of(parameter: Tensor) -> dict[str, Any]:
    """Return the call that updates a parameter with a state of its dtype."""
    spec = spec_of(parameter, (parameter.numel(),), copied=True)
    return {**dict.fromkeys(("var", "m", "v", "grad"), spec), "step": "1:fp32"}


def on_optimizer_step(span: Span, optimizer: torch.optim.Optimizer) -> None:
    """List an AdamW that is not fused."""
    if isinstance(optimizer, torch.optim.AdamW) and not all(
        group.get("fused") for group in optimizer.param_groups
    ):
        span.left(
            OPERATOR,
            "AdamW without fused=True: many small kernels for every parameter; with fused=True it "
            "is one call of ApplyAdamWV2 for each",
        )


FUNCTIONS = {torch._fused_adamw_: _fused_adamw, fused_adamw_: _fused_adamw}
