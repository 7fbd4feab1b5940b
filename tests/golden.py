"""Golden samples of the real product, as committed under ``tests/data``."""

import gzip
import json
from pathlib import Path
from typing import Any

from npu_sim.tiling import plan_kernel

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


def not_reproduced(lines: list[dict[str, Any]]) -> list[tuple[dict[str, Any], Any]]:
    """Return the lines that the raw planner answers otherwise, with its answers."""
    answers = [
        plan_kernel(
            line["op"], line["soc"], line["inputs"], line["deterministic"], line.get("release")
        )
        for line in lines
    ]
    return [
        (line, answer)
        for line, answer in zip(lines, answers, strict=True)
        if answer != line["expect"]
    ]
