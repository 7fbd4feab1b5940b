"""Optimizers whose updates the operators compute."""

from collections.abc import Callable, Iterable
from typing import Any

import torch

from npu_sim.torch.operators.apply_adam_w_v2 import fused_adamw_

STATE = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")


class AdamW(torch.optim.Optimizer):  # type: ignore[misc]
    """AdamW as :class:`torch.optim.AdamW` with ``fused=True`` runs it on an NPU.

    ApplyAdamWV2 updates each parameter, on the product of :func:`npu_sim.torch.use`. The state is
    that of PyTorch's optimizer, so that either loads the other's ``state_dict``. Arguments of
    PyTorch that choose among its own implementations (``foreach``, ``capturable``,
    ``differentiable``, ``fused``) do not exist: there is one.

    Parameters
    ----------
    params, lr, betas, eps, weight_decay, amsgrad, maximize
        As for :class:`torch.optim.AdamW`; ``lr`` is a number, not a tensor.

    Raises
    ------
    ValueError
        For numbers that :class:`torch.optim.AdamW` refuses.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
        }
        # PyTorch checks the numbers.
        torch.optim.AdamW([torch.empty(0)], lr, betas, eps, weight_decay)
        super().__init__(params, defaults)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update all parameters that have a gradient; return the result of ``closure``.

        Raises AclnnError for a call that the product refuses; its group is not updated then.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            params = [parameter for parameter in group["params"] if parameter.grad is not None]
            states = [self._state_of(parameter, group["amsgrad"]) for parameter in params]
            steps = [state["step"] + 1 for state in states]
            first, second, largest = (
                [state[name] for state in states if name in state] for name in STATE
            )
            fused_adamw_(
                params,
                [parameter.grad for parameter in params],
                first,
                second,
                largest if group["amsgrad"] else [],
                steps,
                lr=group["lr"],
                beta1=group["betas"][0],
                beta2=group["betas"][1],
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                amsgrad=group["amsgrad"],
                maximize=group["maximize"],
            )
            for state, step in zip(states, steps, strict=True):
                state["step"] = step
        return loss

    def _state_of(self, parameter: torch.Tensor, amsgrad: bool) -> dict[str, Any]:
        """Return the state of a parameter, which begins with zeros."""
        state: dict[str, Any] = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32)
            for name in STATE if amsgrad else STATE[:2]:
                state[name] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        return state
