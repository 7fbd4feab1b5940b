"""Profiles of a device: measured times beside bounds and plans, and calibrations."""

from npu_sim.tool_packages import Tool

TOOL = Tool(
    package=__name__,
    command="profile",
    heading="Many calls",
    summary="Read a device's profile: measured time beside the bound, planned beside measured "
    "cores, and, per call, each launch's share of the time.",
    functions={
        "profile": "measured_profile",
        "read_profile": "measured_profile",
        "compare_profiles": "measured_profile",
    },
)
