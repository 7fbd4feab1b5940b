"""Tiling planners: how the product splits a call over cores and buffers.

Every module reproduces the planner of one vendor kernel, or several that share it, as pure integer
functions. Planners import neither Numba nor anything about operators, but sweeps compile them with
Numba: they use integers, a few floats where the product does, and NamedTuples, and no dicts.

A planner module has ``tile(problem, device, rules)``. ``problem`` holds the integers of a call that
the planner reads, named as the axes of the operator's declaration, so that a row of the operator is
passed as it is. Where the planner counts otherwise, ``tile_row(row, device, rules)`` converts.
``rules`` holds documented limits and the switches of a release, from ``configs/releases.yaml``.
``KERNELS`` has the raw planners by kernel: ``problem_of(inputs, rules)`` reads what the product's
planner gets, :func:`~npu_sim.tiling.common.raw_planner` does the rest.
"""

from collections.abc import Mapping
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from npu_sim.cores import Profile, load_profile
from npu_sim.language import Text
from npu_sim.registry import OPERATORS, OperatorEntry, find_kernel
from npu_sim.status import NotModelledError, UsageError, closest
from npu_sim.tiling.common import RawPlanner


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
            dict.fromkeys(kernel for operator in OPERATORS for kernel in operator.all_kernels)
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
    if op not in entry.kernels_on(profile.family):
        message = Text(
            "op = {op}: npu_sim has no planner of this kernel on {product_title}",
            op=repr(op),
            product_title=profile.product.title,
        )
        raise NotModelledError("op", message, "choose another product")
    family = f"npu_sim.tiling.{profile.family}".removesuffix(".")
    rules = SimpleNamespace(**profile.release_switches(entry.name))
    planner: RawPlanner = import_module(f"{family}.{entry.name}").KERNELS[op]
    return planner({**inputs, "deterministic": deterministic}, profile.device, rules)
