"""The command ``explore``."""

from dataclasses import dataclass
from typing import Annotated

import typer

from npu_sim.cli.options import command
from npu_sim.cores import load_profile, shipped_products
from npu_sim.language import say
from npu_sim.status import UsageError

Profiles = Annotated[
    list[str] | None,
    typer.Argument(help="Profile files of your own to choose from, besides the shipped products."),
]


@dataclass(frozen=True, kw_only=True)
class ExploreOptions:
    """Options of ``npu-sim explore``."""

    host: Annotated[
        str,
        typer.Option(
            help="Address to listen on; other machines reach any but the loopback address."
        ),
    ] = "127.0.0.1"
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8642
    browser: Annotated[bool, typer.Option(help="Open the page in the browser.")] = True
    i_know: Annotated[
        bool,
        typer.Option(
            help="Listen on an address that other machines reach: who has the link can use this "
            "one."
        ),
    ] = False


@command()
def explore_command(options: ExploreOptions, profiles: Profiles = None) -> None:
    """Plan in the browser: a page on this machine only, which changes as you type."""
    try:
        from npu_sim.tools.explorer.access import LOCAL_NAMES
        from npu_sim.tools.explorer.application import Explorer, serve
    except ModuleNotFoundError as error:
        raise UsageError(
            "explore",
            "the explorer needs {name}",
            "pip install 'npu_sim[explore]'",
            name=error.name,
        ) from None

    host, port = options.host, options.port
    if host not in LOCAL_NAMES and not options.i_know:
        raise UsageError(
            "host",
            "host = {host}: other machines would reach the explorer, which computes any call it "
            "receives",
            "leave it out, or add --i-know: the page then opens by a link with a token only",
            host=host,
        )

    explorer = Explorer(
        {name: load_profile(name) for name in [*shipped_products(), *(profiles or [])]},
        port=port,
        host=host,
    )
    try:
        address = explorer.access.address
    except OSError as error:
        raise UsageError(
            "port",
            "port = {port} of {host} cannot be used: {strerror}",
            "choose another with --port, or 0 for a free one",
            port=port,
            host=host,
            strerror=error.strerror,
        ) from None
    print(say("npu-sim explorer: {address}\nstop with Ctrl+C", address=address), flush=True)
    if options.browser:
        import webbrowser

        webbrowser.open(address)
    serve(explorer)
