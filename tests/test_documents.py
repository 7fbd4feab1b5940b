"""Run the commands and programs in user documents and compare their output with the documents.

Every block marked ``sh`` or ``python`` in ``README.md`` and the pages under ``docs/`` is executed
in order, in one folder per page.

- Each line of a ``sh`` block is a command. It must succeed, or end with ``# exit`` and its exit
  code. Commands that set up an environment are run by CI.
- A ``python`` block whose first line is ``# name.py`` is written to that file; other blocks run
  in order in one namespace.
- A ``text`` block directly below is the expected output; ``...`` matches any text.
- A block directly below ``<!-- excerpt -->`` is a piece of a file that other tests run.
"""

import doctest
import importlib.util
import pkgutil
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest

from npu_sim.cli.app import command_names
from npu_sim.cores import release_table
from npu_sim.operators.loading import load_operator
from npu_sim.registry import OPERATORS
from tests.cli.runner import npu_sim as command
from tests.measured import GRAD, OTHER, SUMMARY_NAMES, write_csv

ROOT = Path(__file__).parents[1]
SPEC = importlib.util.spec_from_file_location("operator_pages", ROOT / "docs/operator_pages.py")
operator_pages = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(operator_pages)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
CHINESE_README = ROOT / "README.zh.md"
SET_UP = "python3 -m venv"
OUTPUT = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
FENCE = re.compile(r"^ *(?:```|~~~)(.*)$", re.M)
LANGUAGES = {"", "python", "sh", "text", "toml", "yaml"}
"""Languages of code blocks; the highlighter of the site does not recognise anything else."""
STEP = re.compile(
    r"(?<!<!-- excerpt -->\n)^```(sh|python)\n(.*?)^```$(?:\s+^```text\n(.*?)^```$)?", re.M | re.S
)
"""An executed block: its language, its text, and the expected output below it."""
TRAINING = (
    "import torch\n\n"
    "x = torch.ones(4, 64, requires_grad=True)\n"
    "torch.nn.functional.rms_norm(x, (64,), torch.ones(64)).sum().backward()\n"
)


def marks_of(page):
    """Mark slow pages, which CI runs after the others."""
    return [pytest.mark.long] if page.parent.name == "jobs" or page.name == "profile.md" else []


@pytest.fixture
def readers_folder(tmp_path, monkeypatch):
    """Return a folder with the input files that the pages use."""
    np.save(tmp_path / "g.npy", np.ones((64, 8), np.float32))
    np.save(tmp_path / "i.npy", np.arange(64, dtype=np.int32))
    (tmp_path / "train.py").write_text(TRAINING, encoding="utf-8")
    for name in ("kernel_details.csv", "before.csv"):
        shutil.copy(ROOT / "examples" / name, tmp_path)
    write_csv(tmp_path / "op_summary.csv", [OTHER, GRAD], SUMMARY_NAMES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", operator_pages.WIDTH)
    monkeypatch.setenv("NPU_SIM_LANG", "en")
    return tmp_path


def outcome_of(block, capsys, monkeypatch):
    """Return what the commands of a block print; check the exit code of each."""
    printed = ""
    for line in block.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words and not line.startswith(SET_UP):
            assert words[0] == "npu-sim"
            outcome = command(capsys, monkeypatch, *words[1:])
            expected = re.search(r"# exit (\d+)$", line)
            assert outcome.code == (int(expected[1]) if expected else 0), (
                f"{line}: exit {outcome.code}\n{outcome.out}{outcome.err}"
            )
            printed += outcome.out + outcome.err
    return printed


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=marks_of(page), id=page.relative_to(ROOT).as_posix())
        for page in (*PAGES, CHINESE_README)
    ],
)
def test_commands_print_what_the_page_shows(page, readers_folder, capsys, monkeypatch):
    if page == CHINESE_README:
        monkeypatch.setenv("NPU_SIM_LANG", "zh")
    text = page.read_text(encoding="utf-8")
    if "npu-sim record" in text or "npu-sim emulate" in text:
        pytest.importorskip(
            "torch", reason="PyTorch is not installed: pip install 'npu_sim[torch]'"
        )
    namespace = {"__name__": page.stem}
    for language, block, shown in STEP.findall(text):
        if language == "sh":
            printed = outcome_of(block, capsys, monkeypatch)
        elif file_name := re.match(r"# (\w+\.py)\n", block):
            (readers_folder / file_name[1]).write_text(block, encoding="utf-8")
            continue
        else:
            exec(compile(block, page.name, "exec"), namespace)  # a page of this repository
            printed = capsys.readouterr().out
        same = not shown or doctest.OutputChecker().check_output(shown, printed, OUTPUT)
        assert same, f"{page.name}:\n{block}is shown with\n{shown}but prints\n{printed}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_code_blocks_have_standard_languages(page):
    fences = FENCE.findall(page.read_text(encoding="utf-8"))
    assert len(fences) % 2 == 0
    assert set(fences) <= LANGUAGES


def test_every_page_is_in_the_navigation_of_the_site():
    placed = re.findall(r"[\w/]+\.md$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.M)
    assert sorted(placed) == sorted(
        page.relative_to(ROOT / "docs").as_posix() for page in PAGES[1:]
    ), "nav of mkdocs.yml"


def test_links_of_the_readme_exist():
    linked = re.findall(r"\((docs/[\w/]+\.md)\)", PAGES[0].read_text(encoding="utf-8"))
    assert linked
    assert [link for link in linked if not (ROOT / link).exists()] == []


@pytest.mark.parametrize("operator", [entry.name for entry in OPERATORS])
def test_the_page_of_an_operator_is_up_to_date(operator, monkeypatch):
    monkeypatch.setenv("COLUMNS", operator_pages.WIDTH)
    monkeypatch.setenv("NPU_SIM_LANG", "en")
    written = (ROOT / f"docs/operators/{operator}.md").read_text(encoding="utf-8")
    assert written == operator_pages.page(load_operator(operator)), (
        "run python docs/operator_pages.py"
    )


def test_the_page_of_what_differs_between_releases_is_up_to_date():
    assert operator_pages.RELEASES.read_text(encoding="utf-8") == operator_pages.release_page(), (
        "run python docs/operator_pages.py"
    )


@pytest.mark.parametrize(
    ("row", "products", "values"),
    [
        ("`core_offset_bits`", "`atlas_a2`, `atlas_a3`, `atlas_inference`", "32 32 32 32 64 64"),
        ("`fuses_dx`", "`ascend_950`", "- - - 0 0 1"),
        ("`inference_series_merges`", "`atlas_inference`", "0 0 1 1 1 1"),
        ("`ascend_350`", "-", "- - - - yes"),
    ],
)
def test_what_differs_is_listed_with_its_products(row, products, values):
    (found,) = [listed for listed in cells(operator_pages.RELEASES) if listed[0] == row]
    assert " ".join(found[1:]).endswith(f"{products} {values}")


def cells(page):
    """Return the rows of all tables of a page, each as a list of cells."""
    rows = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def shape_of(page):
    """Return what translations of a page have in common."""
    text = page.read_text(encoding="utf-8")
    steps = STEP.findall(text)
    return {
        "headings": re.findall(r"^#+(?= )", text, re.M),
        "commands": [
            shlex.split(block, comments=True) for language, block, _ in steps if language == "sh"
        ],
        "tables": [(re.findall(r"`([^`]+)`", row[0]), len(row)) for row in cells(page)],
        "links": [
            link for link in re.findall(r"\]\(([^)]+)\)", text) if not link.startswith("README")
        ],
    }


@pytest.mark.parametrize("part", ["headings", "commands", "tables", "links"])
def test_both_languages_of_the_readme_agree(part):
    english, chinese = (shape_of(page)[part] for page in (PAGES[0], CHINESE_README))
    assert english
    assert chinese == english


def named_in_tables(page):
    """Return the names in backquotes in the first column of all tables of a page."""
    return {name for row in cells(page) for name in re.findall(r"`([^`]+)`", row[0])}


REFERENCES = sorted(
    place
    for page in (ROOT / "docs" / "reference").glob("*.md")
    for place in re.findall("^::: (.+)$", page.read_text(encoding="utf-8"), re.M)
)


@pytest.mark.parametrize("place", REFERENCES)
def test_the_reference_names_what_is_there(place):
    if place.startswith("npu_sim.torch"):
        pytest.importorskip(
            "torch", reason="PyTorch is not installed: pip install 'npu_sim[torch]'"
        )
    assert callable(pkgutil.resolve_name(place)) or importlib.util.find_spec(place)


@pytest.mark.parametrize("page", [PAGES[0], CHINESE_README], ids=lambda page: page.name)
def test_the_readme_has_every_operator(page):
    text = page.read_text(encoding="utf-8")
    assert [entry.name for entry in OPERATORS if f"`{entry.name}`" not in text] == []


def test_the_table_of_commands_is_complete():
    assert {*command_names()} <= named_in_tables(ROOT / "docs/commands.md")


def test_the_first_page_of_the_site_has_the_tasks_of_the_readme():
    readme, first = (
        [row for row in cells(page) if "](" in row[-1]]
        for page in (PAGES[0], ROOT / "docs/index.md")
    )
    assert first[:-1] == [[task, pages.replace("(docs/", "(")] for task, pages in readme]


def test_the_page_of_releases_agrees_with_their_table():
    table, rows = release_table(), cells(ROOT / "docs" / "releases.md")
    releases = [
        [name, release.stands_for, release.evidence] for name, release in table.releases.items()
    ]
    assert [row for row in rows if row[0] in table.releases] == releases
    assert f"Without one it is {table.default}." in (ROOT / "docs" / "releases.md").read_text(
        encoding="utf-8"
    )
