"""Dumps of accuracy tools (msprobe): the calls in them, rebuilt, checked and compared."""

from npu_sim.tool_packages import Tool

TOOL = Tool(
    package=__name__,
    command="dump",
    heading="Failures",
    summary="List the calls of our operators in an msprobe dump, find values that cannot be, and "
    "the calls whose outputs differ from another dump although their inputs are equal.",
    functions={"read_dump": "reader"},
)
