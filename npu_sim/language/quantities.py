"""Sizes, times and fractions as people read them. JSON has the raw numbers."""

from npu_sim.language.text import say

UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"))
"""Units of sizes that are shown rounded; smaller sizes are exact bytes."""


def bytes_text(size: int) -> str:
    """Return a size: ``131456 bytes``, ``16.0 MiB (16,778,752)``."""
    for unit, name in UNITS:
        if abs(size) >= unit:
            return f"{size / unit:.1f} {name} ({size:,})"
    return say("{size} bytes", size=size)


def short_bytes_text(size: int) -> str:
    """Return a size for a narrow cell: ``131456 B``, ``16.0 MiB``."""
    return next((f"{size / unit:.1f} {name}" for unit, name in UNITS if size >= unit), f"{size} B")


def time_text(microseconds: float) -> str:
    """Return a time with three significant digits: ``4.14 ns``, ``94.9 us``, ``1.23 ms``."""
    value, unit = _rounded(microseconds), "us"
    if 0 < value < 0.1:
        value, unit = 1000 * value, "ns"
    elif value >= 1e6:
        value, unit = value / 1e6, "s"
    elif value >= 1000:
        value, unit = value / 1000, "ms"
    return f"{_three_digits(value)} {unit}"


def _rounded(value: float) -> float:
    """Return a number rounded to three significant digits."""
    return float(f"{value:.3g}")


def _three_digits(value: float) -> str:
    """Return a number of three significant digits as text."""
    if value >= 100:
        return f"{value:.0f}"
    if value >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 1 else f"{value:.3g}"


def ulp_text(error: float) -> str:
    """Return an error for a sentence: ``0.515 ulp``, ``171 ulp``, ``4,913 ulp``."""
    return f"{error:,.0f} ulp" if error >= 1000 else f"{error:.3g} ulp"


def calls_text(count: int, distinct: int | None = None) -> str:
    """Return a number of calls: ``1 call``, ``67 calls``, ``67 calls, 3 of them distinct``."""
    if count == 1:
        return say("1 call")
    if distinct is None:
        return say("{count} calls", count=count)
    return say("{count} calls, {distinct} of them distinct", count=count, distinct=distinct)


def percent_text(fraction: float) -> str:
    """Return a fraction as a percentage: ``32.1 %``."""
    return f"{100 * fraction:.1f} %"
