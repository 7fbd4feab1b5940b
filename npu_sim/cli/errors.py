"""How a refusal is printed."""

import sys

from npu_sim.cli.json_output import print_json
from npu_sim.status import AclnnError, refusal_text


def report_error(error: AclnnError, *, as_json: bool) -> None:
    """Print an error: JSON on standard output, or text on standard error."""
    if as_json:
        print_json("error", {"outcome": "refused", "error": error.as_dict()})
        return
    print(refusal_text(error), file=sys.stderr)
