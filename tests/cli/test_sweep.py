import json
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import npu_sim
from npu_sim.cli.interruption import Interruption
from npu_sim.registry import OPERATOR_NAMES
from npu_sim.sweeps.reader import read_sweep
from tests.sweeps.conftest import FEW
from tests.sweeps.conftest import GRID as NAMED_GRID

OPERATOR = "embedding_dense_backward"
GRID = (
    "--grid",
    "rows=0..5000:+11",
    "--grid",
    "dim=1,64,512,513,30000",
    "--grid",
    "num_weights=0,1,1000",
    "--grid",
    "grad_dtype=fp32,bf16",
)
COLUMNS = (
    "--columns",
    "product,rows,dim,num_weights,grad_dtype,status,block_dim,tiling_key,workspace_bytes",
)


@pytest.mark.long
def test_a_sweep_prints_counts_by_outcome(cli):
    outcome = cli("sweep", OPERATOR, *GRID, *COLUMNS, "--check", 50)
    assert outcome.code == 0
    text = " ".join(outcome.out.split())
    assert "plans 13,650 calls: 13,650 run" in text
    assert "checked 50 rows one by one all equal" in text


def test_json_and_files_agree_with_the_records(cli, tmp_path):
    data = cli("sweep", OPERATOR, *GRID, *COLUMNS, "--out", tmp_path / "plans", "--json").data
    records = npu_sim.sweep(OPERATOR, NAMED_GRID, columns=FEW)
    columns = read_sweep(tmp_path / "plans")
    assert all(np.array_equal(columns[name], records[name]) for name in records.dtype.names)
    assert data["rows"] == len(records)
    peak = data["peak_workspace"]
    assert (
        peak["bytes"] == records["workspace_bytes"].max() == records["workspace_bytes"][peak["row"]]
    )
    assert peak["call"]["rows"] == records["rows"][peak["row"]]
    keys, counts = np.unique(records["tiling_key"], return_counts=True)
    assert data["counts"]["tiling_key"] == {
        str(key): count for key, count in zip(keys, counts, strict=True)
    }
    assert data["different"] == []


def test_a_file_is_no_folder_of_a_sweep(tmp_path):
    file = tmp_path / "sweep.csv"
    file.write_text("col\n1\n")
    with pytest.raises(npu_sim.UsageError, match=r"is a file.*\n.*pandas\.read_csv"):
        npu_sim.read_sweep(file)


def test_a_sweep_of_words_has_a_matrix_of_what_runs(cli, tmp_path):
    """A row for every combination of words, a column for every device."""
    page = tmp_path / "page.html"
    words = ("--grid", "dtype=float32,bfloat16", "--grid", "gamma_dtype=float32,bfloat16")
    devices = ("--grid", "product=atlas_a2,atlas_a3")
    assert cli("sweep", "rms_norm_grad", *words, *devices, "--report", page).code == 0
    section = page.read_text(encoding="utf-8").partition("<h2>What runs</h2>")[2]
    table = re.sub(r"<[^>]+>", "|", section.partition("</section>")[0])
    cells = [cell for cell in table.split("|") if cell.strip()]
    runs, refused = ["split N, key 1"] * 2, ["refused 161002"] * 2
    assert cells[:2] == ["gamma_dtype", "dtype"]
    assert cells[2:4] == ["atlas_a2, Ascend910B1, 9.1", "atlas_a3, Ascend910_9391, 9.1"]
    assert cells[4:8] == ["float32", "float32", *runs]
    assert cells[8:12] == ["float32", "bfloat16", *runs]
    assert cells[12:16] == ["bfloat16", "float32", *refused]
    assert cells[16:20] == ["bfloat16", "bfloat16", *runs]


NO_SWEEP = "or [].append(1)"
"""Python that Numba does not compile, behind an integer."""


def test_an_operator_without_a_timeline_has_a_page_of_its_sweep(cli, tmp_path, monkeypatch):
    """The template of new-operator has none; a planner that Numba refuses is named by its line."""
    monkeypatch.chdir(tmp_path)
    assert cli("new-operator", "twice").code == 0
    own = Path("twice/twice.py")
    sizes = ("--grid", "row=1..50", "--grid", "col=1..50")
    sweep = ("--operators", own, "sweep", "twice", *sizes, "--report", "page.html", "--json")
    assert list(cli(*sweep).data["map"]["cells"]) == ["cores"]
    whole = "ceil_div(row.row, device.vector_cores)"
    text = own.read_text(encoding="utf-8").replace("MyOp", "Other").replace("twice", "other")
    Path("other.py").write_text(text.replace(whole, f"{whole} {NO_SWEEP}"), encoding="utf-8")
    refused = cli("--operators", "other.py", "sweep", "other", *sizes)
    assert refused.code == 64
    assert re.search(r"compiled for sweeps: \S*other.py, line \d+: ", refused.err)


@pytest.mark.parametrize("operator", OPERATOR_NAMES)
def test_the_help_lists_what_can_vary_and_an_example_that_works(
    cli, operator, monkeypatch, tmp_path
):
    monkeypatch.setenv("COLUMNS", "1000")
    from npu_sim.cli.commands.sweep import epilog
    from npu_sim.operators.loading import load_operator
    from npu_sim.sweeps.runner import space_and_columns

    text = cli("sweep", operator, "--help").out
    assert epilog(operator) in text
    assert all(axis.name in text for axis in load_operator(operator).all_axes)
    arguments = epilog(operator).split("Example: ")[1].split()
    assert arguments[:3] == ["npu-sim", "sweep", operator]
    grid = dict(word.split("=") for flag, word in pairwise(arguments) if flag == "--grid")
    space, _ = space_and_columns(operator, grid, None, 0, None)
    sizes = len(load_operator(operator).sizes)
    products = 3 if load_operator(operator).not_modelled_since else 4
    assert space.rows == 100000 * (3 if sizes > 1 else 1) * products


def test_an_interrupted_sweep_keeps_complete_chunks_and_can_be_resumed(cli, tmp_path, monkeypatch):
    from npu_sim.sweeps import writers

    target = tmp_path / "plans.csv"
    append = writers.Store.append

    def interrupted(self, chunk, chunks_done, summary):
        if chunks_done == 3:
            raise KeyboardInterrupt
        append(self, chunk, chunks_done, summary)

    monkeypatch.setattr(
        "npu_sim.sweeps.runner.run_sweep.__kwdefaults__", {**_defaults(), "chunk_rows": 1000}
    )
    monkeypatch.setattr(writers.Store, "append", interrupted)
    monkeypatch.setattr("npu_sim.cli.commands.sweep.INTERRUPTION", Interruption())
    outcome = cli("sweep", OPERATOR, *GRID, *COLUMNS, "--out", target)
    assert outcome.code == 130
    assert "2000 of 13650 rows" in outcome.err
    assert "--resume" in outcome.err
    monkeypatch.setattr(writers.Store, "append", append)
    assert cli("sweep", OPERATOR, *GRID, *COLUMNS, "--out", target).code == 64
    assert cli("sweep", OPERATOR, *GRID, *COLUMNS, "--out", target, "--resume").code == 0
    assert len(target.read_text(encoding="utf-8").splitlines()) == 13651


def _defaults():
    from npu_sim.sweeps.runner import run_sweep

    return dict(run_sweep.__kwdefaults__)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("--grid", "rows"), "name=value"),
        (("--grid", "widht=3"), "widht"),
        (("--grid", "rows=9..1"), "9..1"),
        (("--columns", "none"), "none"),
        (("--resume",), "resume"),
        (("--engine", "spark"), "spark"),
        (("--out", "plans.xlsx"), ".xlsx"),
    ],
)
def test_invalid_arguments_exit_64_and_are_named(cli, arguments, name):
    outcome = cli("sweep", OPERATOR, *arguments)
    assert outcome.code == 64
    assert name in outcome.err


def test_a_difference_from_the_single_call_exits_1(cli, monkeypatch):
    from npu_sim.sweeps import runner
    from npu_sim.sweeps.runner import Mismatch

    monkeypatch.setattr(
        runner,
        "compare_row",
        lambda space, columns, row, record: [Mismatch(row, "block_dim", 1, 2)],
    )
    outcome = cli("sweep", OPERATOR, *GRID, *COLUMNS, "--check", 2)
    assert outcome.code == 1
    assert "swept 1, planned 2" in " ".join(outcome.out.split())


def test_planning_and_limits_do_not_load_numba():
    script = """
import json, sys
import npu_sim
from npu_sim.cli.interruption import Interruption
npu_sim.limits("embedding_dense_backward", "dim", product="atlas_train")
npu_sim.explain("embedding_dense_backward", grad="64x8:fp32", indices="64:int32", num_weights=5)
npu_sim.diff("embedding_dense_backward", grad="64x8:fp32", indices="64:int32", num_weights=5)
from npu_sim.questions.preflight import check_file, chosen_columns
line = '{"op": "rms_norm", "inputs": {"x": "64x8:fp32", "gamma": "8:fp32"}}'
check_file([line], chosen_columns())
import npu_sim.cli.app
print(json.dumps([name for name in ("numba", "pyarrow", "distributed") if name in sys.modules]))
"""
    process = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    assert json.loads(process.stdout) == []


@pytest.mark.parametrize("name", ["plans", "plans.csv"])
def test_sweep_output_is_replaced_only_with_overwrite(cli, tmp_path, name):
    arguments, target = (
        ("sweep", "rms_norm", "--grid", "row=1..9", "--out", tmp_path / name),
        tmp_path / name,
    )
    assert cli(*arguments).code == 0
    before = [path.stat().st_mtime_ns for path in (target, *sorted(target.glob("*")))]
    refused = cli(*arguments)
    assert refused.code == 64
    assert "exists already" in refused.err
    assert "--overwrite" in refused.err
    assert [path.stat().st_mtime_ns for path in (target, *sorted(target.glob("*")))] == before
    assert cli(*arguments, "--overwrite").code == 0
