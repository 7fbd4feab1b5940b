"""How a refusal is printed."""

import sys
from typing import TYPE_CHECKING

from npu_sim.cli.json_output import print_json
from npu_sim.status import AclnnError, refusal_text

if TYPE_CHECKING:
    from npu_sim.plans.model import Plan


REFUSED = 2
"""Exit code of a call that does not run: the product refuses it, or its buffers overflow."""


def exit_with(plan: "Plan") -> None:
    """End with the exit code of a plan's outcome, after everything is printed."""
    if plan.overflow is not None:
        sys.exit(REFUSED)


def report_error(error: AclnnError, *, as_json: bool) -> None:
    """Print an error: JSON on standard output, or text on standard error."""
    if as_json:
        print_json("error", {"outcome": "refused", "error": error.as_dict()})
        return
    print(refusal_text(error), file=sys.stderr)
