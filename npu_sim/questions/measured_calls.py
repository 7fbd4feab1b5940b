"""Whole calls in a profile: the launches around a kernel that its call starts besides it."""

from collections.abc import Sequence
from dataclasses import dataclass

from npu_sim.files.measured_launch import MeasuredLaunch
from npu_sim.questions.measured_cases import PossibleCall


@dataclass(frozen=True)
class MeasuredCall:
    """One call: what was planned, and the launches that were measured for it, in the same order."""

    case: PossibleCall
    launches: tuple[MeasuredLaunch, ...]

    @property
    def total_us(self) -> float:
        """Measured time of all launches."""
        return sum(one.duration_us for one in self.launches)


def find_call(
    stream: Sequence[MeasuredLaunch], place: int, cases: Sequence[PossibleCall]
) -> MeasuredCall | None:
    """Return the call around the launch at a place of its stream; None where the launches around it are those of no possible call.

    The longest call is taken: a kernel alone is a call of one launch.
    """
    matching = []
    for case in cases:
        first = place - case.place
        around = stream[max(first, 0) : first + len(case.plan.launches)]
        if (
            first >= 0
            and len(around) == len(case.plan.launches)
            and all(map(_is, case.plan.launches, around))
        ):
            matching.append(MeasuredCall(case, tuple(around)))
    return max(matching, key=lambda one: len(one.launches), default=None)


def _is(planned: object, measured: MeasuredLaunch) -> bool:
    """Whether a measured launch is the planned one: its kernel, and where both say them the dtypes of a cast."""
    kernel, inputs, outputs = (getattr(planned, name) for name in ("kernel", "inputs", "outputs"))
    if kernel != measured.kernel:
        return False
    if kernel != CAST or not measured.inputs or not measured.outputs:
        return True
    dtypes = [spec.dtype for spec in (measured.inputs[0], measured.outputs[0]) if spec is not None]
    return dtypes == [inputs[0].dtype, outputs[0].dtype]


CAST = "Cast"
"""The kernel whose dtypes tell one from another."""
