"""Forms of JSON documents and their versions; docs/json.md describes them."""

from types import MappingProxyType

VERSIONS = MappingProxyType(
    {
        "baseline": 1,
        "calibration": 1,
        "calls": 1,
        "caveat": 1,
        "caveats": 1,
        "columns": 1,
        "demo": 2,
        "diagnosis": 1,
        "dump": 1,
        "diff": 1,
        "error": 1,
        "evidence": 1,
        "explain": 2,
        "explorer": 2,
        "kit": 1,
        "kit_check": 1,
        "limits": 1,
        "plan": 2,
        "preflight": 1,
        "preflight_result": 2,
        "products": 1,
        "profile": 1,
        "profile_comparison": 1,
        "run": 2,
        "study": 2,
        "sweep": 1,
        "timeline": 2,
        "usage": 1,
        "verification": 1,
    }
)
"""A version increases when a key is removed or changes its meaning, not for new keys."""


def schema(form: str) -> str:
    """Return the value of ``schema`` in a document of a form, such as ``npu_sim.plan/2``."""
    return f"npu_sim.{form}/{VERSIONS[form]}"
