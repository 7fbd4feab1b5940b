"""Compile the Chinese catalogue when npu_sim is built, also for an editable installation.

hatchling runs the hook (``[tool.hatch.build.hooks.custom]`` in pyproject.toml). In a clone,
``python ci/build_catalogue.py`` compiles it again after ``zh.po`` was changed.
"""

from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LANGUAGE = Path(__file__).resolve().parents[1] / "npu_sim/language"


def compile_catalogue() -> None:
    """Write ``zh.mo``, the form of ``zh.po`` that gettext reads, as a whole."""
    with (LANGUAGE / "zh.po").open("rb") as source:
        catalogue = read_po(source, locale="zh_CN")
    with NamedTemporaryFile(dir=LANGUAGE.parents[1], delete=False) as target:
        write_mo(target, catalogue)
    Path(target.name).chmod(0o644)
    Path(target.name).replace(LANGUAGE / "zh.mo")


class CatalogueHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the compiled catalogue to what is built."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the catalogue before files are collected."""
        compile_catalogue()
        build_data["artifacts"].append("npu_sim/language/zh.mo")


if __name__ == "__main__":
    compile_catalogue()
