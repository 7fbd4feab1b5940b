"""Integer arithmetic, dtype codes and hardware sizes shared by planners, and the workspace of Sort.

Numba compiles these functions as they are.
"""

Shape = tuple[int, ...]
MAX_RANK = 8
"""Highest rank of any tensor (product document, "shape支持1-8维度")."""

FP32, FP16, BF16 = 0, 1, 2
"""Dtype codes: the positions of an axis of dtypes."""
DTYPE_CODES = {"float32": FP32, "float16": FP16, "bfloat16": BF16}

UINT32_MASK = 0xFFFFFFFF
"""Low 32 bits: values that a planner computes or stores in unsigned 32 bits."""
FP32_BYTES = 4
VECTOR_LANES = 64
"""fp32 lanes of one vector instruction (page ``numerics``)."""
BLOCK_BYTES = 32
"""Bytes of one block: the granularity of buffers, copies and core synchronisation."""
FP32_PER_BLOCK = BLOCK_BYTES // FP32_BYTES
SYSTEM_WORKSPACE_BYTES = 16777216
"""16 MiB: what RmsNorm and RmsNormGrad add on every SoC, whatever its profile states (pages
``rms_norm`` and ``rms_norm_grad``, "Workspace")."""

SORTABLE_ROWS = 2139095040
"""0x7F800000: AI cores sort int32 as fp32 bit patterns, which have the same order below this value.
From here on the AI CPU sorts."""
ROWS_IN_UB = 6112
"""Most rows that one core sorts in its Unified Buffer: a quarter of 192 KiB - 1 KiB, rounded down
to 32 bytes, for two buffers of 4 bytes per row."""


def ceil_div(a: int, b: int) -> int:
    """Return ``a / b`` rounded up."""
    return (a + b - 1) // b


def even_range(core: int, size: int, longer: int) -> tuple[int, int]:
    """Return the half-open range of a core: ``size`` items, one more on the first ``longer``."""
    start = core * size + min(core, longer)
    return start, start + size + (1 if core < longer else 0)


def chunk_range(core: int, size: int, total: int) -> tuple[int, int]:
    """Return the half-open range of a core that takes ``size`` items, of which ``total`` exist."""
    return min(core * size, total), min((core + 1) * size, total)


def largest_power(number: int) -> int:
    """Return the largest power of two that is at most ``number``; 1 for numbers below 2."""
    power = 1
    while 2 * power <= number:
        power *= 2
    return power


def bit_length(number: int) -> int:
    """Return the bit length of a number that is not negative; Numba has no ``int.bit_length``."""
    bits = 0
    while number > 0:
        number >>= 1
        bits += 1
    return bits


def align(a: int, b: int) -> int:
    """Return the smallest multiple of ``b`` that is at least ``a``."""
    return (a + b - 1) // b * b


def align_down(a: int, b: int) -> int:
    """Return the largest multiple of ``b`` that is at most ``a``."""
    return a // b * b


def element_bytes(dtype_code: int) -> int:
    """Return the bytes of an element."""
    return FP32_BYTES if dtype_code == FP32 else 2


def alignment(dtype_code: int) -> int:
    """Return the elements of one block, the padding unit of a row ("col_align" on the pages)."""
    return 8 if dtype_code == FP32 else 16


def sort_workspace_bytes(rows: int) -> int:
    """Return the workspace of the Sort kernel on A2 and A3, 1 <= rows < ``SORTABLE_ROWS``.

    A model (page ``workspace``, "The Sort kernel's own workspace"): closed host code selects the
    branch. Operators with indices launch Sort before their own kernel.
    """
    return 96 if rows <= ROWS_IN_UB else 16 * align(rows, 8) + 64
