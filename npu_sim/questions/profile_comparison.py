"""Comparison of two device profiles, kernel by kernel: ``npu-sim profile A --against B``."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from npu_sim.files.device_profile import read_device_profile
from npu_sim.language import Text
from npu_sim.plans.answers import Printed
from npu_sim.status import UsageError, without_internal_frames


@dataclass(frozen=True)
class KernelChange:
    """All launches of a kernel, before and after. Times are sums in microseconds."""

    kernel: str
    launches_before: int
    launches: int
    before_us: float
    us: float
    ratio: float | None
    """Time after over time before; None for a new or a missing kernel."""
    share: float
    """Part of the measured time of all kernels, after."""


@dataclass(frozen=True, repr=False)
class ProfileComparison(Printed):
    """The answer of :func:`compare_profiles`."""

    file: str
    against: str
    """``file`` and ``against``: the profile after and before."""
    before_us: float
    us: float
    """``before_us`` and ``us``: measured time of all kernels."""
    kernels: tuple[KernelChange, ...]
    """Every kernel of the two profiles, largest change of time first."""

    def as_dict(self) -> dict[str, Any]:
        """Return the answer as plain data, the form ``--json`` prints."""
        return {
            "file": self.file,
            "against": self.against,
            "before_us": self.before_us,
            "us": self.us,
            "kernels": [asdict(kernel) for kernel in self.kernels],
        }


@without_internal_frames
def compare_profiles(file: str | Path, against: str | Path) -> ProfileComparison:
    """Return what changed from the profile ``against`` to the profile ``file``.

    The files are those of :func:`npu_sim.read_profile`; no device has to be identified.

    Raises UsageError for a file that cannot be read, or has no launch.
    """
    before, after = _times("against", against), _times("file", file)
    whole_before, whole = (sum(us for _, us in times.values()) for times in (before, after))
    kernels = []
    for kernel in before | after:
        launches_before, before_us = before.get(kernel, (0, 0.0))
        launches, us = after.get(kernel, (0, 0.0))
        ratio = us / before_us if launches and before_us else None
        share = us / whole if whole else 0.0
        kernels.append(KernelChange(kernel, launches_before, launches, before_us, us, ratio, share))
    kernels.sort(key=lambda kernel: -abs(kernel.us - kernel.before_us))
    return ProfileComparison(str(file), str(against), whole_before, whole, tuple(kernels))


def _times(argument: str, file: str | Path) -> dict[str, tuple[int, float]]:
    """Return the number of launches of every kernel and the sum of their times."""
    times: dict[str, tuple[int, float]] = {}
    for launch in read_device_profile(file):
        count, us = times.get(launch.kernel, (0, 0.0))
        times[launch.kernel] = count + 1, us + launch.duration_us
    if not times:
        message = Text("{file}: no launch of a kernel", file=file)
        raise UsageError(argument, message, "a profile with at least one row")
    return times
