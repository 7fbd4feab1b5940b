"""Groups of equal launches and equal calls in a device profile, with their plans."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from statistics import median
from typing import Any

from npu_sim.files.device_profile import MeasuredLaunch
from npu_sim.plans.model import Plan
from npu_sim.questions.measured_calls import MeasuredCall, PossibleCall
from npu_sim.questions.nearby_calls import NearbyPlan
from npu_sim.status import AclnnError
from npu_sim.timelines.model import LaunchEstimate, OtherBound, VectorEstimate

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
class PipeGap:
    """The pipe that counters show busy longest beyond its bound. Times in microseconds."""

    pipe: str
    busy_us: float
    bound_us: float
    """``busy_us`` and ``bound_us``: busy time of the pipe, measured and in the bound."""
    waiting_us: float
    """Time in which the busiest pipe waits."""


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
    nearby: tuple[NearbyPlan, ...] = ()
    """Nearest changes that take another path."""
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
    def pipe_gap(self) -> PipeGap | None:
        """What makes the launch slower than its bound; None without counters or bound by pipe."""
        if not self.busiest_pipe or not self.bound_busy_us:
            return None
        busy = self.busy_us
        over = {pipe: us - self.bound_busy_us.get(pipe, 0.0) for pipe, us in busy.items()}
        pipe = max(over, key=lambda pipe: over[pipe])
        waiting = max(median(self.times) - busy[self.busiest_pipe], 0.0)
        return PipeGap(pipe, busy[pipe], self.bound_busy_us.get(pipe, 0.0), waiting)

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
            "pipe_gap": asdict(self.pipe_gap) if self.pipe_gap else None,
            "path": plan.path if plan else None,
            "tiling_key": plan.tiling_key if plan else None,
            "arguments": plan.arguments if plan else None,
            "cases": [_plan_facts(call.plan) for call in self.possible_calls],
            "nearest_changes": [change.as_dict() for change in self.nearby],
            "error": self.refusal.as_dict() if self.refusal else None,
        }


def _ratio(bound: float | None, measured: float) -> float | None:
    return None if bound is None or not measured else bound / measured


def _plan_facts(plan: Plan) -> dict[str, Any]:
    return {
        "path": plan.path,
        "tiling_key": plan.tiling_key,
        "arguments": plan.arguments,
        "deterministic": plan.deterministic,
    }


def _texts(specs: Sequence[Any] | None) -> list[str] | None:
    if specs is None:
        return None
    return ["?" if spec is None else str(spec) for spec in specs]


@dataclass(frozen=True)
class CallGroup:
    """Equal calls of several launches, with the bound of every launch and what it assumes."""

    calls: tuple[MeasuredCall, ...]
    bounds_us: tuple[float | None, ...]
    assumptions: tuple[str, ...] = ()
    otherwise: tuple[OtherBound, ...] = ()
    coverage: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return the calls as plain data."""
        plan, total = self.calls[0].possible.plan, median(call.total_us for call in self.calls)
        launches = []
        for position, planned in enumerate(plan.launches):
            time = median(call.launches[position].duration_us for call in self.calls)
            share = time / total if total else 0.0
            blocks = self.calls[0].launches[position].block_dim
            facts = {
                "kernel": planned.kernel,
                "planned_block_dim": planned.block_dim,
                "measured_block_dim": blocks,
            }
            launches.append(
                {**facts, "median_us": time, "share": share, "bound_us": self.bounds_us[position]}
            )
        return {
            "operator": plan.operator,
            "count": len(self.calls),
            "arguments": plan.arguments,
            "deterministic": plan.deterministic,
            "median_us": total,
            "min_us": min(call.total_us for call in self.calls),
            "bound_us": sum(bound or 0.0 for bound in self.bounds_us),
            "coverage": self.coverage,
            "assumptions": list(self.assumptions),
            "otherwise": [
                {"assumption": other.assumption, "bound_us": other.bound_us}
                for other in self.otherwise
            ],
            "launches": launches,
        }
