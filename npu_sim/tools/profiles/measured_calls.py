"""Device, calls and groups of equal launches of a device profile.

The SoC is identified by the number of cores and their clock. A profile records shapes and dtypes of
a kernel, but neither attributes nor switches of the call: a launch has possible calls, and the
launches around it, which belong to the same call, decide between them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, product
from math import inf, prod
from pathlib import Path
from statistics import median
from typing import Any

from npu_sim.cores import Profile, all_socs, load_profile, shipped_products
from npu_sim.framework.arguments import Attribute, Switch, Word
from npu_sim.framework.checking import checked_call
from npu_sim.framework.operator import Operator
from npu_sim.framework.planning import fixed_call, plan_of
from npu_sim.framework.target import Target
from npu_sim.language import Argument, Text
from npu_sim.numbers.formats import TensorSpec
from npu_sim.operators.loading import load_operator
from npu_sim.plans.model import Launch, Plan
from npu_sim.questions.explain import NearbyPlan, nearby_plans
from npu_sim.status import AclnnError, UsageError
from npu_sim.timelines.model import LaunchEstimate, OtherBound, Timeline, VectorEstimate
from npu_sim.tools.profiles.reader import MeasuredLaunch

NAME_THE_SOC = Text("name the SoC, such as {soc}", soc=Argument("soc", "Ascend910B3"))
CLOCK_TOLERANCE = 0.01
"""Largest relative difference between a measured clock and that of its SoC."""


@dataclass(frozen=True)
class MeasuredDevice:
    """The device of a profile."""

    profile: Profile
    """Product and SoC for which calls are planned."""
    clock_mhz: float
    """Clock of the vector cores, cycles over time; 0 without counters."""
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
        return MeasuredDevice(chosen, clock, "chosen")
    if not cores:
        raise UsageError(
            "soc", "the file does not state on how many cores its kernels ran", NAME_THE_SOC
        )
    profiles = [profile for name in shipped_products() for profile in all_socs(name)]
    fitting = [profile for profile in profiles if profile.chip.vector_cores == cores]
    if not fitting:
        raise UsageError(
            "soc",
            "at most {cores} cores worked, and no SoC has {cores} vector cores ({known})",
            NAME_THE_SOC,
            cores=cores,
            known=", ".join(
                sorted({str(profile.chip.vector_cores) for profile in profiles}, key=int)
            ),
        )
    # Of SoCs that fit alike, the older architecture: profiles of newer ones are still rare.
    best, *others = sorted(fitting, key=lambda profile: (_misfit(profile, clock), profile.npu_arch))
    misfit = _misfit(best, clock)
    alike = [other.soc for other in others if misfit < inf and _misfit(other, clock) == misfit]
    rated = _rated_clock(best)
    clock_text = Text("; clock {clock} MHz", clock=f"{clock:.0f}") if clock else ""
    if clock and abs(clock / rated - 1) > CLOCK_TOLERANCE:
        clock_text += Text(" ({soc} is rated {rated})", soc=best.soc, rated=f"{rated:.0f}")
    return MeasuredDevice(
        best,
        clock,
        Text("at most {cores} cores worked{clock}", cores=cores, clock=clock_text),
        tuple(alike),
    )


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


CastFacts = tuple[str, str, int]
"""dtypes before and after a cast, and the number of elements."""


@dataclass(frozen=True, eq=False)
class PossibleCall:
    """One call that a measured launch may belong to; identified by the object."""

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


def measured_casts(launches: Iterable[MeasuredLaunch]) -> frozenset[CastFacts] | None:
    """Return the casts in a file; None if the tensors of some are not recorded."""
    casts = [launch for launch in launches if launch.kernel == CAST]
    pairs = [(cast.inputs[0], cast.outputs[0]) for cast in casts if cast.inputs and cast.outputs]
    if len(pairs) < len(casts):
        return None
    return frozenset((read.dtype, made.dtype, read.numel) for read, made in pairs if read and made)


def possible_calls(
    operator: Operator, launch: MeasuredLaunch, profile: Profile, casts: frozenset[CastFacts] | None
) -> tuple[list[PossibleCall], AclnnError | None]:
    """Return the calls of an operator that include such a launch, and the refusal if there is none.

    Of calls with equal `_facts` one is returned. dtypes of the kernel are tried first, then dtypes
    that one of ``casts``, those of :func:`measured_casts`, converts to them. Nothing is tried for a
    launch with an :func:`unknown_argument`.
    """
    if unknown_argument(operator, launch):
        return [], None
    calls: dict[tuple[Any, ...], PossibleCall] = {}
    refusal: AclnnError | None = None
    for arguments, deterministic in _trials(operator, launch, casts):
        try:
            target = Target(profile, deterministic)
            planned = plan_of(checked_call(operator, arguments, target, infer=True))
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
    pairs = chain(
        zip(planned.inputs, measured.inputs or (), strict=False),
        zip(planned.outputs, measured.outputs or (), strict=False),
    )
    return all(
        spec is None or (tensor.dtype, prod(tensor.shape)) == (spec.dtype, spec.numel)
        for tensor, spec in pairs
    )


def _trials(
    operator: Operator, launch: MeasuredLaunch, casts: frozenset[CastFacts] | None
) -> Iterator[tuple[dict[str, Any], bool]]:
    given = {
        tensor.name: spec
        for tensor, spec in zip(operator.inputs, launch.inputs or (), strict=False)
        if spec is not None
    }
    dtypes = [_dtype_choices(operator, name, spec, casts) for name, spec in given.items()]
    attributes = [_choices(operator, attribute, launch) for attribute in operator.attributes]
    names = [attribute.name for attribute in operator.attributes]
    for chosen in product(*dtypes):
        tensors = dict(zip(given, chosen, strict=True))
        for values in product(*attributes):
            given_attributes = {
                name: value for name, value in zip(names, values, strict=True) if value is not None
            }
            for deterministic in (False, True):
                yield {**tensors, **given_attributes}, deterministic


def _dtype_choices(
    operator: Operator, name: str, spec: TensorSpec, casts: frozenset[CastFacts] | None
) -> list[TensorSpec]:
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
            if word != spec.dtype and (casts is None or (word, spec.dtype, spec.numel) in casts)
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


VECTOR_COUNTER = "aiv_vec_time"
"""Counter of the vector pipe's busy time."""
PIPES = {
    VECTOR_COUNTER: "V",
    "aiv_mte2_time": "MTE2",
    "aiv_mte3_time": "MTE3",
    "aiv_scalar_time": "scalar",
}
"""Pipes of a timeline by counter."""


@dataclass(frozen=True)
class MeasuredGroup:
    """Equal launches of a modelled kernel, with their plan."""

    operator: str
    """Operator of the kernel."""
    launches: tuple[MeasuredLaunch, ...]
    """The launches."""
    possible_calls: tuple[PossibleCall, ...]
    """Calls that the launches may belong to; empty when all are refused."""
    refusal: AclnnError | None = None
    """Refusal of the first of them when all are refused."""
    bound_us: float = 0.0
    """Lower bound of the kernel; 0 without a plan."""
    coverage: str = ""
    """Coverage of the bound: see :class:`npu_sim.timelines.model.Timeline`."""
    binding_pipe: str = ""
    """Pipe that limits the bound."""
    bound_busy_us: Mapping[str, float] = field(default_factory=dict)
    """Busy time of each pipe of the slowest core in the bound; empty without a planned kernel."""
    assumptions: tuple[str, ...] = ()
    """Assumptions of the bound about the data."""
    otherwise: tuple[OtherBound, ...] = ()
    """Bounds of the kernel under their opposites."""
    unidentified_argument: str = ""
    """Argument of the call that the file does not identify; empty when all are identified."""
    estimate: VectorEstimate | LaunchEstimate | None = None
    """Estimate at the clock of the file; None without one."""

    @cached_property
    def measured_us(self) -> float:
        """Median of what the estimate predicts, vector counter or duration; 0 without counters."""
        if isinstance(self.estimate, LaunchEstimate):
            return median(self.times)
        return median(launch.counter(VECTOR_COUNTER) for launch in self.launches)

    @property
    def is_outside_estimate(self) -> bool:
        """Whether the measured value is outside the estimated range."""
        measured = self.measured_us
        return (
            self.estimate is not None
            and measured > 0
            and not self.estimate.low_us <= measured <= self.estimate.high_us
        )

    @cached_property
    def times(self) -> list[float]:
        """Measured times in microseconds."""
        return [launch.duration_us for launch in self.launches]

    @cached_property
    def nearby(self) -> tuple[NearbyPlan, ...]:
        """Nearest changes that take another path; none without a plan."""
        if not self.possible_calls:
            return ()
        call = self.possible_calls[0]
        operator, plan = load_operator(self.operator), call.plan
        fixed = fixed_call(operator, call.arguments, plan.deterministic)
        nearest = nearby_plans(plan, fixed, plan.profile, "documented")
        return tuple(change for change in nearest if change.changes_path)

    @cached_property
    def faster_than_bound(self) -> int:
        """Launches that took less time than the bound under any assumption about the data."""
        bounds = (self.bound_us, *(other.kernel_us for other in self.otherwise))
        return sum(us < min(bounds) for us in self.times) if self.possible_calls else 0

    @cached_property
    def busiest_pipe(self) -> str:
        """The busiest pipe of the vector core by counters; empty without counters."""
        busy = self.busy_us
        return max(busy, key=lambda pipe: busy[pipe]) if any(busy.values()) else ""

    @cached_property
    def busy_us(self) -> dict[str, float]:
        """Median busy time of each pipe by counters; 0 without counters."""
        return {
            pipe: median(launch.counter(name) for launch in self.launches)
            for name, pipe in PIPES.items()
        }

    @cached_property
    def pipe_gap(self) -> dict[str, Any] | None:
        """What makes the launch slower than its bound; None without counters or bound by pipe.

        The ``pipe`` that counters show busy longest beyond its bound, its busy time measured and in
        the bound, and the time in which the busiest pipe waits, in microseconds.
        """
        if not self.busiest_pipe or not self.bound_busy_us:
            return None
        busy = self.busy_us
        over = {pipe: us - self.bound_busy_us.get(pipe, 0.0) for pipe, us in busy.items()}
        pipe = max(over, key=lambda pipe: over[pipe])
        waiting = max(median(self.times) - busy[self.busiest_pipe], 0.0)
        return {
            "pipe": pipe,
            "busy_us": busy[pipe],
            "bound_us": self.bound_busy_us.get(pipe, 0.0),
            "waiting_us": waiting,
        }

    def as_dict(self) -> dict[str, Any]:
        """Return the group as plain data."""
        first = self.launches[0]
        call = self.possible_calls[0] if self.possible_calls else None
        plan = call.plan if call else None
        middle, fastest = median(self.times), min(self.times)
        bound = self.bound_us if plan else None
        measured = self.measured_us if self.estimate else 0.0
        return {
            "kernel": first.kernel,
            "operator": self.operator,
            "lines": [launch.line for launch in self.launches],
            "count": len(self.launches),
            "inputs": _texts(first.inputs),
            "outputs": _texts(first.outputs),
            "median_us": middle,
            "min_us": fastest,
            "max_us": max(self.times),
            "total_us": sum(self.times),
            "bound_us": bound,
            "coverage": self.coverage,
            "bound_over_measured": _ratio(bound, middle),
            "bound_over_fastest": _ratio(bound, fastest),
            "faster_than_bound": self.faster_than_bound,
            "assumptions": list(self.assumptions),
            "otherwise": [
                {"assumption": other.assumption, "bound_us": other.kernel_us}
                for other in self.otherwise
            ],
            "unknown": self.unidentified_argument,
            "estimate": self.estimate.model_dump(mode="json") if self.estimate else None,
            "estimated_as_measured_us": measured or None,
            "off_by_more_than_the_band": self.is_outside_estimate,
            "planned_block_dim": call.launch.block_dim if call else None,
            "measured_block_dim": first.block_dim,
            "binding_pipe": self.binding_pipe,
            "busiest_pipe": self.busiest_pipe,
            "pipe_gap": self.pipe_gap,
            "path": plan.path if plan else None,
            "tiling_key": plan.tiling_key if plan else None,
            "arguments": plan.arguments if plan else None,
            "cases": [
                {
                    "path": call.plan.path,
                    "tiling_key": call.plan.tiling_key,
                    "arguments": call.plan.arguments,
                    "deterministic": call.plan.deterministic,
                }
                for call in self.possible_calls
            ],
            "nearest_changes": [change.as_dict() for change in self.nearby],
            "error": self.refusal.as_dict() if self.refusal else None,
        }


def _ratio(bound: float | None, measured: float) -> float | None:
    return None if bound is None or not measured else bound / measured


def _texts(specs: Sequence[Any] | None) -> list[str] | None:
    if specs is None:
        return None
    return ["?" if spec is None else str(spec) for spec in specs]


@dataclass(frozen=True)
class CallGroup:
    """Equal calls of several launches."""

    plan: Plan
    calls: tuple[tuple[MeasuredLaunch, ...], ...]
    """The launches of every call, in the order of the plan."""
    timeline: Timeline
    """Bounds of the launches, and what they assume."""

    def as_dict(self) -> dict[str, Any]:
        """Return the calls as plain data."""
        totals = [sum(launch.duration_us for launch in launches) for launches in self.calls]
        plan, total = self.plan, median(totals)
        times = [
            median(launch.duration_us for launch in launches)
            for launches in zip(*self.calls, strict=True)
        ]
        launches = [
            {
                "kernel": planned.kernel,
                "planned_block_dim": planned.block_dim,
                "measured_block_dim": measured.block_dim,
                "median_us": time,
                "share": time / total if total else 0.0,
                "bound_us": bound.us,
            }
            for planned, measured, time, bound in zip(
                plan.launches, self.calls[0], times, self.timeline.launches, strict=True
            )
        ]
        return {
            "operator": plan.operator,
            "count": len(self.calls),
            "arguments": plan.arguments,
            "deterministic": plan.deterministic,
            "median_us": total,
            "min_us": min(totals),
            "bound_us": sum(bound.us for bound in self.timeline.launches),
            "coverage": self.timeline.coverage,
            "assumptions": list(self.timeline.assumptions),
            "otherwise": [
                {"assumption": other.assumption, "bound_us": other.bound_us}
                for other in self.timeline.otherwise
            ],
            "launches": launches,
        }
