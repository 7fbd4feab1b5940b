"""Switches of a release as planners take them: one NamedTuple type per operator, as Numba needs."""

from collections import namedtuple
from functools import cache
from typing import Any

from hypothesis import strategies as st

from npu_sim.cores import default_release, release_names, release_switches


@cache
def _kind(operator: str) -> Any:
    return namedtuple("Rules", release_switches(default_release(), operator))


def rules_of(operator: str, release: str = default_release()) -> Any:
    """Return the switches of an operator at a release."""
    return _kind(operator)(**release_switches(release, operator))


def rules_at_any_release(operator: str) -> st.SearchStrategy[Any]:
    """Draw the switches of an operator at one of the releases."""
    return st.sampled_from(release_names()).map(lambda release: rules_of(operator, release))
