"""In a notebook an answer is displayed once, and its text is a string as anywhere else."""

import nbformat
import pytest
from nbclient import NotebookClient

CALL = '"rms_norm_grad", dy="64x128:bf16", gamma="128:bf16"'
ANSWERS = {
    "plan": f"npu_sim.plan({CALL})",
    "workspace": f"npu_sim.workspace({CALL})",
    "timeline": f"npu_sim.timeline({CALL})",
    "explain": f"npu_sim.explain({CALL})",
    "limits": 'npu_sim.limits("rms_norm_grad", "row", product="atlas_a2")',
}


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    """Return the executed cells: for each answer one that saves its text and one that shows it."""
    folder = tmp_path_factory.mktemp("notebook")
    sources = ["from pathlib import Path\nimport npu_sim"]
    for name, call in ANSWERS.items():
        sources += [f"{name} = {call}\nPath('{name}.txt').write_text(str({name}))\nNone", name]
    sources.append("[plan, plan]")
    notebook = nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, sources)))
    with pytest.MonkeyPatch.context() as patch:
        for variable in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR"):
            patch.setenv(variable, str(folder / variable))
        NotebookClient(
            notebook,
            timeout=300,
            kernel_name="python3",
            resources={"metadata": {"path": str(folder)}},
        ).execute()
    return folder, {cell.source: cell.outputs for cell in notebook.cells}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_cell_that_ends_in_an_answer_shows_it_once(cells, name):
    _, outputs = cells
    (shown,) = outputs[name]
    assert shown.output_type == "execute_result"
    assert shown.data["text/html"].startswith("<iframe")
    assert len(shown.data["text/plain"].splitlines()) > 2


@pytest.mark.parametrize("name", ANSWERS)
def test_the_saved_text_of_an_answer_is_that_of_a_cell(cells, name):
    folder, outputs = cells
    (source,) = (cell for cell in outputs if cell.startswith(f"{name} = "))
    assert outputs[source] == []
    (shown,) = outputs[name]
    assert (folder / f"{name}.txt").read_text(encoding="utf-8") == shown.data["text/plain"]


def test_a_list_shows_the_text_of_each_answer(cells):
    _, outputs = cells
    (shown,) = outputs["[plan, plan]"]
    assert shown.data["text/plain"].count("RmsNormGrad on Atlas A2") == 2
