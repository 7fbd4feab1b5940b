"""Device of a profile: its SoC, identified by the number of cores and their clock."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from statistics import median

from npu_sim.cores import Profile, all_socs, load_profile, shipped_products
from npu_sim.files.measured_launch import MeasuredLaunch
from npu_sim.language import Text
from npu_sim.status import UsageError

CLOCK_TOLERANCE = 0.01
"""Largest relative difference between a measured clock and that of its SoC."""


@dataclass(frozen=True)
class MeasuredDevice:
    """The device of a profile."""

    profile: Profile
    """Product and SoC for which calls are planned."""
    clock_mhz: float
    """Clock of the vector cores, cycles over time; 0 without counters."""
    vector_cores: int
    """Largest number of blocks of a vector kernel."""
    found_by: str
    """How the SoC was identified, as text."""
    others: tuple[str, ...] = ()
    """Other SoCs that fit equally well."""


def measured_clock(launches: Sequence[MeasuredLaunch]) -> float:
    """Return the median clock of the vector cores in MHz; 0 without counters."""
    clocks = [
        launch.counter("aiv_total_cycles") / (launch.counter("aiv_time") * launch.block_dim)
        for launch in launches
        if launch.block_dim
        and launch.counter("aiv_time") > 0
        and launch.counter("aiv_total_cycles") > 0
    ]
    return median(clocks) if clocks else 0.0


def chosen_profile(product: str | Path | None, soc: str | None) -> Profile | None:
    """Return the profile chosen by product or SoC; None when both are None."""
    return None if product is None and soc is None else load_profile(product, soc)


def find_device(launches: Sequence[MeasuredLaunch], chosen: Profile | None) -> MeasuredDevice:
    """Return the device of a profile: the chosen one, or the first SoC that fits the file.

    Raises UsageError when no device was chosen and the file does not identify one, or no SoC fits.
    """
    clock = measured_clock(launches)
    cores = max((launch.block_dim or 0 for launch in launches if launch.is_vector), default=0)
    if chosen is not None:
        return MeasuredDevice(chosen, clock, cores, "chosen")
    if not cores:
        message = "the file does not state on how many cores its kernels ran"
        raise UsageError("soc", message, 'name the SoC, such as soc="Ascend910B3"')
    profiles = [profile for name in shipped_products() for profile in all_socs(name)]
    fitting = [profile for profile in profiles if profile.chip.vector_cores == cores]
    if not fitting:
        known = ", ".join(sorted({str(profile.chip.vector_cores) for profile in profiles}, key=int))
        message = Text(
            "at most {cores} cores worked, and no SoC has {cores} vector cores ({known})",
            cores=cores,
            known=known,
        )
        raise UsageError("soc", message, 'name the SoC, such as soc="Ascend910B3"')
    # Of SoCs that fit alike, the older architecture: profiles of newer ones are still rare.
    best, *others = sorted(fitting, key=lambda profile: (_misfit(profile, clock), profile.npu_arch))
    misfit = _misfit(best, clock)
    alike = [other.soc for other in others if misfit < inf and _misfit(other, clock) == misfit]
    rated = _rated_clock(best)
    clock_text = Text("; clock {clock} MHz", clock=f"{clock:.0f}") if clock else ""
    if clock and abs(clock / rated - 1) > CLOCK_TOLERANCE:
        clock_text += Text(" ({soc} is rated {rated})", best, rated=f"{rated:.0f}")
    found_by = Text("at most {cores} cores worked{clock}", cores=cores, clock=clock_text)
    return MeasuredDevice(best, clock, cores, found_by, tuple(alike))


def _rated_clock(profile: Profile) -> float:
    return profile.chip.vector_clock_mhz or profile.chip.cube_clock_mhz


def _misfit(profile: Profile, clock: float) -> float:
    """Return the distance of the rated from the measured clock in MHz; 0 without a measured one.

    It is infinite for a SoC rated lower, which would give too high a bound.
    """
    if not clock:
        return 0.0
    rated = _rated_clock(profile)
    return round(abs(rated - clock), 1) if rated >= clock * (1 - CLOCK_TOLERANCE) else inf
