"""Pythons that the import of the package refuses."""

from tests.processes import printed_by

WITHOUT_THE_LOCK = """
import sys
sys._is_gil_enabled = lambda: False
try:
    import npu_sim
except ImportError as error:
    print(error)
"""


def test_free_threaded_python_is_refused_with_the_way_out():
    assert "set PYTHON_GIL=1" in printed_by(WITHOUT_THE_LOCK, seconds=20)
