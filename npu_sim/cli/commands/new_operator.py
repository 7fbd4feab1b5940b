"""``npu-sim new-operator``: a working operator of one's own to start from."""

from importlib.resources import files
from keyword import iskeyword
from pathlib import Path
from string import Template
from typing import Annotated

import typer

from npu_sim.language import Text
from npu_sim.status import UsageError, shown

Name = Annotated[str, typer.Argument(help="Name in lower case, such as scale_rows.")]
Folder = Annotated[
    Path, typer.Option("--out", help="Folder for the new folder NAME with the two files.")
]
FILES = {"operator.txt": "{name}.py", "operator_test.txt": "test_{name}.py"}
"""Templates, and the files made from them."""


def new_operator_command(name: Name, out: Folder = Path()) -> None:
    """Write a working operator with its tests, as a template to edit."""
    from npu_sim.files.writing import cannot_write, write_text
    from npu_sim.registry import OPERATOR_NAMES

    if not name.isidentifier() or iskeyword(name) or name != name.lower() or name in OPERATOR_NAMES:
        message = Text("name = {name} cannot be used", name=shown(name))
        raise UsageError(
            "name", message, "a Python name in lower case that no operator of npu_sim has"
        )
    folder = out / name
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise cannot_write("out", folder, error) from None
    fields = {"name": name, "title": "".join(part.capitalize() for part in name.split("_"))}
    for template, file in FILES.items():
        text = (files("npu_sim.cli") / "templates" / template).read_text(encoding="utf-8")
        write_text(folder / file.format(name=name), Template(text).substitute(fields))
    print(f"npu-sim --operators {folder / name}.py plan {name} --x 4096x1000:bf16")
    print(f"python -m pytest {folder}")
