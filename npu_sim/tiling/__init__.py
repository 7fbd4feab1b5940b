"""Tiling planners: how the product splits a call over its cores and buffers."""

from importlib import import_module
from typing import Any

from npu_sim.cores import profile_of_soc
from npu_sim.registry import OPERATORS, find_kernel
from npu_sim.status import INVALID, AclnnError


def plan_kernel(op: str, soc: str, inputs: dict[str, Any], deterministic: bool = False) -> dict[str, Any]:
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

    Returns
    -------
    dict
        ``status`` ("success" or "failed") and, on success, ``block_dim``, ``tiling_key``, ``workspace_bytes``,
        ``schedule_mode`` where the kernel has one, and ``tiling`` with every field under the vendor's name.
        ConvTbcBackward adds ``route``.

    Raises
    ------
    AclnnError
        161002 for an unknown kernel or SoC, or an input that is missing.
    """
    entry = find_kernel(op)
    if entry is None:
        kernels = ", ".join(kernel for operator in OPERATORS for kernel in operator.kernels)
        raise AclnnError(INVALID, "op", f"op = {op!r}: no planner of that name", f"planners: {kernels}")
    planner = import_module(f"npu_sim.tiling.{entry.name}")
    profile = profile_of_soc(soc)
    try:
        result: dict[str, Any] = planner.plan_kernel(op, inputs, profile.device, deterministic)
    except KeyError as error:
        raise AclnnError(INVALID, "inputs", f"inputs: {error.args[0]!r} is missing", f"given: {', '.join(inputs)}") from None
    return result
