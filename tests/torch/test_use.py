"""The block in which the functions of npu_sim.torch have a target."""

import pytest

pytest.importorskip("torch")

from npu_sim.torch import use


def test_a_block_without_a_call_warns():
    with (
        pytest.warns(UserWarning, match="no call was simulated in this block") as caught,
        use("ascend_950"),
    ):
        pass
    assert caught[0].filename == __file__


def test_a_block_that_fails_does_not_warn():
    with pytest.raises(KeyError), use("ascend_950"):
        raise KeyError
