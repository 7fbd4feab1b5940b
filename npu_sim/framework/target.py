"""Target of a call: the simulated device, its switches, and the order of atomic additions.

Front ends whose calls do not name a target use that of the context: every thread and every
asynchronous task has its own (:mod:`contextvars`).
"""

from contextlib import ContextDecorator
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from npu_sim.cores import Profile, load_profile
from npu_sim.language import Argument
from npu_sim.status import UsageError, shown, tip

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
                "{argument} = {core_order} is not an order",
                "{tip}orders: {core_orders}",
                argument=Argument("core_order"),
                core_order=shown(self.core_order),
                core_orders=", ".join(CORE_ORDERS),
                tip=tip(self.core_order, CORE_ORDERS),
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
        "limits = {limits} is not a set of limits",
        "{tip}one of: {known}",
        limits=shown(limits),
        known=", ".join(LIMITS),
        tip=tip(limits, LIMITS),
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


@dataclass(eq=False)
class _Choice:
    """A target that was chosen in a context."""

    target: Target
    block: object = None
    """The innermost :class:`device` block around it; None outside of blocks."""
    used: bool = False
    """Whether a call took the target, or that of a block inside."""
    closed: bool = False
    """Whether the block has ended before one that began in it."""


_chosen: ContextVar[tuple[_Choice, ...]] = ContextVar("npu_sim.target", default=())
"""What was chosen in a context, the innermost block last."""


def chosen_target() -> Target | None:
    """Return the target chosen in this context; None when there is none."""
    choices = _chosen.get()
    return choices[-1].target if choices else None


def current_device() -> Target:
    """Return the target of calls in this context: the chosen one, or the defaults."""
    for choice in _chosen.get():
        choice.used = True
    return _present()


def _present() -> Target:
    return chosen_target() or Target(load_profile())


class TargetChange(NamedTuple):
    """New values of parts of a target; None keeps the present value."""

    product: str | Path | Profile | None
    soc: str | None
    release: str | None
    deterministic: bool | None
    core_order: CoreOrder | None
    seed: int | None
    limits: Limits | None

    def of(self, target: Target) -> Target:
        """Return the changed target.

        Raises
        ------
        UsageError
            For an unknown product, SoC, release, order or set of limits.
        """
        if self.product is None:
            profile = _changed_profile(target.profile, self.soc, self.release)
        else:
            profile = load_profile(self.product, self.soc, self.release)
        deterministic, order, limits = target.deterministic, target.order, target.limits
        if self.deterministic is not None:
            deterministic = require_bool("deterministic", self.deterministic)
        if self.core_order is not None:
            order = Order(self.core_order, order.seed)
        if self.seed is not None:
            order = Order(order.core_order, self.seed)
        if self.limits is not None:
            limits = require_limits(self.limits)
        return Target(profile, deterministic, order, limits)


def _changed_profile(profile: Profile, soc: str | None, release: str | None) -> Profile:
    """Return a profile with another SoC or release; a SoC of another product replaces both."""
    if soc is None or profile.product.soc_named(soc) is not None:
        return load_profile(profile, soc, release)
    return load_profile(None, soc, release or profile.release)


def set_device(
    product: str | Path | Profile | None = None,
    *,
    soc: str | None = None,
    release: str | None = None,
    deterministic: bool | None = None,
    core_order: CoreOrder | None = None,
    seed: int | None = None,
    limits: Limits | None = None,
) -> Target:
    """Change the target of the current context from here on; options left out stay."""
    change = TargetChange(product, soc, release, deterministic, core_order, seed, limits)
    target = change.of(_present())
    *outer, last = _chosen.get() or (_Choice(target),)
    _chosen.set((*outer, replace(last, target=target)))
    return target


class device(ContextDecorator):  # noqa: N801 (used like a function)
    """Change the target inside a ``with`` block; options left out stay as they are outside.

    The target is that of the running thread and asynchronous task. A thread or pool that the block
    starts has its own, the defaults, unless it enters a block itself::

        with ThreadPoolExecutor() as pool, use("ascend_950"):
            pool.submit(contextvars.copy_context().run, step, batch)    # with the block's target

    Parameters
    ----------
    product, soc
        Product (name, YAML file or loaded profile) and SoC. A product alone takes its default
        SoC; a SoC alone, its product.
    release
        Release of the product's software. A product alone takes the default; a SoC alone keeps the
        present one.
    deterministic
        The determinism switch, read at the first stage of a call.
    core_order, seed
        Order in which the atomic additions of different cores arrive; kernels with a fixed order
        ignore it.
    limits
        ``documented`` or ``hardware``.

    Raises
    ------
    UsageError
        At the end of a block that is not the innermost one of its thread, for instance in a
        generator that was closed before one that it interleaves with: calls since then may have
        had another block's target.
    """

    def __init__(
        self,
        product: str | Path | Profile | None = None,
        *,
        soc: str | None = None,
        release: str | None = None,
        deterministic: bool | None = None,
        core_order: CoreOrder | None = None,
        seed: int | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._change = TargetChange(product, soc, release, deterministic, core_order, seed, limits)

    def __enter__(self) -> Target:
        target = self._change.of(_present())
        _chosen.set((*_chosen.get(), _Choice(target, self)))
        return target

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        *outer, last = _chosen.get() or (None,)
        if last is None or last.block is not self:
            own = [choice for choice in outer if choice.block is self and not choice.closed]
            for choice in own[-1:]:  # its target does not return when the blocks in it end
                choice.closed = True
            raise UsageError(
                "target",
                "this block ends while the target is not its own but {present}: another block "
                "began in it and has not ended, or it ends in another thread; calls since then may "
                "have had another target",
                "one block around each call, or each step, of generators that take turns",
                present=_present().profile.title,
            )
        while outer and outer[-1].closed:
            outer.pop()
        _chosen.set(tuple(outer))
        self._end(kind is not None or last.used)

    def _end(self, used: bool) -> None:
        """End a block; ``used`` is false if it simulated no call and raised nothing."""
