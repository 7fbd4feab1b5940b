"""The device kit: calls that a user's device computes, and what its results show.

:mod:`choice` finds the calls, :mod:`folder` writes them beside the script :mod:`run_on_device`,
which needs PyTorch and torch_npu alone; :mod:`results` reads what comes back, which is not trusted,
and :mod:`check` judges it. :mod:`rehearsal` runs the script on :mod:`simulated_device`.

Source: specification page ``device_kit``.
"""

from npu_sim.tool_packages import Tool

TOOL = Tool(
    package=__name__,
    command="kit",
    heading="Your device",
    summary="Write calls for your device, with a script that runs them, and judge its results.",
    functions={"kit": "folder", "check_kit": "check", "rehearse_kit": "rehearsal"},
)
