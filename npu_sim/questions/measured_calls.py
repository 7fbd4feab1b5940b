"""Calls in a device profile: a kernel with the other launches of the same call."""

from collections.abc import Sequence
from dataclasses import dataclass

from npu_sim.files.measured_launch import MeasuredLaunch
from npu_sim.questions.measured_cases import PossibleCall


@dataclass(frozen=True)
class MeasuredCall:
    """One call: its plan, and the measured launches in the order of the plan."""

    case: PossibleCall
    launches: tuple[MeasuredLaunch, ...]

    @property
    def total_us(self) -> float:
        """Measured time of all launches."""
        return sum(launch.duration_us for launch in self.launches)


def find_case(
    stream: Sequence[MeasuredLaunch], place: int, cases: Sequence[PossibleCall]
) -> PossibleCall | None:
    """Return the case whose launches surround the launch at index ``place`` of its stream.

    Of several matching cases, the one with most launches is returned; None if none matches.
    """
    matching = []
    for case in cases:
        first = place - case.place
        around = stream[max(first, 0) : first + len(case.plan.launches)]
        if (
            first >= 0
            and len(around) == len(case.plan.launches)
            and all(map(_matches, case.plan.launches, around))
        ):
            matching.append(case)
    return max(matching, key=lambda case: len(case.plan.launches), default=None)


def _matches(planned: object, measured: MeasuredLaunch) -> bool:
    """Return whether kernel, and for casts the dtypes, of both launches agree."""
    kernel, inputs, outputs = (getattr(planned, name) for name in ("kernel", "inputs", "outputs"))
    if kernel != measured.kernel:
        return False
    if kernel != CAST or not measured.inputs or not measured.outputs:
        return True
    dtypes = [spec.dtype for spec in (measured.inputs[0], measured.outputs[0]) if spec is not None]
    return dtypes == [inputs[0].dtype, outputs[0].dtype]


CAST = "Cast"
"""Kernel whose launches are distinguished by their dtypes."""
