"""Arithmetic of each operator in Numba: arrays in, arrays out, no validation.

A kernel is a function ``kernel(chunk, *arguments)`` under ``@kernel`` that computes one chunk of
the work. ``kernel.over(chunks, *arguments)`` spreads the chunks over the threads. (A kernel whose
work is divided differently names its first parameter accordingly, for instance ``thread`` or
``token``.)

Kernels call functions under ``@device_function``, allocate nothing (the caller provides scratch;
see `npu_sim.kernels.engine.compile`) and raise nothing. Chunks write to different elements, so
results do not depend on the number of threads. Arguments that belong together are passed as a
NamedTuple; compiled code reads its fields as if they were separate arguments.

With NUMBA_DISABLE_JIT=1 everything runs as plain Python and gives the same bits.
"""

from npu_sim.kernels.engine.compile import kernel

__all__ = ["kernel"]
