"""Targets of contexts: blocks, threads, generators, and blocks that no call was made in."""

import contextvars
import threading

import pytest

from npu_sim.framework.target import current_device, device, set_device
from npu_sim.status import UsageError


def present():
    """Return the product of calls, in a context of its own thread."""
    return current_device().profile.name


def in_thread(function):
    results = []

    def run():
        try:
            results.append(function())
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return results[0]


def holding(product):
    with device(product):
        while True:
            yield present()


def test_a_block_ends_with_the_target_before_it():
    with device("atlas_a3"):
        with device("ascend_950"):
            assert present() == "ascend_950"
        assert present() == "atlas_a3"
    assert present() == "atlas_a2"


def test_a_target_set_in_a_block_ends_with_it():
    with device("atlas_a3"):
        set_device("ascend_950")
        assert present() == "ascend_950"
    assert present() == "atlas_a2"


def test_a_block_may_be_used_again_and_in_itself():
    block = device("ascend_950")
    for _ in range(2):
        with block, block:
            assert present() == "ascend_950"
        assert present() == "atlas_a2"


def test_a_thread_has_the_defaults_unless_it_runs_in_the_context():
    with device("ascend_950"):
        context = contextvars.copy_context()
        assert in_thread(present) == "atlas_a2"
        assert in_thread(lambda: context.run(present)) == "ascend_950"
        assert present() == "ascend_950"


@pytest.mark.parametrize("first_closed", [0, 1])
def test_interleaved_blocks_raise_and_leave_no_target(first_closed):
    generators = [holding("ascend_950"), holding("atlas_a3")]
    for generator in generators:
        next(generator)
    first, second = generators[first_closed], generators[1 - first_closed]
    if first_closed == 0:
        with pytest.raises(UsageError, match="another block began in it and has not ended"):
            first.close()
    else:
        first.close()
    second.close()
    assert present() == "atlas_a2"


def test_a_block_that_ends_in_another_thread_is_named():
    block = device("ascend_950")
    block.__enter__()
    error = in_thread(lambda: block.__exit__(None, None, None))
    assert isinstance(error, UsageError)
    assert "it ends in another thread" in str(error)
    present()
    block.__exit__(None, None, None)
    assert present() == "atlas_a2"
