"""Which operators there are: those of the package in one line each, and those of users.

This module imports nothing of the package but status codes, so every layer may read it; a
declaration is loaded when it is first asked for.
"""

import importlib
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

from npu_sim.status import NpuSimError, UsageError, closest, plain_name, shown

ENTRY_POINTS = "npu_sim.operators"
"""Group of entry points under which other packages offer operators: ``name =
"package.module:OPERATOR"``."""


class OperatorEntry(NamedTuple):
    """Names of one operator.

    Attributes
    ----------
    name
        Name of the operator here: the module name in every room, and the Python function.
    title
        Name in the product documents, without the ``aclnn`` prefix.
    kernels
        Names of the vendor's kernels whose raw planners :func:`npu_sim.tiling.plan_kernel`
        reproduces.
    limits
        Limits that a profile may state for it, under ``documented_limits``.
    home
        Where its declaration is; in ``npu_sim.operators`` when empty.
    """

    name: str
    title: str
    kernels: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    home: str = ""


OPERATORS: tuple[OperatorEntry, ...] = (
    OperatorEntry(
        "embedding_dense_backward",
        "EmbeddingDenseBackward",
        ("embedding_dense_grad_v2",),
        ("scale_bound_bytes",),
    ),
    OperatorEntry(
        "conv_tbc_backward",
        "ConvTbcBackward",
        ("conv_tbc_grad_weight_deterministic",),
        ("kernel_width_at_most", "pad_at_most", "dim_at_most"),
    ),
    OperatorEntry("rms_norm", "RmsNorm", ("rms_norm",), ("last_axis_bytes_at_least",)),
    OperatorEntry(
        "rms_norm_grad", "RmsNormGrad", ("rms_norm_grad",), ("last_axis_bytes_at_least",)
    ),
    OperatorEntry(
        "cross_entropy_loss_grad",
        "CrossEntropyLossGrad",
        ("cross_entropy_loss_grad",),
        ("rows_below",),
    ),
    OperatorEntry("moe_token_permute", "MoeTokenPermute", ("moe_token_permute",)),
    OperatorEntry(
        "moe_token_permute_grad",
        "MoeTokenPermuteGrad",
        ("moe_token_permute_grad",),
        ("num_topk_at_most",),
    ),
    OperatorEntry("moe_token_unpermute", "MoeTokenUnpermute", ("moe_token_unpermute",)),
    OperatorEntry(
        "moe_token_unpermute_grad", "MoeTokenUnpermuteGrad", ("moe_token_unpermute_grad",)
    ),
)
"""The operators of the package."""

OPERATOR_NAMES: tuple[str, ...] = tuple(entry.name for entry in OPERATORS)

_OWN = MappingProxyType({entry.name: entry for entry in OPERATORS})

_registered: dict[str, tuple[OperatorEntry, Any]] = {}
"""Operators that this process registered, by name."""


@cache
def offered_operators() -> tuple[OperatorEntry, ...]:
    """Return the operators that installed packages offer, in the order of their names."""
    from importlib.metadata import (
        entry_points,
    )  # only now: it costs as much to load as all of the package

    found = sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name)
    return tuple(OperatorEntry(point.name, _title(point.name), home=point.value) for point in found)


def _title(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def all_operators() -> tuple[OperatorEntry, ...]:
    """Return every operator: the package's, those of installed packages, and those registered by this process."""
    entries = {
        entry.name: entry
        for entry in (*offered_operators(), *(entry for entry, _ in _registered.values()))
    }
    return (*OPERATORS, *(entry for name, entry in entries.items() if name not in OPERATOR_NAMES))


def find_operator(name: str) -> OperatorEntry | None:
    """Return the entry of an operator by its name here or in the product documents, in any case; None when there is none.

    ``rms_norm_grad``, ``RmsNormGrad``, ``aclnnRmsNormGrad`` and ``rms-norm-grad`` are one operator.

    Raises
    ------
    UsageError
        For what is no name.
    """
    if not isinstance(name, str):
        raise UsageError(
            "operator",
            f"operator = {shown(name)} is no name",
            f"operators: {', '.join(OPERATOR_NAMES)}",
        )
    wanted = plain_name(name).removeprefix("aclnn")
    own = _by_plain_name(OPERATORS).get(wanted) or _by_plain_name(
        tuple(entry for entry, _ in _registered.values())
    ).get(wanted)
    return own or _by_plain_name(offered_operators()).get(wanted)


@cache
def _by_plain_name(entries: tuple[OperatorEntry, ...]) -> dict[str, OperatorEntry]:
    """Return operators by the plain forms of their names; the first one where several have the same."""
    return {
        plain_name(name): entry for entry in reversed(entries) for name in (entry.name, entry.title)
    }


def unknown_operator(name: str) -> UsageError:
    """Return the error for a name that no operator has."""
    names = [one.name for one in all_operators()]
    hint = f"operators: {', '.join(names)}{closest(name, names)}"
    return UsageError("operator", f"operator = {shown(name)}: no such operator", hint)


def find_kernel(kernel: str) -> OperatorEntry | None:
    """Return the operator whose vendor kernel has this name; None when there is none."""
    return next((entry for entry in OPERATORS if kernel in entry.kernels), None)


def operator_of_launch(kernel: str) -> OperatorEntry | None:
    """Return the operator whose vendor kernel profilers print under this name (``EmbeddingDenseGradV2``); None when there is none."""
    return next((entry for entry in OPERATORS if kernel in map(_title, entry.kernels)), None)


def add_operator(entry: OperatorEntry, declaration: Any) -> None:
    """Make a declaration known to this process; see :func:`npu_sim.register`."""
    _registered[entry.name] = (entry, declaration)


def load_operator(name: str) -> Any:
    """Return the declaration of an operator by its name here or in the product documents.

    Raises
    ------
    UsageError
        When there is no such operator.
    """
    entry = _OWN[name] if type(name) is str and name in _OWN else find_operator(name)
    if entry is None:
        raise unknown_operator(name)
    if entry.name in _registered:
        return _registered[entry.name][1]
    return _loaded(entry)


@cache
def _loaded(entry: OperatorEntry) -> Any:
    home, _, attribute = (
        entry.home or f"npu_sim.operators.{entry.name}.declaration:OPERATOR"
    ).partition(":")
    if not entry.home:
        return getattr(importlib.import_module(home), attribute)
    try:
        declaration = getattr(importlib.import_module(home), attribute)
        importlib.import_module("npu_sim.framework.registration").check_declaration(declaration)
    except NpuSimError:
        raise
    except Exception as error:  # a package of somebody else: whatever is wrong with it is said, and breaks nothing but its operator
        message = (
            f"{entry.name} cannot be loaded from {entry.home}: {type(error).__name__}: {error}"
        )
        raise UsageError(
            "operator", message, f"mend the package, or its entry point in the group {ENTRY_POINTS}"
        ) from error
    return declaration
