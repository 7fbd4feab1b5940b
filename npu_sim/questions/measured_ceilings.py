"""Memory throughput of launches in a device profile by kind, for estimates of streaming launches.

Source: specification page ``estimate``, "Streaming launches" and "A user's own profile".
"""

from collections import Counter
from collections.abc import Sequence
from statistics import median

from npu_sim.files.measured_launch import MeasuredLaunch
from npu_sim.language import Text
from npu_sim.registry import operator_of_launch
from npu_sim.timelines.calibration import KINDS, READS_AND_WRITES, READS_ONLY, Ceiling
from npu_sim.timelines.estimates import BYTES_PER_US, STREAMED_BYTES, STREAMING, streamed_bytes

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
    skipped: Counter[str] = Counter()
    shapes: dict[str, dict[object, tuple[int, list[float]]]] = {kind: {} for kind in KINDS}
    for launch in launches:
        reason = _unusable(launch, vector_cores)
        kind, moved = _moved(launch)
        if not reason and moved < STREAMED_BYTES:
            reason = Text("less than {streamed_bytes} bytes", streamed_bytes=STREAMED_BYTES)
        if reason:
            skipped[reason] += 1
        else:
            shape = (launch.kernel, launch.inputs, launch.outputs)
            shapes[kind].setdefault(shape, (moved, []))[1].append(launch.duration_us)
    rates = {
        kind: [moved / median(times) / BYTES_PER_US for moved, times in measured.values()]
        for kind, measured in shapes.items()
        if measured
    }
    return {kind: _ceiling(values) for kind, values in rates.items()}, dict(skipped)


def _unusable(launch: MeasuredLaunch, vector_cores: int) -> str:
    """Return why a launch cannot be used for a ceiling; empty if it can."""
    if not launch.is_vector:
        return "not on vector cores"
    if launch.block_dim != vector_cores:
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
