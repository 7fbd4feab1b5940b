"""How a refusal is printed."""

import json
import sys

from npu_sim.status import AclnnError, refusal_text


def report_error(error: AclnnError, *, as_json: bool) -> None:
    """Print an error: JSON on standard output, or text on standard error."""
    if as_json:
        print(json.dumps({"outcome": "refused", "error": error.as_dict()}, indent=2, ensure_ascii=False))
        return
    print(refusal_text(error), file=sys.stderr)
