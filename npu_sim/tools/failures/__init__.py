"""Reading of failures: error texts and logs of the product, as people paste them."""

from npu_sim.tool_packages import Tool

TOOL = Tool(
    package=__name__,
    command="diagnose",
    heading="Failures",
    summary="Read an error text or a log: code and stage in words, the operator where the text "
    "proves it, the argument, and of a device exception (plog or exception dump) the "
    "tiling fields.",
    functions={"diagnose": "diagnosis"},
)
