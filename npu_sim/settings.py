"""Target of the current context, used by front ends whose calls do not name one.

Every thread and every asynchronous task has its own (:mod:`contextvars`).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path

from npu_sim.cores import Profile, load_profile
from npu_sim.framework.target import CoreOrder, Limits, Order, Target, require_bool, require_limits

_target: ContextVar[Target | None] = ContextVar("npu_sim.target", default=None)


def chosen_device() -> Target | None:
    """Return the target chosen in this context; None when there is none."""
    return _target.get()


def current_device() -> Target:
    """Return the target of calls in this context: the chosen one, or the defaults."""
    return chosen_device() or Target(load_profile())


def changed(
    target: Target,
    product: str | Path | Profile | None = None,
    soc: str | None = None,
    release: str | None = None,
    deterministic: bool | None = None,
    core_order: CoreOrder | None = None,
    seed: int | None = None,
    limits: Limits | None = None,
) -> Target:
    """Return a target with some fields replaced; None keeps the present value.

    Raises
    ------
    UsageError
        For an unknown product, SoC, release, order or set of limits.
    """
    order = target.order
    return replace(
        target,
        profile=_changed_profile(target.profile, soc, release)
        if product is None
        else load_profile(product, soc, release),
        deterministic=target.deterministic
        if deterministic is None
        else require_bool("deterministic", deterministic),
        order=Order(
            order.core_order if core_order is None else core_order,
            order.seed if seed is None else seed,
        ),
        limits=target.limits if limits is None else require_limits(limits),
    )


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
    target = changed(
        current_device(), product, soc, release, deterministic, core_order, seed, limits
    )
    _target.set(target)
    return target


@contextmanager
def device(
    product: str | Path | Profile | None = None,
    *,
    soc: str | None = None,
    release: str | None = None,
    deterministic: bool | None = None,
    core_order: CoreOrder | None = None,
    seed: int | None = None,
    limits: Limits | None = None,
) -> Iterator[Target]:
    """Change the target inside a ``with`` block; options left out stay as they are outside.

    Parameters
    ----------
    product, soc
        Product (name, YAML file or loaded profile) and SoC. A product alone takes its default
        SoC; a SoC alone, its product.
    release
        Release of the product's software. A product alone takes the newest; a SoC alone keeps the
        present one.
    deterministic
        The determinism switch, read at the first stage of a call.
    core_order, seed
        Order in which the atomic additions of different cores arrive; kernels with a fixed order
        ignore it.
    limits
        ``documented`` or ``hardware``.
    """
    token = _target.set(
        changed(current_device(), product, soc, release, deterministic, core_order, seed, limits)
    )
    try:
        yield current_device()
    finally:
        _target.reset(token)
