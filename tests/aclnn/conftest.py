import pytest

from npu_sim.aclnn import aclGetRecentErrMsg


@pytest.fixture(autouse=True)
def _no_old_messages():
    """Clear the error messages of earlier tests."""
    aclGetRecentErrMsg()
