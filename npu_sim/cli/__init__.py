"""The command line ``npu-sim``."""

import sys

from npu_sim.cli.app import app
from npu_sim.cli.errors import report_error
from npu_sim.status import AclnnError

REFUSED = 2
"""Exit code of a call that the product refuses."""
INTERRUPTED = 130


def main() -> None:
    """Run the command line; exit 2 when a call is refused."""
    try:
        app()
    except AclnnError as error:
        report_error(error, as_json="--json" in sys.argv)
        sys.exit(REFUSED)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
