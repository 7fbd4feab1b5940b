"""RmsNormGrad: what every core adds to dgamma, kept apart.

For studies of the order in which contributions arrive; the operator itself adds them up at once.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_sim.kernels.rms_norm_grad import Split, compute_rows


def contributions(
    dy: NDArray[Any], x: NDArray[Any], rstd: NDArray[np.float32], gamma: NDArray[Any], split: Split
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the core of every contribution, cores ascending, and the contributions (contributions, columns).

    Arguments as for :func:`npu_sim.kernels.rms_norm_grad.rms_norm_grad`.
    """
    rows, columns = x.shape
    counts = split.contributions(rows)
    cores = np.arange(counts.size, dtype=np.int64)
    parts, dx = np.empty((int(counts.sum()), columns), np.float32), np.empty_like(x)
    compute_rows(
        dy, x, rstd, gamma, split, cores, np.concatenate(([0], np.cumsum(counts))), dx, parts
    )
    return np.repeat(cores, counts), parts
