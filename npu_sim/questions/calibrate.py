"""What a profile says of the device it is from, for the estimates of timelines: clock, ceilings, and how far vector estimates are off.

Source: specification page ``estimate``, "A user's own profile". The answer to ``npu-sim profile --calibrate``.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from npu_sim.cores import Profile
from npu_sim.framework.planning import plan_of
from npu_sim.operators.timelines import estimator
from npu_sim.plans.printing import Printed
from npu_sim.questions.measured_ceilings import measured_ceilings
from npu_sim.questions.measured_device import (
    CLOCK_TOLERANCE,
    chosen_profile,
    find_device,
    measured_clock,
)
from npu_sim.questions.measured_groups import MeasuredGroup
from npu_sim.questions.measured_profile import MeasuredProfile, read_profile
from npu_sim.registry import load_operator
from npu_sim.releases import release_names
from npu_sim.status import AclnnError, UsageError
from npu_sim.timelines.calibration import Calibration
from npu_sim.timelines.model import VectorEstimate
from npu_sim.timelines.rates import clock_mhz

PLAUSIBLE = (0.8, 1.25)
"""A ratio outside says that device, release or plan is another one than assumed."""
WANTED = (
    "launches with counters of a kernel that has an instruction list, or streaming 400 MB and more"
)
FEWEST_SHAPES, AGREEMENT, WORTH_CORRECTING = 3, 0.10, 0.05
"""A factor needs so many shapes, that agree so well, and differs from 1 by more."""


@dataclass(frozen=True)
class ComparedShape:
    """One shape's vector time beside its estimate, medians over its launches.

    Attributes
    ----------
    kernel, inputs, count
        What was launched, and how often.
    estimate_us, measured_us, ratio
        The estimate at the measured clock, the counter, and counter over estimate.
    used
        Whether the ratio is plausible.
    fits
        Other releases and SoCs of the product that give a plausible ratio, where this one is not.
    """

    kernel: str
    inputs: tuple[str, ...]
    count: int
    estimate_us: float
    measured_us: float
    ratio: float
    used: bool
    fits: tuple[str, ...] = ()


@dataclass(frozen=True, repr=False)
class CalibrationAnswer(Printed):
    """What was found in a profile.

    Attributes
    ----------
    calibration
        What timelines take.
    shapes
        Vector estimates beside their counters.
    factor_reason
        Why the published numbers stay, or are multiplied.
    skipped
        Launches that no ceiling is from, by reason.
    warnings
        What a user should look at.
    """

    calibration: Calibration
    shapes: tuple[ComparedShape, ...]
    factor_reason: str
    skipped: dict[str, int]
    warnings: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the answer as plain data, the form ``--json`` prints."""
        shapes = [asdict(shape) for shape in self.shapes]
        said = {
            "factor_reason": self.factor_reason,
            "skipped": self.skipped,
            "warnings": list(self.warnings),
        }
        return {"calibration": self.calibration.model_dump(mode="json"), "shapes": shapes, **said}


def calibrate(
    file: str | Path,
    *,
    product: str | Path | None = None,
    soc: str | None = None,
    release: str | None = None,
) -> CalibrationAnswer:
    """Read what a profile says of its device.

    Parameters
    ----------
    file, product, soc, release
        As :func:`npu_sim.read_profile` takes them.

    Raises
    ------
    UsageError
        As :func:`npu_sim.read_profile`, and for a profile without a row to calibrate on.
    """
    answer = read_profile(file, product=product, soc=soc, release=release)
    device = answer.device or find_device(answer.launches, chosen_profile(product, soc))
    profile = device.profile.with_release(answer.release)
    cores = profile.chip.vector_cores
    whole = [one for one in answer.launches if one.is_vector and one.block_dim == cores]
    clock, rated = measured_clock(whole), clock_mhz(profile)
    shapes = tuple(_compared(answer, profile, clock)) if clock else ()
    ceilings, skipped = measured_ceilings(answer.launches, cores)
    warnings = tuple(_warnings(profile, clock, rated, shapes))
    if not any(shape.used for shape in shapes) and not ceilings:
        looked_for = f"{WANTED}, all on the {cores} vector cores of {profile.soc}"
        raise UsageError(
            "file", "; ".join((f"{file} has no launch to calibrate on", *warnings)), looked_for
        )
    agreeing, factor, reason = _factor([shape.ratio for shape in shapes if shape.used])
    calibration = Calibration(
        source=Path(file).name,
        soc=profile.soc,
        release=profile.release,
        vector_cores=cores,
        clock_mhz=clock or rated,
        vector_shapes=agreeing,
        vector_factor=factor,
        ceilings=ceilings,
    )
    return CalibrationAnswer(calibration, shapes, reason, skipped, warnings)


def _compared(answer: MeasuredProfile, profile: Profile, clock: float) -> Iterator[ComparedShape]:
    for group in answer.groups:
        first, estimate = group.launches[0], group.estimate
        measured = group.estimated_us
        if (
            not isinstance(estimate, VectorEstimate)
            or not measured
            or first.block_dim != profile.chip.vector_cores
        ):
            continue
        ratio = measured * clock / estimate.vector_cycles
        used = PLAUSIBLE[0] <= ratio <= PLAUSIBLE[1]
        fits = () if used else tuple(_fitting(group, profile, measured, clock))
        inputs = tuple(str(spec) for spec in first.inputs or ())
        yield ComparedShape(
            first.kernel,
            inputs,
            len(group.launches),
            estimate.vector_cycles / clock,
            measured,
            ratio,
            used,
            fits,
        )


def _fitting(
    group: MeasuredGroup, profile: Profile, measured: float, clock: float
) -> Iterator[str]:
    """Yield the releases and SoCs of the product with as many cores that a group's counter is plausible for."""
    case = group.cases[0]
    operator = load_operator(group.operator)
    for release in release_names():
        for soc in profile.product.socs:
            other = profile.with_soc(soc).with_release(release)
            if other.chip.vector_cores != profile.chip.vector_cores:
                continue
            try:
                made = plan_of(
                    operator.check(
                        operator.build(case.arguments, infer=True),
                        other,
                        case.plan.deterministic,
                        "documented",
                    )
                )
            except AclnnError:
                continue
            estimate, _ = estimator(made, other, mhz=clock).estimate(made.launches[case.place])
            if (
                isinstance(estimate, VectorEstimate)
                and PLAUSIBLE[0] <= measured / estimate.vector_us <= PLAUSIBLE[1]
            ):
                yield f"{soc} at {release}"


def _factor(ratios: list[float]) -> tuple[int, float | None, str]:
    """Return how many shapes agree, the factor of vector estimates, None where the published numbers stay, and why."""
    if len(ratios) < FEWEST_SHAPES:
        return (
            0,
            None,
            f"published numbers stay: {len(ratios)} usable shapes, a factor needs {FEWEST_SHAPES}",
        )
    middle = median(ratios)
    if any(abs(ratio / middle - 1) > AGREEMENT for ratio in ratios):
        spread = f"{min(ratios):.3f} to {max(ratios):.3f}"
        return (
            0,
            None,
            f"published numbers stay: the shapes' ratios, {spread}, do not agree within {AGREEMENT:.0%}",
        )
    if abs(middle - 1) <= WORTH_CORRECTING:
        reason = f"published numbers stay: {len(ratios)} shapes agree, and their median ratio {middle:.3f} is within {WORTH_CORRECTING:.0%} of 1"
        return len(ratios), None, reason
    return (
        len(ratios),
        middle,
        f"vector cycles are multiplied by {middle:.3f}, the median ratio of {len(ratios)} shapes",
    )


def _warnings(
    profile: Profile, clock: float, rated: float, shapes: tuple[ComparedShape, ...]
) -> Iterator[str]:
    if not clock:
        yield f"the file has no counters: the clock is that of {profile.soc}, {rated:g} MHz"
    elif abs(clock / rated - 1) > CLOCK_TOLERANCE:
        yield f"the clock was {clock:.0f} MHz, which is not that of {profile.soc}, {rated:g} MHz"
    for shape in shapes:
        if not shape.used:
            fits = (
                f"these fit: {', '.join(shape.fits)}"
                if shape.fits
                else "no release and SoC of the product fits"
            )
            yield f"{shape.kernel} {', '.join(shape.inputs)}: ratio {shape.ratio:.3f}, another device, release or plan; {fits}"
