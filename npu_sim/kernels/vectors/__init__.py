"""Vector instructions for kernels: lanes, blocks of lanes, and sums of a row.

A *lane* is one fp32 value of a vector. `lanes` has the type, its arithmetic, and loads and stores
that widen and round, `lanes_edges` loads and stores of parts of a cache line, `lane_blocks` longer
vectors for kernels with many operations per element, and exp; `row_sums` the sums of a row in the
products' orders.

**Why.** The same kernels as plain Numba loops take 1.2 to 1.9 times as long: LLVM does not
vectorise sums of many rows, whose arrays might overlap, it does not use the widest registers by
itself, and Numba has no non-temporal stores and no prefetching. A lane has the same bits as a
scalar, and nothing is reordered or fused, except by `lanes.multiply_add`, which kernels request.

**How.** Every operation has two versions of one name: a reference implementation in NumPy, of a few
lines, and an intrinsic that emits LLVM instructions through llvmlite (`lanes.instruction`).
``NUMBA_DISABLE_JIT=1`` selects the references, which the tests compare with the others.

**Which interfaces of Numba.** ``numba.extending`` is public. ``numba.core.cgutils``,
``numba.core.datamodel`` and the code generation contexts (``context.make_array``, ``nitems``) are
not documented, and have been stable for years; here a change of them is an error when a kernel is
compiled, and ``NPU_SIM_PLAIN_NUMBA=1`` does not help. The slow references of ``tests/reference``
do. LLVM's intrinsics are called by name (``llvm.fma``, ``llvm.masked.load``, ``llvm.prefetch``): a
new version of LLVM may rename them.
"""
