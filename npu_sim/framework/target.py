"""Target of a call: the simulated device, its switches, and the order of atomic additions."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from npu_sim.cores import Profile, load_profile
from npu_sim.language import Text
from npu_sim.status import UsageError, closest, shown

Limits = Literal["documented", "hardware"]
LIMITS: tuple[Limits, ...] = ("documented", "hardware")
CoreOrder = Literal["sequential", "reverse", "round_robin", "random"]
CORE_ORDERS: tuple[CoreOrder, ...] = ("sequential", "reverse", "round_robin", "random")
"""Orders in which the atomic additions of different cores may arrive (specification page
``numerics``); kernels take the position."""


@dataclass(frozen=True)
class Order:
    """One of the legal orders of atomic additions."""

    core_order: CoreOrder = "sequential"
    """One of ``CORE_ORDERS``."""
    seed: int = 0
    """Seed of ``random``; other orders ignore it."""

    def __post_init__(self) -> None:
        if not isinstance(self.core_order, str) or self.core_order not in CORE_ORDERS:
            message = Text(
                "core_order = {core_order} is not an order", core_order=shown(self.core_order)
            )
            hint = Text(
                "orders: {core_orders}{hint}",
                core_orders=", ".join(CORE_ORDERS),
                hint=closest(self.core_order, CORE_ORDERS),
            )
            raise UsageError("core_order", message, hint)
        if not isinstance(self.seed, int | np.integer) or not 0 <= self.seed < 2**64:
            message = Text("seed = {seed} is not an unsigned 64-bit number", seed=shown(self.seed))
            raise UsageError("seed", message, "0 <= seed < 2^64")

    @property
    def code(self) -> int:
        """Position in ``CORE_ORDERS``, as kernels take it."""
        return CORE_ORDERS.index(self.core_order)


@dataclass(frozen=True)
class Target:
    """Everything about a call that is not one of its arguments."""

    profile: Profile
    """Product, SoC and release."""
    deterministic: bool = False
    """The determinism switch; off by default, as in the product."""
    order: Order = Order()
    """Order in which the atomic additions of different cores arrive."""
    limits: Limits = "documented"
    """``documented`` or ``hardware``."""


def target_of(
    product: str | Path | Profile | None = None,
    soc: str | None = None,
    release: str | None = None,
    deterministic: bool = False,
    limits: str = "documented",
    core_order: CoreOrder = "sequential",
    seed: int = 0,
) -> Target:
    """Return the target that the keywords of a public function name.

    Raises UsageError for an unknown product, SoC, release, order or set of limits, and for a switch
    that is neither True nor False.
    """
    return Target(
        load_profile(product, soc, release),
        require_bool("deterministic", deterministic),
        Order(core_order, seed),
        require_limits(limits),
    )


def require_limits(limits: Any) -> Limits:
    """Check the ``limits`` option and return it."""
    if isinstance(limits, str) and limits in LIMITS:
        return LIMITS[LIMITS.index(limits)]
    message = Text("limits = {limits} is not a set of limits", limits=shown(limits))
    hint = Text("one of: {limits}{hint}", limits=", ".join(LIMITS), hint=closest(limits, LIMITS))
    raise UsageError("limits", message, hint)


def require_bool(name: str, value: Any) -> bool:
    """Check that an option or attribute is a switch and return it."""
    if not isinstance(value, bool | np.bool_):
        message = Text("{name} must be True or False, got {value}", name=name, value=shown(value))
        raise UsageError(name, message, Text("{name}: True or False", name=name))
    return bool(value)
