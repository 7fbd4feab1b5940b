"""Settings of all tests: English messages whatever the locale, no deadline for properties.

Properties draw the same examples in every run, so that a failure belongs to the change that is
tested; ``-m hypothesis --hypothesis-profile=random`` draws ten times as many new ones.
"""

import os
import subprocess
import sys
from pathlib import Path

from hypothesis import settings

ROOT = Path(__file__).parents[1]

os.environ["NPU_SIM_LANG"] = "en"
# Each of the processes that tests start would compile the package anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
settings.register_profile("fixed", deadline=None, derandomize=True)
settings.register_profile("random", deadline=None, max_examples=1000)
settings.load_profile("fixed")


def pytest_configure(config):
    """Compile the Chinese catalogue if it was changed since npu_sim was installed."""
    source, compiled = (ROOT / "npu_sim/language" / name for name in ("zh.po", "zh.mo"))
    controller = not hasattr(config, "workerinput")
    if controller and (not compiled.exists() or compiled.stat().st_mtime < source.stat().st_mtime):
        subprocess.run([sys.executable, ROOT / "ci/build_catalogue.py"], check=True)
