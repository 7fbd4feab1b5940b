"""The simulated device of a call through a face: product, SoC, release, determinism switch, and the order in which cores' additions arrive.

The settings belong to the current context (:mod:`contextvars`): every thread and every asynchronous task has its own.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path

from npu_sim.cores import Profile, load_profile
from npu_sim.framework.case import Limits
from npu_sim.framework.checks import require_bool
from npu_sim.framework.results import CoreOrder, Order
from npu_sim.operators import require_limits


@dataclass(frozen=True)
class Settings:
    """What the first stage of a call reads.

    Attributes
    ----------
    profile
        Product, SoC and release.
    deterministic
        The determinism switch; off by default, as in the product.
    order
        Order in which the atomic additions of different cores arrive.
    limits
        ``documented`` or ``hardware``.
    """

    profile: Profile
    deterministic: bool = False
    order: Order = Order()
    limits: Limits = "documented"


_settings: ContextVar[Settings | None] = ContextVar("npu_sim.settings", default=None)


def chosen_device() -> Settings | None:
    """Return the settings that were chosen in this context; None when none were."""
    return _settings.get()


def current_device() -> Settings:
    """Return the settings that calls of this context use."""
    return chosen_device() or Settings(load_profile())


def changed(
    settings: Settings,
    product: str | Path | Profile | None = None,
    soc: str | None = None,
    release: str | None = None,
    deterministic: bool | None = None,
    core_order: CoreOrder | None = None,
    seed: int | None = None,
    limits: Limits | None = None,
) -> Settings:
    """Return settings with some of them replaced; None keeps what there is.

    Raises
    ------
    UsageError
        For an unknown product, SoC, release, order or set of limits.
    """
    order = settings.order
    return replace(
        settings,
        profile=_changed_profile(settings.profile, soc, release)
        if product is None
        else load_profile(product, soc, release),
        deterministic=settings.deterministic
        if deterministic is None
        else require_bool("deterministic", deterministic),
        order=Order(
            order.core_order if core_order is None else core_order,
            order.seed if seed is None else seed,
        ),
        limits=settings.limits if limits is None else require_limits(limits),
    )


def _changed_profile(profile: Profile, soc: str | None, release: str | None) -> Profile:
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
) -> Settings:
    """Change the settings of the current context from here on; what is left out stays."""
    settings = changed(
        current_device(), product, soc, release, deterministic, core_order, seed, limits
    )
    _settings.set(settings)
    return settings


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
) -> Iterator[Settings]:
    """Change the settings for a block; what is left out stays as it is outside.

    Parameters
    ----------
    product, soc
        Product (name, YAML file or loaded profile) and SoC. A product alone takes its default SoC; a SoC alone, its product.
    release
        Release of the product's software. A product alone takes the newest, a SoC alone keeps what there is.
    deterministic
        The determinism switch, read at the first stage of a call.
    core_order, seed
        Order in which the atomic additions of different cores arrive; kernels with a fixed order ignore it.
    limits
        ``documented`` or ``hardware``.
    """
    token = _settings.set(
        changed(current_device(), product, soc, release, deterministic, core_order, seed, limits)
    )
    try:
        yield current_device()
    finally:
        _settings.reset(token)
