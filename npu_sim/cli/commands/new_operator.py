"""``npu-sim new-operator``."""

from dataclasses import dataclass
from importlib import resources
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path
from shlex import quote
from string import Template
from typing import Annotated

import typer

from npu_sim.cli.options import command
from npu_sim.files.writing import cannot_write, write_text
from npu_sim.registry import OPERATOR_NAMES
from npu_sim.status import UsageError, shown

Name = Annotated[str, typer.Argument(help="Name in lower case, such as scale_rows.")]
FILES = {"operator.txt": "{name}.py", "operator_test.txt": "test_{name}.py"}
"""Templates, and the files made from them."""


@dataclass(frozen=True, kw_only=True)
class NewOperatorOptions:
    """Options of ``npu-sim new-operator``."""

    out: Annotated[
        Path, typer.Option(help="Folder for the new folder NAME with the two files.")
    ] = Path()


@command()
def new_operator_command(name: Name, options: NewOperatorOptions) -> None:
    """Write a working operator with its tests, as a template to edit."""
    is_name = name.isidentifier() and not iskeyword(name) and name == name.lower()
    if not is_name or name in OPERATOR_NAMES or find_spec(name) is not None:
        raise UsageError(
            "name",
            "name = {name} cannot be used",
            "a Python name in lower case that neither an operator nor an installed module has",
            name=shown(name),
        )
    folder = options.out / name
    if folder.exists():
        raise UsageError(
            "name", "{folder} exists", "another name, or --out", folder=shown(str(folder))
        )
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise cannot_write("out", folder, error) from None
    fields = {"name": name, "title": "".join(part.capitalize() for part in name.split("_"))}
    for template, file in FILES.items():
        text = (resources.files("npu_sim.cli") / "templates" / template).read_text(encoding="utf-8")
        write_text(folder / file.format(name=name), Template(text).substitute(fields))
    file = quote(f"{folder / name}.py")
    print(f"npu-sim --operators {file} plan {name} --x 4096x1000:bf16")
    print(f"python -m pytest {quote(str(folder))}")
