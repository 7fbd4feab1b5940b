"""The explorer: a local page that plans as the user types.

It is a Starlette application with a page in plain JavaScript. It listens on the loopback address by
default, and loads nothing from other servers.
"""

from npu_sim.tool_packages import Tool

TOOL = Tool(
    package=__name__,
    command="explore",
    heading="Start",
    summary="Plan in the browser: a page on this machine only, which changes as you type.",
    functions={},
)
