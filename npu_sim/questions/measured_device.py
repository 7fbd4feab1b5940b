"""Which device a profile is from: its SoC by the cores that worked and their clock, as far as a file says it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from npu_sim.cores import Profile, all_socs, load_profile, shipped_products
from npu_sim.files.measured_launch import MeasuredLaunch
from npu_sim.status import UsageError

CLOCK_TOLERANCE = 0.01
"""A measured clock is that of a SoC when it differs by no more."""


@dataclass(frozen=True)
class MeasuredDevice:
    """The device of a profile.

    Attributes
    ----------
    profile
        Product and SoC that calls are planned for.
    clock_mhz
        Clock of the vector cores, cycles over time; 0 where the file has no counters.
    vector_cores
        Largest number of blocks of a vector kernel.
    found_by
        How the SoC was found, in words.
    others
        Other SoCs that fit as well.
    """

    profile: Profile
    clock_mhz: float
    vector_cores: int
    found_by: str
    others: tuple[str, ...] = ()


def measured_clock(launches: Sequence[MeasuredLaunch]) -> float:
    """Return the clock of the vector cores in MHz, the median of cycles over time and blocks; 0 without counters."""
    clocks = [
        one.counter("aiv_total_cycles") / (one.counter("aiv_time") * one.block_dim)
        for one in launches
        if one.block_dim and one.counter("aiv_time") > 0 and one.counter("aiv_total_cycles") > 0
    ]
    return median(clocks) if clocks else 0.0


def chosen_profile(product: str | Path | None, soc: str | None) -> Profile | None:
    """Return the profile that was chosen by product, by SoC, or by both; None when neither was."""
    return None if product is None and soc is None else load_profile(product, soc)


def find_device(launches: Sequence[MeasuredLaunch], chosen: Profile | None) -> MeasuredDevice:
    """Return the device of a profile: the one that was chosen, else the first SoC that fits what the file says.

    Raises
    ------
    UsageError
        When nothing was chosen and the file does not tell, or no SoC fits.
    """
    clock, cores = (
        measured_clock(launches),
        max((one.block_dim or 0 for one in launches if one.is_vector), default=0),
    )
    if chosen is not None:
        return MeasuredDevice(chosen, clock, cores, "chosen")
    if not cores:
        raise UsageError(
            "soc",
            "the file does not say on how many cores its kernels ran",
            'name the SoC, such as soc="Ascend910B3"',
        )
    profiles = [profile for name in shipped_products() for profile in all_socs(name)]
    fitting = [profile for profile in profiles if profile.chip.vector_cores == cores]
    if not fitting:
        known = ", ".join(sorted({str(profile.chip.vector_cores) for profile in profiles}, key=int))
        message = f"at most {cores} cores worked, and no SoC has {cores} vector cores ({known})"
        raise UsageError("soc", message, 'name the SoC, such as soc="Ascend910B3"')
    best = sorted(fitting, key=lambda profile: _misfit(profile, clock))
    alike = tuple(
        profile.soc for profile in best[1:] if _misfit(profile, clock) == _misfit(best[0], clock)
    )
    rated = best[0].chip.vector_clock_mhz or best[0].chip.cube_clock_mhz
    known_clock = not clock or abs(clock / rated - 1) <= CLOCK_TOLERANCE
    clock_words = (
        ""
        if not clock
        else f"; clock {clock:.0f} MHz"
        + ("" if known_clock else f", where a {best[0].soc} is rated {rated:.0f}")
    )
    return MeasuredDevice(
        best[0], clock, cores, f"at most {cores} cores worked{clock_words}", alike
    )


def _misfit(profile: Profile, clock: float) -> float:
    """How far a clock is below the rated one, a bound of which must not be too high; a SoC rated lower fits last."""
    rated = profile.chip.vector_clock_mhz or profile.chip.cube_clock_mhz
    if not clock:
        return 0.0
    return round(rated - clock, 1) if rated >= clock * (1 - CLOCK_TOLERANCE) else float("inf")
