"""How commands print JSON."""

import json
from collections.abc import Mapping
from typing import Any

from npu_sim.files.schemas import schema


def print_json(form: str, data: Mapping[str, Any]) -> None:
    """Print a document; ``form`` is its name in :mod:`npu_sim.files.schemas`."""
    print(json.dumps({"schema": schema(form), **data}, indent=2, ensure_ascii=False))
