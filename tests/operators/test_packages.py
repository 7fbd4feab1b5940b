"""An operator is its package: declaration, plan, compute, timeline and study, found by name."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "own_operator"
MODULES = {
    "declaration": """
from dataclasses import replace
from scale_rows import OPERATOR as EXAMPLE

HOOKS = ("describe", "compute", "formula", "program", "claims", "terms")
OPERATOR = replace(
    EXAMPLE, name="packed_rows", title="PackedRows", package=__package__, **dict.fromkeys(HOOKS)
)
""",
    "plan": "from scale_rows import describe",
    "compute": "from scale_rows import compute, formula",
    "timeline": "from scale_rows import program",
    "study": "from scale_rows import claims, terms",
}
PROGRAM = """
import sys
import npu_sim
from packed_rows.declaration import OPERATOR
from npu_sim.cli import main

npu_sim.register(OPERATOR)
for words in (
    ("plan",), ("run",), ("explain",), ("timeline",), ("study", "precision"),
    ("study", "certificate"),
):
    sys.argv = ["npu-sim", *words, "packed_rows", "--x", "64x40:fp32", "--json"]
    try:
        main()
    except SystemExit as end:
        assert not end.code, (words, end.code)
    loaded = {name.partition(".")[2] for name in sys.modules if name.startswith("packed_rows.")}
    if words == ("plan",):
        assert loaded == {"declaration", "plan", "compute"}, loaded
assert loaded == {"declaration", "plan", "compute", "timeline", "study"}, loaded
"""


def test_commands_find_the_hooks_of_a_package(tmp_path):
    package = tmp_path / "packed_rows"
    package.mkdir()
    for name, source in {"__init__": "", **MODULES}.items():
        (package / f"{name}.py").write_text(source + "\n")
    path = ":".join(map(str, (tmp_path, EXAMPLE, ROOT)))
    done = subprocess.run(
        (sys.executable, "-c", f"import sys; sys.path[:0] = {path.split(':')}\n" + PROGRAM),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
