"""``npu-sim explore``: the local page."""

from typing import Annotated

import typer

Profiles = Annotated[list[str] | None, typer.Argument(help="Profile files of your own to choose from, besides the shipped products.")]
Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="Port on the loopback address; 0 takes a free one.")]
Browser = Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")]

DEFAULT_PORT = 8642


def explore_command(profiles: Profiles = None, port: Port = DEFAULT_PORT, browser: Browser = True) -> None:
    """Plan in the browser: a page on this machine only, which changes as you type."""
    from npu_sim.cores import load_profile, shipped_products
    from npu_sim.explorer import Explorer, serve
    from npu_sim.status import INVALID, AclnnError

    products = {name: load_profile(name) for name in [*shipped_products(), *(profiles or [])]}
    explorer = Explorer(products, port)
    try:
        address = explorer.address
    except OSError as error:
        hint = "choose another with --port, or 0 for a free one"
        raise AclnnError(INVALID, "port", f"port = {port} cannot be used: {error.strerror}", hint) from None
    print(f"npu-sim explorer: {address}\nstop with Ctrl+C", flush=True)
    if browser:
        import webbrowser

        webbrowser.open(address)
    serve(explorer)
