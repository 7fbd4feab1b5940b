"""Calibration of estimates from a device profile: clock, memory ceilings, vector correction.

Used by ``npu-sim profile --calibrate``. Source: specification page ``estimate``, "Streaming
launches" and "A user's own profile".
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from npu_sim.cores import Profile, release_names
from npu_sim.language import Text, grouped, joined
from npu_sim.operators import plan
from npu_sim.operators.timelines import estimator
from npu_sim.plans.answers import Printed
from npu_sim.registry import operator_of_launch
from npu_sim.status import AclnnError, UsageError
from npu_sim.timelines.model import (
    BYTES_PER_US,
    KINDS,
    READS_AND_WRITES,
    READS_ONLY,
    STREAMED_BYTES,
    STREAMING,
    Calibration,
    Ceiling,
    VectorEstimate,
    streamed_bytes,
)
from npu_sim.timelines.schedule import clock_mhz
from npu_sim.tools.profiles.measured_calls import (
    CLOCK_TOLERANCE,
    MeasuredGroup,
    chosen_profile,
    find_device,
    measured_clock,
)
from npu_sim.tools.profiles.measured_profile import MeasuredProfile, read_profile
from npu_sim.tools.profiles.reader import MeasuredLaunch

SCATTERED = ("gather", "scatter", "index", "sort", "topk")
"""Parts of names of kernels whose memory traffic depends on data."""
REDUCTION_RATIO = 1000
"""A launch that reads this many times the bytes it writes counts as reading only."""


def measured_ceilings(
    launches: Sequence[MeasuredLaunch], vector_cores: int
) -> tuple[dict[str, Ceiling], dict[str, int]]:
    """Return the throughput ceiling of every kind, and the number of unused launches by reason.

    - ``launches``: launches on one device.
    - ``vector_cores``: vector cores of its SoC; launches on fewer cores are not used.
    """
    reasons = [_unusable(launch, vector_cores) for launch in launches]
    times = grouped(
        ((*_moved(launch), launch.kernel, launch.inputs, launch.outputs), launch.duration_us)
        for launch, reason in zip(launches, reasons, strict=True)
        if not reason
    )
    rates = grouped(
        (kind, moved / median(measured) / BYTES_PER_US)
        for (kind, moved, *_), measured in times.items()
    )
    ceilings = {kind: _ceiling(rates[kind]) for kind in KINDS if kind in rates}
    return ceilings, dict(Counter(filter(None, reasons)))


def _unusable(launch: MeasuredLaunch, vector_cores: int) -> str:
    """Return why a launch cannot be used for a ceiling; empty if it can."""
    if not launch.is_vector:
        return "not on vector cores"
    if launch.block_dim not in (None, vector_cores):  # large moves of a data base use all
        return "not on all vector cores"
    if operator_of_launch(launch.kernel) is not None:
        return "kernels that are planned here"
    if any(part in launch.kernel.lower() for part in SCATTERED):
        return "gathers and sorts"
    if (
        not launch.inputs
        or not launch.outputs
        or None in (*launch.inputs, *launch.outputs)
        or not launch.duration_us
    ):
        return "without shapes or duration"
    if _moved(launch)[1] < STREAMED_BYTES:
        return Text("less than {streamed_bytes} bytes", streamed_bytes=STREAMED_BYTES)
    return ""


def _moved(launch: MeasuredLaunch) -> tuple[str, int]:
    """Return kind and traffic in bytes of a launch."""
    read, written = (
        sum(spec.nbytes for spec in tensors or () if spec is not None)
        for tensors in (launch.inputs, launch.outputs)
    )
    kind = STREAMING.get(
        launch.kernel, READS_ONLY if written * REDUCTION_RATIO < read else READS_AND_WRITES
    )
    return kind, streamed_bytes(kind, read, written)


def _ceiling(rates: Sequence[float]) -> Ceiling:
    """Return the median rate over shapes, with the leave-one-out errors."""
    low = high = None
    if len(rates) > 1:
        others = ([*rates[:position], *rates[position + 1 :]] for position in range(len(rates)))
        errors = [rate / median(rest) - 1 for rate, rest in zip(rates, others, strict=True)]
        low, high = min(errors), max(errors)
    return Ceiling(tb_per_s=median(rates), shapes=len(rates), low_error=low, high_error=high)


PLAUSIBLE = (0.8, 1.25)
"""Ratios outside mean that device, release or plan differ from the assumed ones."""
FEWEST_SHAPES, AGREEMENT, WORTH_CORRECTING = 3, 0.10, 0.05
"""A correction needs this many shapes, this agreement, and at least this distance from 1."""


@dataclass(frozen=True)
class ComparedShape:
    """Measured and estimated vector time of one shape, medians over its launches."""

    kernel: str
    """The kernel."""
    inputs: tuple[str, ...]
    """Its input tensors."""
    count: int
    """Number of launches."""
    estimate_us: float
    """Estimate at the measured clock."""
    measured_us: float
    """Hardware counter."""
    ratio: float
    """Counter over estimate."""
    used: bool
    """Whether the ratio is plausible."""
    fits: tuple[str, ...] = ()
    """If not: releases and SoCs of the product that give a plausible ratio."""


@dataclass(frozen=True, repr=False)
class CalibrationAnswer(Printed):
    """Calibration found in a profile."""

    calibration: Calibration
    """Values that timelines use."""
    shapes: tuple[ComparedShape, ...]
    """Vector estimates and the measured counters."""
    factor_reason: str
    """Why the published rates are unchanged or multiplied."""
    skipped: dict[str, int]
    """Number of launches not used for ceilings, by reason."""
    warnings: tuple[str, ...]
    """Warnings for the user."""

    def as_dict(self) -> dict[str, Any]:
        """Return the answer as plain data, the form ``--json`` prints."""
        return {
            "calibration": self.calibration.model_dump(mode="json"),
            "shapes": [asdict(shape) for shape in self.shapes],
            "factor_reason": self.factor_reason,
            "skipped": self.skipped,
            "warnings": list(self.warnings),
        }


def calibrate(
    file: str | Path,
    *,
    product: str | Path | None = None,
    soc: str | None = None,
    release: str | None = None,
) -> CalibrationAnswer:
    """Return the calibration that a profile of a device gives.

    Parameters
    ----------
    file, product, soc, release
        As for :func:`npu_sim.read_profile`.

    Raises
    ------
    UsageError
        As for :func:`npu_sim.read_profile`, and for a profile without usable launches.
    """
    answer = read_profile(file, product=product, soc=soc, release=release)
    device = answer.device or find_device(answer.launches, chosen_profile(product, soc))
    profile = device.profile.with_release(answer.release)
    cores = profile.chip.vector_cores
    full = [launch for launch in answer.launches if launch.is_vector and launch.block_dim == cores]
    clock, rated = measured_clock(full), clock_mhz(profile)
    if not clock and all(launch.block_dim is None for launch in answer.launches):
        clock = rated  # a data base has no block dims to measure the clock with
    shapes = tuple(_compared(answer, profile, clock)) if clock else ()
    ceilings, skipped = measured_ceilings(answer.launches, cores)
    warnings = tuple(_warnings(answer, profile, clock, rated, shapes))
    if not any(shape.used for shape in shapes) and not ceilings:
        raise UsageError(
            "file",
            "{file} has no launch to calibrate on{warnings}",
            "{wanted}, all on the {cores} vector cores of {soc}",
            wanted="launches with counters of a kernel that has an instruction list, or "
            "streaming 400 MB and more",
            cores=cores,
            soc=profile.soc,
            file=file,
            warnings=joined(("", *warnings)),
        )
    agreeing, factor, reason = _factor([shape.ratio for shape in shapes if shape.used])
    return CalibrationAnswer(
        Calibration(
            source=Path(file).name,
            soc=profile.soc,
            release=profile.release,
            vector_cores=cores,
            clock_mhz=clock or rated,
            vector_shapes=agreeing,
            vector_factor=factor,
            ceilings=ceilings,
        ),
        shapes,
        reason,
        skipped,
        warnings,
    )


def _compared(answer: MeasuredProfile, profile: Profile, clock: float) -> Iterator[ComparedShape]:
    for group in answer.groups:
        first, estimate = group.launches[0], group.estimate
        measured = group.measured_us
        if not isinstance(estimate, VectorEstimate) or not measured:
            continue
        cores = first.block_dim or group.possible_calls[0].plan.block_dim
        if cores != profile.chip.vector_cores:
            continue
        ratio = measured * clock / estimate.vector_cycles
        used = PLAUSIBLE[0] <= ratio <= PLAUSIBLE[1]
        yield ComparedShape(
            kernel=first.kernel,
            inputs=tuple(map(str, first.inputs or ())),
            count=len(group.launches),
            estimate_us=estimate.vector_cycles / clock,
            measured_us=measured,
            ratio=ratio,
            used=used,
            fits=() if used else tuple(_fitting(group, profile, measured, clock)),
        )


def _fitting(
    group: MeasuredGroup, profile: Profile, measured: float, clock: float
) -> Iterator[str]:
    """Yield releases and SoCs with as many cores for which a group's counter is plausible."""
    call = group.possible_calls[0]
    for release in release_names():
        for soc in profile.product.socs:
            other = profile.with_soc(soc).with_release(release)
            if other.chip.vector_cores != profile.chip.vector_cores:
                continue
            try:
                made = plan(
                    group.operator,
                    product=other,
                    deterministic=call.plan.deterministic,
                    **call.arguments,
                )
            except AclnnError:
                continue
            estimate, _ = estimator(made, other, mhz=clock).estimate(made.launches[call.place])
            if (
                isinstance(estimate, VectorEstimate)
                and PLAUSIBLE[0] <= measured / estimate.vector_us <= PLAUSIBLE[1]
            ):
                yield Text("{soc} at {release}", soc=soc, release=release)


def _factor(ratios: list[float]) -> tuple[int, float | None, str]:
    """Return the number of agreeing shapes, the vector factor or None, and the reason."""
    if len(ratios) < FEWEST_SHAPES:
        reason = Text(
            "published numbers stay: {ratios_count} usable shapes, a factor needs {fewest_shapes}",
            ratios_count=len(ratios),
            fewest_shapes=FEWEST_SHAPES,
        )
        return 0, None, reason
    middle = median(ratios)
    if any(abs(ratio / middle - 1) > AGREEMENT for ratio in ratios):
        lowest, highest = f"{min(ratios):.3f}", f"{max(ratios):.3f}"
        reason = Text(
            "published numbers stay: the shapes' ratios, {spread}, do not agree within {agreement}",
            spread=Text("{lowest} to {highest}", lowest=lowest, highest=highest),
            agreement=f"{100 * AGREEMENT:.0f} %",
        )
        return 0, None, reason
    if abs(middle - 1) <= WORTH_CORRECTING:
        reason = Text(
            "published numbers stay: {ratios_count} shapes agree, and their median ratio "
            "{middle} is within {worth_correcting} of 1",
            ratios_count=len(ratios),
            middle=f"{middle:.3f}",
            worth_correcting=f"{100 * WORTH_CORRECTING:.0f} %",
        )
        return len(ratios), None, reason
    reason = Text(
        "vector cycles are multiplied by {middle}, the median ratio of {ratios_count} shapes",
        middle=f"{middle:.3f}",
        ratios_count=len(ratios),
    )
    return len(ratios), middle, reason


def _warnings(
    answer: MeasuredProfile,
    profile: Profile,
    clock: float,
    rated: float,
    shapes: tuple[ComparedShape, ...],
) -> Iterator[str]:
    if answer.untimed:
        yield Text("launches without a recorded time, left out: {count}", count=answer.untimed)
    if not clock:
        yield Text(
            "the file has no counters: the clock is that of {soc}, {rated} MHz",
            soc=profile.soc,
            rated=f"{rated:g}",
        )
    elif abs(clock / rated - 1) > CLOCK_TOLERANCE:
        yield Text(
            "the clock was {clock} MHz, which is not that of {soc}, {rated} MHz",
            clock=f"{clock:.0f}",
            soc=profile.soc,
            rated=f"{rated:g}",
        )
    for shape in shapes:
        if not shape.used:
            yield Text(
                "{kernel} {inputs}: ratio {ratio}, another device, release or plan; {fits}",
                kernel=shape.kernel,
                inputs=", ".join(shape.inputs),
                ratio=f"{shape.ratio:.3f}",
                fits=Text("these fit: {fits}", fits=", ".join(shape.fits))
                if shape.fits
                else "no release and SoC of the product fits",
            )
