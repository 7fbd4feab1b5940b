"""Calls in a device profile: a kernel with the other launches of the same call."""

from collections.abc import Sequence
from dataclasses import dataclass

from npu_sim.files.measured_launch import MeasuredLaunch
from npu_sim.plans.model import Launch
from npu_sim.questions.possible_calls import PossibleCall

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
