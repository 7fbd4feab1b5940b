"""Checks that every refused call shares."""

import pytest

import npu_sim


def refusal_of(plan, *arguments, **call):
    """Return the error of a refused call, after checking that it has a message and a hint.

    Parameters
    ----------
    plan
        Function that plans the call.
    """
    with pytest.raises(npu_sim.AclnnError) as refused:
        plan(*arguments, **call)
    assert refused.value.message
    assert refused.value.hint
    return refused.value


def blame_of(refused):
    """Return the status and the argument of a refusal."""
    return int(refused.status), refused.argument
