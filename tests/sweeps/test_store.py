import io
import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import npu_sim
from npu_sim import UsageError
from npu_sim.sweeps.reader import read_sweep
from npu_sim.sweeps.runner import run_sweep, sweep_to

CHUNK = 1000
ENDINGS = ("", ".csv", ".parquet")


@pytest.fixture(scope="module")
def records(small):
    operator, grid, options = small
    return npu_sim.sweep(operator, grid, **options)


def content(path):
    """Return all bytes of an output, by file."""
    if path.is_dir():
        return {file.name: file.read_bytes() for file in sorted(path.iterdir())}
    return {"": path.read_bytes()}


def skip_without_pyarrow(ending):
    if ending == ".parquet":
        pytest.importorskip("pyarrow", reason="the extra 'parquet' is not installed")


class Killed(Exception):  # noqa: N818
    """Simulates a kill of the process."""


def die_at(row):
    def progress(completed, total):
        if completed >= row:
            raise Killed

    return progress


def test_a_folder_of_columns_is_read_by_numpy(small, records, tmp_path):
    operator, grid, options = small
    path = sweep_to(tmp_path / "plans", operator, grid, chunk_rows=CHUNK, **options)
    columns = read_sweep(path)
    assert list(columns) == list(records.dtype.names)
    for name, column in columns.items():
        assert np.array_equal(column, records[name])
        assert column.dtype == records.dtype[name]
    described = json.loads((path / "sweep.json").read_text(encoding="utf-8"))
    assert described["columns"]["grad_dtype"]["words"] == ["float32", "float16", "bfloat16"]
    assert described["rows"] == len(records)


def test_csv_lines_equal_the_records(small, records, tmp_path):
    operator, grid, options = small
    path = sweep_to(tmp_path / "plans.csv", operator, grid, chunk_rows=CHUNK, **options)
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0].split(",") == list(records.dtype.names)
    assert len(lines) == len(records) + 1
    labels = {name: records.words(name) for name in records.dtype.names}
    for row in (0, 1, CHUNK - 1, CHUNK, 9000, len(records) - 1):
        assert lines[row + 1] == ",".join(str(labels[name][row]) for name in labels)


def test_parquet_equals_the_records(small, records, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="the extra 'parquet' is not installed")
    operator, grid, options = small
    path = sweep_to(tmp_path / "plans.parquet", operator, grid, chunk_rows=CHUNK, **options)
    table = parquet.read_table(path)
    assert table.column_names == list(records.dtype.names)
    assert table.column("product").to_pylist() == records.words("product").tolist()
    assert (
        table.column("workspace_bytes").to_numpy().tolist() == records["workspace_bytes"].tolist()
    )
    assert parquet.ParquetFile(path).num_row_groups == -(-len(records) // CHUNK)


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("dies_at", [0, 1, 4 * CHUNK, 13650])
def test_a_resumed_sweep_ends_with_the_same_bytes(small, tmp_path, ending, dies_at):
    skip_without_pyarrow(ending)
    operator, grid, options = small
    undisturbed = sweep_to(tmp_path / f"whole{ending}", operator, grid, chunk_rows=CHUNK, **options)
    target = tmp_path / f"died{ending}"
    with pytest.raises(Killed):
        sweep_to(target, operator, grid, chunk_rows=CHUNK, progress=die_at(dies_at), **options)
    assert not target.exists()
    partial = tmp_path / f"died{ending}.partial"
    for file in partial.iterdir() if partial.is_dir() else [partial]:
        if file.suffix in (".npy", ".csv", ".partial"):
            with file.open("ab") as torn:
                torn.write(b"half a chunk that is not complete")
    sweep_to(target, operator, grid, chunk_rows=CHUNK, resume=True, **options)
    assert content(target) == content(undisturbed)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [undisturbed.name, target.name]
    )


SCRIPT = """
import json, sys
from npu_sim.sweeps.runner import sweep_to
progress = lambda done, total: print(done, flush=True)
sweep_to(sys.argv[1], progress=progress, **json.loads(sys.argv[2]))
"""


@pytest.mark.long
def test_a_process_killed_at_a_random_moment_can_be_resumed(small, tmp_path):
    operator, _, options = small
    grid = {
        "rows": "1..5000",
        "dim": "1,64,512,513,30000",
        "num_weights": "0,1,1000",
        "grad_dtype": "fp32,bf16",
    }
    arguments = {"operator": operator, "grid": grid, "chunk_rows": 300, **options}
    undisturbed, target = tmp_path / "whole", tmp_path / "killed"
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, target, json.dumps(arguments)],
        stdout=subprocess.PIPE,
        text=True,
    )
    for _ in range(5):
        process.stdout.readline()
    time.sleep(np.random.default_rng().uniform(0, 0.2))
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert not target.exists()
    sweep_to(target, **arguments, resume=True)
    sweep_to(undisturbed, **arguments)
    assert content(target) == content(undisturbed)


def test_an_interrupted_sweep_is_not_overwritten_without_the_option(small, tmp_path):
    operator, grid, options = small
    target = tmp_path / "plans.csv"
    with pytest.raises(Killed):
        sweep_to(target, operator, grid, chunk_rows=CHUNK, progress=die_at(CHUNK), **options)
    with pytest.raises(UsageError, match="interrupted sweep lies there"):
        sweep_to(target, operator, grid, chunk_rows=CHUNK, **options)
    with pytest.raises(UsageError, match="another one: its sweep"):
        sweep_to(
            target, operator, {**grid, "rows": "1..5"}, chunk_rows=CHUNK, resume=True, **options
        )


def test_resuming_a_finished_sweep_repeats_it(small, tmp_path):
    operator, grid, options = small
    target = sweep_to(tmp_path / "plans.csv", operator, grid, chunk_rows=CHUNK, **options)
    before = content(target)
    sweep_to(target, operator, grid, chunk_rows=CHUNK, resume=True, **options)
    assert content(target) == before


def test_the_summary_is_resumed(small, tmp_path):
    operator, grid, options = small
    options = {**options, "chunk_rows": CHUNK}
    undisturbed, _ = run_sweep(operator, grid, **options)
    with pytest.raises(Killed):
        run_sweep(operator, grid, out=tmp_path / "plans", progress=die_at(5 * CHUNK), **options)
    resumed, _ = run_sweep(operator, grid, out=tmp_path / "plans", resume=True, **options)
    assert resumed.as_dict() == undisturbed.as_dict()
    assert resumed.rows_now == undisturbed.rows - 5 * CHUNK


@pytest.mark.parametrize(
    ("name", "message"),
    [("missing/plans", "does not exist"), ("plans.xlsx", "not a format"), ("taken", "no sweep")],
)
def test_invalid_outputs_are_named(small, tmp_path, name, message):
    operator, grid, options = small
    (tmp_path / "taken").mkdir()
    with pytest.raises(UsageError, match=message):
        sweep_to(tmp_path / name, operator, grid, **options)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["taken"]


def test_records_are_represented_by_their_size(records):
    assert repr(records).startswith(f"Records({len(records)} calls; columns: product, grad_dtype, ")
    assert repr(records).endswith(", ...)")
    assert repr(records[["dim"]]) == f"Records({len(records)} calls; columns: dim)"


def test_printed_records_have_the_rows_and_words_that_differ():
    plans = npu_sim.sweep("rms_norm", {"row": "1..100", "dtype": ["float16", "bfloat16"]})
    size, names, first, *_, dots, last = str(plans).splitlines()
    assert size == repr(plans)
    assert names.split()[:2] == ["dtype", "row"]
    assert "status" not in names or len(set(plans["status"])) > 1
    assert (first.split()[:2], last.split()[:2]) == (["float16", "1"], ["bfloat16", "100"])
    assert set(dots.split()) == {"..."}
    assert max(map(len, str(plans).splitlines())) <= 100


def test_printed_records_of_few_columns_have_all(records):
    assert str(records[["dim", "status"]][:2]).splitlines()[1].split() == ["dim", "status"]
    assert str(records["dim"][:2]).startswith("[")


def test_a_sweep_is_read_back_with_words(small, records, tmp_path):
    operator, grid, options = small
    table = npu_sim.read_sweep(sweep_to(tmp_path / "plans", operator, grid, **options))
    assert table.rows == len(records)
    assert np.array_equal(table.words("grad_dtype"), records.words("grad_dtype"))
    assert table.to_pandas().equals(records.to_pandas())
    assert repr(table).endswith(f"{operator}, {len(records)} rows, {len(table)} columns)")
    with pytest.raises(ValueError, match="read-only"):
        table["block_dim"][0] = 7
    with pytest.raises(UsageError, match="did you mean block_dim"):
        table["blockdim"]


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


HEADER = npy(np.zeros(3, np.int8))


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"\x93NUMPY",
        None,
        HEADER.replace(b"'descr'", b"\0descr'"),
        HEADER.replace(b"(3,)", b"[3, "),
        npy(np.zeros(3, np.int8)),
        npy(np.zeros((4, 4), np.int8)),
    ],
)
def test_a_damaged_column_of_a_sweep_is_named(small, tmp_path, damage):
    operator, grid, options = small
    path = sweep_to(tmp_path / "plans", operator, grid, **options)
    (path / "block_dim.npy").unlink()
    if damage is not None:
        (path / "block_dim.npy").write_bytes(damage)
    with pytest.raises(UsageError, match="holds no sweep"):
        npu_sim.read_sweep(path)


def test_a_code_without_a_word_is_named(small, tmp_path):
    operator, grid, options = small
    path = sweep_to(tmp_path / "plans", operator, grid, **options)
    codes = np.load(path / "grad_dtype.npy")
    codes[-1] = 3
    np.save(path / "grad_dtype.npy", codes)
    for read in (lambda table: table.words("grad_dtype"), lambda table: table.to_pandas()):
        with pytest.raises(UsageError, match="codes without one of 3 words"):
            read(npu_sim.read_sweep(path))


def test_a_folder_without_a_sweep_is_named(tmp_path):
    with pytest.raises(UsageError, match="holds no sweep"):
        read_sweep(tmp_path)


@pytest.mark.parametrize("resume", [False, True], ids=["again", "resume"])
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_second_sweep_into_an_output_is_refused_while_the_first_writes(
    small, tmp_path, ending, resume
):
    skip_without_pyarrow(ending)
    operator, grid, options = small
    target = tmp_path / f"plans{ending}"
    refused = []

    def second(completed, total):
        if not refused:
            with pytest.raises(UsageError, match="another process writes it") as error:
                sweep_to(target, operator, grid, chunk_rows=CHUNK, resume=resume, **options)
            refused.append(error.value)

    sweep_to(target, operator, grid, chunk_rows=CHUNK, progress=second, **options)
    assert refused
    assert [path.name for path in tmp_path.iterdir()] == [target.name]
    whole = content(target)
    sweep_to(target, operator, grid, chunk_rows=CHUNK, **options)
    assert content(target) == whole


def test_a_file_with_the_name_of_the_lock_is_kept(small, tmp_path):
    operator, grid, options = small
    lock = tmp_path / "plans.csv.lock"
    lock.write_text("mine")
    with pytest.raises(UsageError, match="is not the lock of a sweep"):
        sweep_to(tmp_path / "plans.csv", operator, grid, **options)
    assert lock.read_text() == "mine"
