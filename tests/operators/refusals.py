"""Calls that are refused, and what every refusal says."""

import pytest

import npu_sim


def refusal_of(plan, *arguments, **call):
    """Return the error of a call that is refused, which says what would be right.

    Parameters
    ----------
    plan
        Plans the call.
    """
    with pytest.raises(npu_sim.AclnnError) as refused:
        plan(*arguments, **call)
    assert refused.value.message
    assert refused.value.hint
    return refused.value


def blame_of(refused):
    """Return the status and the argument of a refusal."""
    return int(refused.status), refused.argument
