"""The explorer: a local page that plans as one types, made of the standard library's web server and plain JavaScript.

It listens on the loopback address, unless it is told otherwise, and loads nothing from anywhere else.
"""

from npu_sim.explorer.server import LOCAL_NAMES, Explorer, serve

__all__ = ["LOCAL_NAMES", "Explorer", "serve"]
