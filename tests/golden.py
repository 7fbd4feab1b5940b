"""Golden samples of the real product, as committed under ``tests/data``."""

import gzip
import json
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"


def tiling_lines(kernel: str, folder: str = "tiling") -> list[dict[str, Any]]:
    """Golden planner results of one kernel, one dict a line; those of older releases are in the folder ``releases``."""
    plain, packed = DATA / folder / f"{kernel}.jsonl", DATA / folder / f"{kernel}.jsonl.gz"
    text = plain.read_text(encoding="utf-8") if plain.exists() else gzip.decompress(packed.read_bytes()).decode("utf-8")
    return [json.loads(line) for line in text.splitlines()]
