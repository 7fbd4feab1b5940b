"""Tools that stand on the core, for people with a device, a log, a profile or a browser.

:mod:`npu_sim.tool_packages` finds them; without this folder npu_sim has the core's commands only.
"""
