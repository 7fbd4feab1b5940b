"""The explorer: a local page that plans as the user types.

It is a Starlette application with a page in plain JavaScript. It listens on the loopback address by
default, and loads nothing from other servers.
"""

from npu_sim.tools.explorer.access import LOCAL_NAMES
from npu_sim.tools.explorer.application import Explorer, serve, serving

__all__ = ["LOCAL_NAMES", "Explorer", "serve", "serving"]
