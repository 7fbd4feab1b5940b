"""What devices of users, and the vendor's simulator, confirmed or contradicted, by path of a plan.

The files are those that ``npu-sim kit --check`` writes, a JSON object a line. None is read when
there is none, and then a plan pays one look-up.

Source: specification page ``device_kit``, The check.
"""

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from npu_sim.cores import config_directory
from npu_sim.language import Text, joined

NUMBER = re.compile(r"\d[\d,]*")
Source = tuple[str, str]
"""Outcome, and the simulator that computed the results; empty for a device."""
PathKey = tuple[str, str, str, int | None, str, bool]
"""Product, operator, kernel, tiling key, path without numbers, and the determinism switch."""
SENTENCES = {
    ("confirmed", ""): "confirmed on {devices}",
    ("contradicted", ""): "contradicted on {devices}",
    ("confirmed", "npusim"): "confirmed by the vendor's simulator of {devices}",
    ("contradicted", "npusim"): "contradicted by the vendor's simulator of {devices}",
}
"""Sentence by outcome and, where no device computed the results, by what did."""


def evidence_folder() -> Path:
    """Return the folder of the files, in an installed package and in a clone."""
    installed = config_directory() / "device"
    return installed if installed.is_dir() else config_directory().parent / "tests/data/device"


@cache
def shipped_evidence() -> Mapping[PathKey, str]:
    """Return what the files that come with npu_sim say."""
    return evidence_by_path(evidence_folder())


def path_key(
    product: str, operator: str, kernel: str, tiling_key: int | None, path: str, switch: bool
) -> PathKey:
    """Return what tells a path from others; numbers in its description depend on the sizes."""
    return product, operator, kernel, tiling_key, NUMBER.sub("N", path), switch


def evidence_by_path(folder: Path) -> Mapping[PathKey, str]:
    """Return a sentence for every path that a device confirmed or contradicted."""
    found: dict[PathKey, dict[Source, list[str]]] = {}
    for file in sorted(folder.glob("*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            source = record["outcome"], _simulator(record)
            if source not in SENTENCES or not record["path"]:
                continue
            names = ("product", "operator", "kernel", "tiling_key", "path", "deterministic")
            key = path_key(*(record[name] for name in names))
            device = "{soc} (CANN {release})".format_map(record)
            devices = found.setdefault(key, {}).setdefault(source, [])
            if device not in devices:
                devices.append(device)
    return {key: _sentence(outcomes) for key, outcomes in found.items()}


def _simulator(record: Mapping[str, Any]) -> str:
    """Return the name of the simulator that computed a record; empty for a device."""
    backend = record.get("device", {}).get("backend", "")
    return "npusim" if backend == "npusim" else ""


def _sentence(devices: Mapping[Source, list[str]]) -> str:
    parts = [
        Text(template, devices=joined(devices[source], ", "))
        for source, template in SENTENCES.items()
        if source in devices
    ]
    return parts[0] if len(parts) == 1 else joined(parts, "; ")
