"""The arithmetic of each operator: Numba only, arrays in, arrays out, no validation, no policy.

A kernel is a function ``kernel(share, *arguments)`` that computes one share of the work, under ``@kernel``; ``kernel.over(shares,
*arguments)`` spreads the shares over the threads. It calls functions under ``@device_function``, allocates nothing (scratch comes
from the caller: `npu_sim.kernels.engine.scratch`), raises nothing, and shares write to different elements, so that no result
depends on the number of threads. While NUMBA_DISABLE_JIT=1 everything is plain Python with the same bits.
"""
