"""Try exp on every fp32 number: ``python benchmarks/exponential.py``.

All 2^32 patterns, against exp in fp64: the largest error of the exp of CrossEntropyLossGrad, where
it occurs, and how many results of 1 + e^-x, of SwiGlu and its gradient, are not the rounded ones.
Ctrl-C ends a run; it prints how far it got.
"""

import sys
import time

import numpy as np
from numba import njit, prange

from npu_sim.kernels.shared.elementwise import ulp_error
from npu_sim.kernels.vectors.lane_blocks import (
    block_length,
    exp_fp32,
    load_block,
    one_plus_exp_of_opposite,
    store_numbers,
)

PATTERNS, PIECE = 2**32, 2**22


@njit(parallel=True, error_model="numpy")
def exponentials(values, exp, one_plus_exp):
    step = block_length(values)
    for block in prange(values.size // step):
        first = block * step
        for index in range(first, first + step):
            exp[index] = exp_fp32(values[index])
        store_numbers(one_plus_exp, first, one_plus_exp_of_opposite(load_block(values, first)))


def main() -> None:
    """Try all patterns and print what was found."""
    exp, one_plus_exp = np.empty(PIECE, np.float32), np.empty(PIECE, np.float32)
    worst, worst_at, not_rounded, tried = 0.0, 0.0, 0, 0
    begun = time.perf_counter()
    try:
        for first in range(0, PATTERNS, PIECE):
            values = np.arange(first, first + PIECE, dtype=np.uint32).view(np.float32)
            exponentials(values, exp, one_plus_exp)
            with np.errstate(all="ignore"):
                error = ulp_error(exp, np.exp(values.astype(np.float64)), "float32")
                rounded = np.exp(-values.astype(np.float64)).astype(np.float32) + np.float32(1)
            numbers = ~np.isnan(values)
            at = int(error[numbers].argmax()) if numbers.any() else 0
            if numbers.any() and error[numbers][at] > worst:
                worst, worst_at = float(error[numbers][at]), float(values[numbers][at])
            differs = (one_plus_exp.view(np.uint32) != rounded.view(np.uint32)) & numbers
            not_rounded += int(np.count_nonzero(differs))
            if not (np.isnan(exp) == np.isnan(values)).all():
                sys.exit("exp has a nan for a number, or a number for nan")
            tried = first + PIECE
            print(f"\r{100 * tried / PATTERNS:.0f} %", end="", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
    print(f"\r{tried} of {PATTERNS} patterns in {time.perf_counter() - begun:.0f} s")
    print(f"exp: largest error {worst:.3f} ulp, at {worst_at:.7g}")
    print(f"1 + e^-x: {not_rounded} results are not the rounded ones")


if __name__ == "__main__":
    main()
