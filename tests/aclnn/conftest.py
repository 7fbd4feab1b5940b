import pytest

from npu_sim.aclnn import aclGetRecentErrMsg


@pytest.fixture(autouse=True)
def _no_old_messages():
    """Every test starts without messages of an earlier one."""
    aclGetRecentErrMsg()
