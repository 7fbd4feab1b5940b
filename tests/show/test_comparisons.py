"""Reports of diff, limits and sweep: made by the commands, held against the JSON of the same call, opened in a browser."""

import json

import pytest

from tests.cli import runner
from tests.show.test_pages import CURVED_REPORT_BYTES
from tests.show.test_reports import PLAIN_REPORT_BYTES, numbers_missing_from, read


CALL = ("--grad", "4096x512:fp32", "--indices", "4096:int32", "--num-weights", "32000")
SCALED = ("--set", "rows=4096", "--set", "scale_grad_by_freq=true")
COMMANDS = {
    "diff": ("diff", "embedding_dense_backward", *CALL),
    "diff, refused everywhere": ("diff", "embedding_dense_backward", *CALL, "--products", "atlas_inference"),
    "limits": ("limits", "embedding_dense_backward", "--vary", "dim", *SCALED, "--set", "num_weights=32000"),
    "limits without an end": ("limits", "embedding_dense_backward", "--vary", "dim", "--products", "atlas_a2"),
    "frontier": (
        "limits",
        "embedding_dense_backward",
        "--vary",
        "dim",
        "--vary",
        "num_weights=1000,300000",
        *SCALED,
        "--products",
        "atlas_train",
    ),
    "sweep": (
        "sweep",
        "embedding_dense_backward",
        "--grid",
        "dim=1..3000",
        "--grid",
        "rows=64,100",
        "--grid",
        "product=atlas_a2,atlas_train",
    ),
    "sweep with a bound": (
        *(
            "sweep",
            "embedding_dense_backward",
            "--grid",
            "dim=1..9000",
            "--grid",
            "scale_grad_by_freq=true",
            "--grid",
            "product=atlas_train",
        ),
        *("--grid", "num_weights=32000"),
    ),
    "sweep of words": ("sweep", "embedding_dense_backward", "--grid", "grad_dtype=fp32,fp16"),
    "timeline": ("timeline", "embedding_dense_backward", *CALL, "--socs", "all"),
}
CURVES = {"limits": 1, "frontier": 1, "sweep": 7, "sweep with a bound": 7, "sweep of words": 4}
"""How many figures a report has, where it has any: a cut of a sweep has three, and there is one for every count."""


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """Reports that were made, with the JSON of their calls, by name."""
    return tmp_path_factory.mktemp("reports"), {}


@pytest.fixture
def written(reports, capsys, monkeypatch):
    folder, made = reports

    def write(name):
        if name not in made:
            file = folder / f"{len(made)}.html"
            done = runner.npu_sim(capsys, monkeypatch, *COMMANDS[name], "--report", file, "--json")
            assert done.code == 0, done.err + done.out
            made[name] = file, done.data
        return made[name]

    return write


@pytest.mark.parametrize("name", COMMANDS)
def test_every_number_of_the_report_is_in_the_json(written, name):
    file, data = written(name)
    html = file.read_text(encoding="utf-8")
    assert len(html.encode()) < (CURVED_REPORT_BYTES if name in CURVES else PLAIN_REPORT_BYTES)
    page = read(html)
    assert page.loads == []
    assert numbers_missing_from(data, page) == set()


@pytest.mark.parametrize("name", ["diff", *CURVES])
def test_the_report_opens_without_complaint(browser, written, name):
    file, _ = written(name)
    browser.open(file.as_uri(), dark=True)
    drawn = browser.driver.execute_script(
        "return [...document.querySelectorAll('figure.plot')].filter((one) => one.querySelector('.trace')).length"
    )
    assert drawn == CURVES.get(name, 0)
    browser.assert_quiet_and_local()


def test_a_cut_through_a_sweep_is_what_plan_says(written):
    import npu_sim

    _, data = written("sweep")
    curves = data["curves"]
    assert curves["axis"] == "dim"
    for one in curves["series"]:
        for dim, used, workspace, cores in list(zip(one["x"], one["used_bytes"], one["workspace_bytes"], one["cores"], strict=True))[::25]:
            plan = npu_sim.plan(
                "embedding_dense_backward",
                profile=one["product"],
                grad=f"{curves['with']['rows']}x{dim}:fp32",
                indices=f"{curves['with']['rows']}:int32",
                num_weights=curves["with"]["num_weights"],
            )
            assert (plan.memories[0].used_bytes, plan.workspace.total_bytes, plan.block_dim) == (used, workspace, cores)


def test_the_bounds_of_a_sweep_are_those_of_limits(written, capsys, monkeypatch):
    _, data = written("sweep with a bound")
    words = ("limits", "embedding_dense_backward", "--vary", "dim", *SCALED, "--set", "num_weights=32000", "--soc", "Ascend910A", "--json")
    row = runner.npu_sim(capsys, monkeypatch, *words).data["rows"][0]
    curves = data["curves"]
    assert (curves["documented"], curves["hardware"]) == (row["documented"]["largest"], row["hardware"]["largest"])
    assert curves["series"][0]["refused"][0] > curves["documented"] >= curves["series"][0]["x"][-1]


def test_a_report_that_cannot_be_written_is_refused(tmp_path, capsys, monkeypatch):
    words = (*COMMANDS["diff"], "--report", tmp_path / "none" / "report.html", "--json")
    refused = runner.npu_sim(capsys, monkeypatch, *words)
    assert refused.code == 2
    assert json.loads(refused.out)["error"]["status"] == 161002
