"""The scripts of benchmarks/ as modules."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


def script(name: str) -> Any:
    """Import a script; skip the test module where there is none."""
    if not FOLDER.exists():
        pytest.skip("the benchmarks are not part of a source distribution", allow_module_level=True)
    sys.path.insert(0, str(FOLDER))
    try:
        return import_module(name)
    finally:
        sys.path.remove(str(FOLDER))
