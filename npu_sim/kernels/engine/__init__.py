"""Compilation, caching and threads of kernels, regardless of what they compute.

`compile` has the decorators (``@kernel``, ``@device_function``), the parallel loop that runs every
kernel, the host's threads and their scratch; `codegen` makes machine code of a kernel and its
entry, `cache` keeps it on disk; `numba_inside` names all private interfaces of Numba that the
others use.

**Which private interfaces, and why.** With Numba's ``njit`` alone, everything works and gives the
same bits, but seven first calls take 31 s instead of 16 s, and nothing is cached safely.

- ``Compiler``, ``JITCodeLibrary``: Numba optimises every function and generates its machine code,
  and does both again in every caller. Here a function that only kernels call is left as it is, and
  LLVM optimises each kernel once, as a whole (`codegen`).
- ``CFunc``, ``populate_array``: one compiled parallel loop runs every kernel through its address,
  so that a kernel is compiled without a loop of its own (`codegen.compile_entry`).
- ``_Cache``, ``CompileResult._reduce`` and ``_rebuild``, ``dumps``: Numba's own file cache serves
  stale code after a function in another module has changed. The key of this one contains the source
  of the whole package, and a file that others could have written is not loaded (`cache`).
- ``global_compiler_lock``: a child that is forked while another thread compiles would wait for
  ever.

**When Numba changes.** A name that is gone is noticed at import, and a version later than the last
one tested runs a small kernel first (`numba_inside.holds`). In both cases kernels run through
``njit`` alone. To test a new version: raise ``LAST_TESTED``, run ``tests/kernels``.

**Switches.** ``NPU_SIM_PLAIN_NUMBA=1`` uses ``njit`` alone; ``benchmarks/plain_numba.py`` holds
every kernel within 1.5 times the usual time then. ``NPU_SIM_CHECK=1`` does so on one thread, and
checks every access. ``NUMBA_DISABLE_JIT=1`` runs kernels as Python. ``NPU_SIM_CACHE_DIR=`` (empty)
switches the cache off.
"""
