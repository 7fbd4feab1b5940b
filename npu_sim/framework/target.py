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
            raise UsageError(
                "core_order",
                Text(
                    "core_order = {core_order} is not an order", core_order=shown(self.core_order)
                ),
                Text(
                    "orders: {core_orders}{hint}",
                    core_orders=", ".join(CORE_ORDERS),
                    hint=closest(self.core_order, CORE_ORDERS),
                ),
            )
        if not isinstance(self.seed, int | np.integer) or not 0 <= self.seed < 2**64:
            raise UsageError(
                "seed",
                "seed = {seed} is not an unsigned 64-bit number",
                "0 <= seed < 2^64",
                seed=shown(self.seed),
            )

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
    raise UsageError(
        "limits",
        Text("limits = {limits} is not a set of limits", limits=shown(limits)),
        Text("one of: {limits}{hint}", limits=", ".join(LIMITS), hint=closest(limits, LIMITS)),
    )


def require_bool(name: str, value: Any) -> bool:
    """Check that an option or attribute is a switch and return it."""
    if not isinstance(value, bool | np.bool_):
        raise UsageError(
            name,
            "{name} must be True or False, got {value}",
            "{name}: True or False",
            name=name,
            value=shown(value),
        )
    return bool(value)
