"""The command line that reproduces a report.

It is the command as typed, without the file of the report and with defaults written out, so that
the line gives the same answer where other defaults hold.
"""

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence

from npu_sim.cores import Profile

DEVICE_OF_REPORT: dict[tuple[str, ...], object] = {("--products", "--product"): "all"}
"""Default of reports on several products."""


def reproducing_command(
    defaults: Mapping[tuple[str, ...], object], more: Sequence[str] = ()
) -> str:
    """Return the running command as a line for the shell.

    - ``defaults``: such as ``{("--release",): "9.1"}``; options that were not typed are added.
    - ``more``: further arguments, added as they are.
    """
    line = ["npu-sim", *_without_report(sys.argv[1:])]
    typed = {argument.partition("=")[0] for argument in line}
    for spellings, value in defaults.items():
        if typed.isdisjoint(spellings):
            line += [spellings[0], str(value)]
    return shlex.join([*line, *more])


def _without_report(typed: Sequence[str]) -> Iterator[str]:
    arguments = iter(typed)
    for argument in arguments:
        if argument == "--report":
            next(arguments, "")
        elif not argument.startswith("--report="):
            yield argument


def command_on(profile: Profile, **others: object) -> str:
    """Return the running command with its SoC, which names the product, and release written out.

    ``others`` are further options by name.
    """
    device = {"soc": profile.soc, "release": profile.release}
    return reproducing_command(
        {("--" + name.replace("_", "-"),): value for name, value in (device | others).items()}
    )
