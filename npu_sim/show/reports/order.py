"""Order dependence in bins: what the strip of a report draws, and what the JSON of the same run says."""

from itertools import pairwise
from typing import Any

import numpy as np

from npu_sim.framework.results import OrderMask, Result

MOST_BINS = 200
MOST_RUNS = 400


def order_strip_data(output: str, mask: OrderMask) -> dict[str, Any]:
    """Count flags in at most ``MOST_BINS`` equal bins.

    Parameters
    ----------
    output
        Name of the output.
    mask
        Which of its rows, columns or elements depend on the order of atomic additions.
    """
    flags = np.ravel(mask.mask)
    edges = np.unique(np.linspace(0, flags.size, MOST_BINS + 1).astype(np.int64))
    sums = np.concatenate([[0], np.cumsum(flags, dtype=np.int64)])
    bins = [
        {
            "start": int(start),
            "stop": int(stop),
            "size": int(stop - start),
            "order_dependent": int(sums[stop] - sums[start]),
        }
        for start, stop in pairwise(edges)
    ]
    return {"output": output, "axis": mask.axis, "bins": bins, "runs": _runs(flags)}


def _runs(flags: np.ndarray) -> list[dict[str, int]]:
    """Return the runs of flags that are set; none when they are too many to be seen side by side, or everything is set."""
    steps = np.diff(np.concatenate([[0], flags.astype(np.int8), [0]]))
    starts, stops = np.flatnonzero(steps == 1), np.flatnonzero(steps == -1)
    if len(starts) > MOST_RUNS or flags.all():
        return []
    return [
        {"start": int(start), "stop": int(stop)} for start, stop in zip(starts, stops, strict=True)
    ]


def order_strips(result: Result) -> list[dict[str, Any]]:
    """Return the strips of a run, one for every output that a mask is known of."""
    return [
        order_strip_data(output, mask)
        for output, mask in result.order_dependent.items()
        if mask.mask.size
    ]
