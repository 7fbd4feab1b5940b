"""The explorer: a local page that plans as one types, made of the standard library's web server and plain JavaScript.

It listens on the loopback address only and loads nothing from anywhere else.
"""

from npu_sim.explorer.server import Explorer, serve

__all__ = ["Explorer", "serve"]
