"""The device kit: calls that a user's device computes, and what its results show.

:mod:`choice` finds the calls, :mod:`folder` writes them beside the script :mod:`run_on_device`,
which needs PyTorch and torch_npu alone, and :mod:`check` judges the results that come back.

Source: specification page ``device_kit``.
"""
