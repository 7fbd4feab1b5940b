"""The command line that reproduces a report.

It is the command as typed, with defaults written out, so that the line gives the same report where
other defaults hold.
"""

import shlex
import sys
from collections.abc import Mapping, Sequence

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
    line = ["npu-sim", *sys.argv[1:]]
    typed = {argument.partition("=")[0] for argument in line}
    for spellings, value in defaults.items():
        if typed.isdisjoint(spellings):
            line += [spellings[0], str(value)]
    return shlex.join([*line, *more])


def command_on(profile: Profile, **others: object) -> str:
    """Return the running command with its product, SoC and release written out.

    ``others`` are further options by name.
    """
    device = {"product": profile.name, "soc": profile.soc, "release": profile.release}
    return reproducing_command(
        {("--" + name.replace("_", "-"),): value for name, value in (device | others).items()}
    )
