"""The threads of kernels."""


def limit_threads(threads: int | None) -> None:
    """Set the number of threads of all kernels; None keeps Numba's choice.

    Raises UsageError when there are not that many.
    """
    if threads is not None:
        from npu_sim.kernels.engine import compile as engine  # Numba is loaded by the first kernel

        engine.limit_threads(threads)
