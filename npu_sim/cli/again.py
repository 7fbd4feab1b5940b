"""The command that makes a report again: as it was typed, with what was left to its defaults written out."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from npu_sim.cores import Profile


def command_again(defaults: Mapping[str, object], more: Sequence[str] = ()) -> str:
    """Return the running command as a line for the shell.

    Parameters
    ----------
    defaults
        What the command took for options, by flag, such as ``{"--release": "9.1"}``; several spellings of one option are joined by ``/``.
        Those that were not typed are added, so that the line means the same where other defaults hold.
    more
        Words that are added as they are.
    """
    words = ["npu-sim", *sys.argv[1:]]
    typed = {word.partition("=")[0] for word in words}
    for flags, value in defaults.items():
        spellings = flags.split("/")
        if typed.isdisjoint(spellings):
            words += [spellings[0], str(value)]
    return shlex.join([*words, *more])


def command_on(profile: "Profile", **others: object) -> str:
    """Return the running command with its product, SoC and release written out; ``others`` are further options, by name."""
    device = {"--product": profile.name, "--soc": profile.soc, "--release": profile.release}
    return command_again(
        {**device, **{"--" + name.replace("_", "-"): value for name, value in others.items()}}
    )
