"""Tiling planners: how the product splits a call over its cores and buffers."""

from collections.abc import Mapping
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from npu_sim.cores import Profile, load_profile
from npu_sim.registry import OPERATORS, OperatorEntry, find_kernel
from npu_sim.status import UsageError, closest


def plan_kernel(
    op: str,
    soc: str,
    inputs: dict[str, Any],
    deterministic: bool = False,
    release: str | None = None,
) -> dict[str, Any]:
    """Run the raw planner of one vendor kernel, without the contract of its operator.

    Parameters
    ----------
    op
        Name of the kernel: ``embedding_dense_grad_v2``, ``conv_tbc_grad_weight_deterministic``, ``rms_norm_grad``,
        ``cross_entropy_loss_grad`` or ``moe_token_permute_grad``.
    soc
        Name of the SoC, for instance ``Ascend910B1``.
    inputs
        The kernel's inputs by name, as in the golden data.
    deterministic
        The determinism switch.
    release
        Release of the product's software; the newest when None.

    Returns
    -------
    dict
        ``status`` ("success" or "failed") and, on success, ``block_dim``, ``tiling_key``, ``workspace_bytes``,
        ``schedule_mode`` where the kernel has one, and ``tiling`` with every field under the vendor's name.
        ConvTbcBackward adds ``route``.

    Raises
    ------
    UsageError
        For an unknown kernel, SoC or release, or an input that is missing.
    """
    entry = find_kernel(op)
    if entry is None:
        kernels = ", ".join(kernel for operator in OPERATORS for kernel in operator.kernels)
        raise UsageError(
            "op",
            f"op = {op!r}: no planner of that name",
            f"planners: {kernels}{closest(op, kernels.split(', '))}",
        )
    try:
        return raw_plan(entry, op, inputs, load_profile(None, soc, release), deterministic)
    except KeyError as error:
        raise UsageError(
            "inputs", f"inputs: {error.args[0]!r} is missing", f"given: {', '.join(inputs)}"
        ) from None


def raw_plan(
    entry: OperatorEntry, op: str, inputs: Mapping[str, Any], profile: Profile, deterministic: bool
) -> dict[str, Any]:
    """Run the raw planner of a vendor kernel of an operator on a loaded profile; as :func:`plan_kernel`, whose errors are not made here."""
    rules = SimpleNamespace(**profile.release_switches(entry.name))
    result: dict[str, Any] = import_module(f"npu_sim.tiling.{entry.name}").plan_kernel(
        op, inputs, profile.device, deterministic, rules
    )
    return result
