"""All kinds of trials, by name."""

import numpy as np

from npu_sim import NpuSimError
from tests.hostile.campaign import CALLS, Trial
from tests.hostile.interference import INTERFERENCE
from tests.hostile.names import NAMED

TRIALS: dict[str, Trial] = {**CALLS, **INTERFERENCE, **NAMED}


def attempt(trial: Trial, seed: int) -> bool:
    """Run one trial; return whether it was answered."""
    try:
        return trial(np.random.default_rng(seed))
    except NpuSimError:
        return False
