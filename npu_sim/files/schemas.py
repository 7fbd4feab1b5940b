"""The forms of the JSON that the project writes: every document names its own under ``schema``; docs/json.md says what they hold."""

from types import MappingProxyType

VERSIONS = MappingProxyType(
    {
        "calibration": 1,
        "calls": 1,
        "caveat": 1,
        "caveats": 1,
        "columns": 1,
        "demo": 1,
        "diff": 1,
        "error": 1,
        "explain": 1,
        "explorer": 2,
        "limits": 1,
        "plan": 1,
        "preflight": 1,
        "preflight_result": 1,
        "products": 1,
        "profile": 1,
        "run": 1,
        "study": 1,
        "sweep": 1,
        "timeline": 1,
        "workspace": 1,
    }
)
"""A version goes up when a key is removed or changes its meaning; new keys do not change it."""


def schema(form: str) -> str:
    """Return what a document of a form has under ``schema``: ``npu_sim.plan/1``."""
    return f"npu_sim.{form}/{VERSIONS[form]}"
