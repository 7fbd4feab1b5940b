"""How much memory launches move a second on the device of a profile, by kind: what streaming launches are estimated with.

Source: specification page ``estimate``, "Streaming launches" and "A user's own profile".
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import median

from npu_sim.files.measured_launch import MeasuredLaunch
from npu_sim.registry import operator_of_launch
from npu_sim.timelines.calibration import KINDS, READS_AND_WRITES, READS_ONLY, Ceiling
from npu_sim.timelines.estimates import BYTES_PER_US, STREAMED_BYTES, STREAMING, streamed_bytes

SCATTERED = ("gather", "scatter", "index", "sort", "topk")
"""Parts of the names of kernels whose memory traffic depends on data."""
REDUCED = 1000
"""A launch that writes so many times less than it reads is a reduction: it only reads."""


def measured_ceilings(
    launches: Sequence[MeasuredLaunch], vector_cores: int
) -> tuple[dict[str, Ceiling], dict[str, int]]:
    """Return the ceiling of every kind that a profile has launches of, and how many launches are of no use, by reason.

    Parameters
    ----------
    launches
        Those of one device.
    vector_cores
        Of its SoC; launches on fewer are left out.
    """
    skipped: Counter[str] = Counter()
    shapes: dict[str, dict[object, tuple[int, list[float]]]] = {kind: {} for kind in KINDS}
    for one in launches:
        reason = _unusable(one, vector_cores)
        kind, moved = _moved(one)
        if not reason and moved < STREAMED_BYTES:
            reason = f"less than {STREAMED_BYTES} bytes"
        if reason:
            skipped[reason] += 1
        else:
            shapes[kind].setdefault((one.kernel, one.inputs, one.outputs), (moved, []))[1].append(
                one.duration_us
            )
    rates = {
        kind: [moved / median(times) / BYTES_PER_US for moved, times in found.values()]
        for kind, found in shapes.items()
        if found
    }
    return {kind: _ceiling(found) for kind, found in rates.items()}, dict(skipped)


def _unusable(one: MeasuredLaunch, vector_cores: int) -> str:
    """Return why a launch says nothing of the memory; empty when it does."""
    if not one.is_vector:
        return "not on vector cores"
    if one.block_dim != vector_cores:
        return "not on all vector cores"
    if operator_of_launch(one.kernel) is not None:
        return "kernels that are planned here"
    if any(word in one.kernel.lower() for word in SCATTERED):
        return "gathers and sorts"
    if (
        not one.inputs
        or not one.outputs
        or None in (*one.inputs, *one.outputs)
        or not one.duration_us
    ):
        return "without shapes or duration"
    return ""


def _moved(one: MeasuredLaunch) -> tuple[str, int]:
    """Return a launch's kind, and the bytes it moves."""
    read, written = (
        sum(spec.nbytes for spec in tensors or () if spec is not None)
        for tensors in (one.inputs, one.outputs)
    )
    kind = STREAMING.get(one.kernel, READS_ONLY if written * REDUCED < read else READS_AND_WRITES)
    return kind, streamed_bytes(kind, read, written)


def _ceiling(rates: Sequence[float]) -> Ceiling:
    """Return the median of the shapes' rates, with the errors of telling each from the others."""
    errors = (
        [rate / median(_without(rates, place)) - 1 for place, rate in enumerate(rates)]
        if len(rates) > 1
        else []
    )
    low, high = (min(errors), max(errors)) if errors else (None, None)
    return Ceiling(tb_per_s=median(rates), shapes=len(rates), low_error=low, high_error=high)


def _without(rates: Iterable[float], left_out: int) -> list[float]:
    return [rate for place, rate in enumerate(rates) if place != left_out]
