"""Golden samples of the real product, as committed under ``tests/data``."""

import gzip
import json
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"


def tiling_lines(kernel: str) -> list[dict[str, Any]]:
    """Return golden planner results of one kernel, one dict per line."""
    return _lines(DATA / "tiling" / kernel)


def release_lines(kernel: str) -> list[dict[str, Any]]:
    """Return lines of :func:`tiling_lines` that an older ``release`` plans differently."""
    return _lines(DATA / "releases" / kernel)


def _lines(stem: Path) -> list[dict[str, Any]]:
    plain, packed = stem.with_suffix(".jsonl"), stem.with_suffix(".jsonl.gz")
    text = (
        plain.read_text(encoding="utf-8")
        if plain.exists()
        else gzip.decompress(packed.read_bytes()).decode("utf-8")
    )
    return [json.loads(line) for line in text.splitlines()]
