"""Tiling planners: how the product splits a call over cores and buffers.

Every module reproduces the planner of one vendor kernel, or several that share it, as pure integer
functions. Planners import neither Numba nor anything about operators, but sweeps compile them with
Numba: they use integers, a few floats where the product does, and NamedTuples, and no dicts.

The parameter ``row`` holds the integers of a call, named as the axes of the operator's declaration;
``rules`` holds its documented limits and the switches of a release, from
``configs/releases.yaml``.
"""

from collections.abc import Mapping
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from npu_sim.cores import NPU_ARCH_ASCEND_950, Profile, load_profile
from npu_sim.language import Text
from npu_sim.registry import OPERATORS, OperatorEntry, find_kernel
from npu_sim.status import NotModelledError, UsageError, closest


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
        Name of the kernel, one of ``OperatorEntry.kernels``: for instance ``rms_norm_grad`` or
        ``embedding_dense_grad_v2``.
    soc
        Name of the SoC, for instance ``Ascend910B1``.
    inputs
        Inputs of the kernel by name, as in the golden data.
    deterministic
        The determinism switch.
    release
        Release of the product's software; the default when None.

    Returns
    -------
    dict
        ``status`` ("success" or "failed") and, on success, ``block_dim``, ``tiling_key``,
        ``workspace_bytes``, ``schedule_mode`` where the kernel has one, and ``tiling`` with every
        field under the vendor's name. ConvTbcBackward adds ``route``.

    Raises
    ------
    UsageError
        For an unknown kernel, SoC or release, an input that is missing, and (as
        :class:`~npu_sim.status.NotModelledError`) a kernel without planner on the product.
    """
    entry = find_kernel(op)
    if entry is None:
        kernels = ", ".join(
            dict.fromkeys(
                kernel
                for operator in OPERATORS
                for kernel in (*operator.kernels, *operator.kernels_of_950)
            )
        )
        raise UsageError(
            "op",
            Text("op = {op}: no planner of that name", op=repr(op)),
            Text(
                "planners: {kernels}{hint}", kernels=kernels, hint=closest(op, kernels.split(", "))
            ),
        )
    try:
        return raw_plan(entry, op, inputs, load_profile(None, soc, release), deterministic)
    except KeyError as error:
        raise UsageError(
            "inputs",
            Text("inputs: {key} is missing", key=repr(error.args[0])),
            Text("given: {inputs}", inputs=", ".join(inputs)),
        ) from None


def raw_plan(
    entry: OperatorEntry, op: str, inputs: Mapping[str, Any], profile: Profile, deterministic: bool
) -> dict[str, Any]:
    """Like :func:`plan_kernel`, for a loaded profile and without its errors.

    Raises
    ------
    NotModelledError
        When npu_sim has no planner of the kernel on the product.
    """
    is_950 = profile.npu_arch == NPU_ARCH_ASCEND_950
    if op not in (entry.kernels_of_950 if is_950 else entry.kernels):
        message = Text(
            "op = {op}: npu_sim has no planner of this kernel on {product_title}",
            op=repr(op),
            product_title=profile.product.title,
        )
        raise NotModelledError("op", message, "choose another product")
    family = "npu_sim.tiling.ascend_950" if is_950 else "npu_sim.tiling"
    rules = SimpleNamespace(**profile.release_switches(entry.name))
    result: dict[str, Any] = import_module(f"{family}.{entry.name}").plan_kernel(
        op, inputs, profile.device, deterministic, rules
    )
    return result
