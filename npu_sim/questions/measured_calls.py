"""Device and calls of a device profile.

The SoC is identified by the number of cores and their clock. A profile records shapes and dtypes of
a kernel, but neither attributes nor switches of the call: a launch has possible calls, and the
launches around it, which belong to the same call, decide between them.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf, prod
from pathlib import Path
from statistics import median
from typing import Any

from npu_sim.cores import Profile, all_socs, load_profile, shipped_products
from npu_sim.files.device_profile import MeasuredLaunch
from npu_sim.framework.arguments import Attribute
from npu_sim.framework.axes import Switch, Word
from npu_sim.framework.checking import check
from npu_sim.framework.inference import arguments_of
from npu_sim.framework.operator import Operator
from npu_sim.framework.planning import plan_of
from npu_sim.framework.target import Target
from npu_sim.language import Text
from npu_sim.numbers.formats import TensorSpec
from npu_sim.plans.model import Launch, Plan
from npu_sim.status import AclnnError, UsageError

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


@dataclass(frozen=True)
class PossibleCall:
    """One call that a measured launch may belong to."""

    arguments: dict[str, Any]
    """Arguments of :func:`npu_sim.plan`."""
    plan: Plan
    """Plan of the call."""
    place: int
    """Index of the launch in the plan."""

    @property
    def launch(self) -> Launch:
        """The planned launch that corresponds to the measured one."""
        return self.plan.launches[self.place]


def possible_calls(
    operator: Operator, launch: MeasuredLaunch, profile: Profile
) -> tuple[list[PossibleCall], AclnnError | None]:
    """Return the calls of an operator that include such a launch, and the refusal if there is none.

    Of calls with equal `_facts` one is returned. dtypes of the kernel are tried first, then dtypes
    that a cast converts to them.
    """
    calls: dict[tuple[Any, ...], PossibleCall] = {}
    refusal: AclnnError | None = None
    for arguments, deterministic in _trials(operator, launch):
        try:
            built = arguments_of(operator, arguments, infer=True)
            planned = plan_of(check(operator, built, Target(profile, deterministic)))
        except AclnnError as error:
            refusal = refusal or error
            continue
        except UsageError:  # the launch lacks an input or has an illegal value
            continue
        for position, candidate in enumerate(planned.launches):
            if candidate.kernel == launch.kernel and _same_tensors(candidate, launch):
                calls.setdefault(_facts(planned), PossibleCall(arguments, planned, position))
    return list(calls.values()), None if calls else refusal


def unknown_argument(operator: Operator, launch: MeasuredLaunch) -> str:
    """Return why no call follows from a launch: shapes that the file lacks; empty if it has them.

    Required integers, such as the number of experts of a token, follow from the output shapes.
    """
    if launch.inputs is None:
        return Text("{name} unknown: input shapes are not in the file", name="tensors")
    if launch.outputs is not None:
        return ""
    names = [
        attribute.name
        for attribute in operator.attributes
        if attribute.required and not isinstance(_axis(operator, attribute), Word | Switch)
    ]
    if names:
        return Text("{name} unknown: output shapes are not in the file", name=", ".join(names))
    return ""


def _facts(planned: Plan) -> tuple[Any, ...]:
    """Return what distinguishes calls: path, tiling key, cores, and kernels with their dtypes."""
    launches = tuple(
        (launch.kernel, *(tensor.dtype for tensor in (*launch.inputs, *launch.outputs)))
        for launch in planned.launches
    )
    return planned.path, planned.tiling_key, planned.block_dim, launches


def _same_tensors(planned: Launch, measured: MeasuredLaunch) -> bool:
    """Return whether dtypes and element counts of all recorded tensors agree."""
    for tensors, specs in ((planned.inputs, measured.inputs), (planned.outputs, measured.outputs)):
        for tensor, spec in zip(tensors, specs or (), strict=False):
            if spec is not None and (tensor.dtype, prod(tensor.shape)) != (spec.dtype, spec.numel):
                return False
    return True


def _trials(operator: Operator, launch: MeasuredLaunch) -> Iterator[tuple[dict[str, Any], bool]]:
    given = {
        tensor.name: spec
        for tensor, spec in zip(operator.inputs, launch.inputs or (), strict=False)
        if spec is not None
    }
    dtypes = [_dtype_choices(operator, name, spec) for name, spec in given.items()]
    attributes = [_choices(operator, attribute, launch) for attribute in operator.attributes]
    names = [attribute.name for attribute in operator.attributes]
    for chosen in itertools.product(*dtypes):
        tensors = dict(zip(given, chosen, strict=True))
        for values in itertools.product(*attributes):
            given_attributes = {
                name: value for name, value in zip(names, values, strict=True) if value is not None
            }
            for deterministic in (False, True):
                yield {**tensors, **given_attributes}, deterministic


def _dtype_choices(operator: Operator, name: str, spec: TensorSpec) -> list[TensorSpec]:
    """Return the tensor with the kernel's dtype, then with dtypes the call may cast from."""
    axis = next(
        (axis for axis in operator.dtype_axes if axis.name == operator.argument(name).dtype), None
    )
    words = () if axis is None else axis.words
    return [
        spec,
        *(
            TensorSpec(spec.shape, word, spec.contiguous, spec.storage_format)
            for word in words
            if word != spec.dtype
        ),
    ]


def _choices(operator: Operator, attribute: Attribute, launch: MeasuredLaunch) -> list[Any]:
    """Return the values of an attribute to try; None stands for its default."""
    axis = _axis(operator, attribute)
    if isinstance(axis, Word):
        return list(axis.words)
    if isinstance(axis, Switch):
        return [False, True]
    return [None] if not attribute.required else _numbers(launch)


def _axis(operator: Operator, attribute: Attribute) -> object:
    return next((axis for axis in operator.axes if axis.name == attribute.name), None)


def _numbers(launch: MeasuredLaunch) -> list[int]:
    """Return integers suggested by shapes: output sizes, and ratios of element counts."""
    tensors = [
        spec for spec in (*(launch.inputs or ()), *(launch.outputs or ())) if spec is not None
    ]
    sizes = [size for spec in (launch.outputs or ()) if spec is not None for size in spec.shape]
    counts = [spec.numel for spec in tensors if spec.numel]
    ratios = [
        count // other
        for count in counts
        for other in counts
        if count > other and count % other == 0
    ]
    return list(dict.fromkeys([*sizes, *ratios, 1]))


CAST = "Cast"
"""Kernel whose launches are distinguished by their dtypes."""


@dataclass(frozen=True)
class MeasuredCall:
    """One call: its plan, and the measured launches in the order of the plan."""

    possible: PossibleCall
    """The call that the launches are read as."""
    launches: tuple[MeasuredLaunch, ...]
    """Its launches."""

    @property
    def total_us(self) -> float:
        """Measured time of all launches."""
        return sum(launch.duration_us for launch in self.launches)


def find_possible_call(
    stream: Sequence[MeasuredLaunch], place: int, candidates: Sequence[PossibleCall]
) -> PossibleCall | None:
    """Return the call whose launches surround the launch at index ``place`` of its stream.

    Of several matching calls, the one with most launches is returned; None if none matches.
    """
    matching = []
    for call in candidates:
        first = place - call.place
        around = stream[max(first, 0) : first + len(call.plan.launches)]
        if (
            first >= 0
            and len(around) == len(call.plan.launches)
            and all(map(_matches, call.plan.launches, around))
        ):
            matching.append(call)
    return max(matching, key=lambda call: len(call.plan.launches), default=None)


def _matches(planned: Launch, measured: MeasuredLaunch) -> bool:
    """Return whether kernel, and for casts the dtypes, of both launches agree."""
    if planned.kernel != measured.kernel:
        return False
    if planned.kernel != CAST or not measured.inputs or not measured.outputs:
        return True
    dtypes = [spec.dtype for spec in (measured.inputs[0], measured.outputs[0]) if spec is not None]
    return dtypes == [planned.inputs[0].dtype, planned.outputs[0].dtype]
