"""Switches of a release as planners take them: one NamedTuple type per operator, as Numba needs."""

from collections import namedtuple
from functools import cache
from typing import Any

from hypothesis import strategies as st

from npu_sim.cores import (
    NPU_ARCH_A2_A3,
    NPU_ARCH_ATLAS_INFERENCE,
    NPU_ARCH_ATLAS_TRAIN,
    default_release,
    release_names,
    release_switches,
    release_table,
)

ARCHITECTURES = (NPU_ARCH_A2_A3, NPU_ARCH_ATLAS_INFERENCE, NPU_ARCH_ATLAS_TRAIN)


@cache
def _kind(operator: str) -> Any:
    return namedtuple("Rules", release_table().switches[operator])


def rules_of(
    operator: str, release: str = default_release(), architecture: int = NPU_ARCH_A2_A3
) -> Any:
    """Return the switches of an operator at a release."""
    return _kind(operator)(**release_switches(release, operator, architecture))


def rules_at_any_release(operator: str) -> st.SearchStrategy[Any]:
    """Draw the switches of an operator at one of the releases of a product without a family."""
    return st.builds(
        rules_of,
        st.just(operator),
        st.sampled_from(release_names()),
        st.sampled_from(ARCHITECTURES),
    )
