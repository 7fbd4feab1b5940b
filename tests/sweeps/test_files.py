"""A sweep replaces and removes only what a sweep wrote, and a damaged one is not resumed."""

import os
from pathlib import Path

import numpy as np
import pytest

from npu_sim import UsageError
from npu_sim.files import writing
from npu_sim.sweeps.runner import run_sweep, sweep_to
from tests.cases import every

SWEEP = ("rms_norm", {"rows": "1..50"})
COLUMNS = {"columns": ("row", "status", "block_dim")}


def test_disk_space_is_checked_before_the_sweep(tmp_path, monkeypatch):
    usage = type(writing.shutil.disk_usage(tmp_path))
    monkeypatch.setattr(
        writing.shutil, "disk_usage", lambda path: usage(1 << 40, (1 << 40) - 100, 100)
    )
    with pytest.raises(UsageError, match="its disk has 100 left"):
        sweep_to(tmp_path / "plans", *SWEEP, **COLUMNS)
    assert list(tmp_path.iterdir()) == []


def names(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_sweep_replaces_an_earlier_sweep(tmp_path):
    for rows in ("1..50", "1..3"):
        folder = sweep_to(tmp_path / "plans", "rms_norm", {"rows": rows}, **COLUMNS)
    assert len(np.load(folder / "row.npy")) == 3
    assert names(tmp_path) == [
        "plans",
        "plans/block_dim.npy",
        "plans/row.npy",
        "plans/status.npy",
        "plans/sweep.json",
    ]


def test_what_a_killed_writer_left_in_a_folder_of_columns_does_not_block_the_next_sweep(tmp_path):
    sweep_to(tmp_path / "plans", *SWEEP, **COLUMNS)
    before = names(tmp_path)
    (tmp_path / "plans" / ".npu_sim-00000000").write_text("half", encoding="utf-8")
    sweep_to(tmp_path / "plans", *SWEEP, **COLUMNS)
    assert names(tmp_path) == before


OTHER_FILES = {
    "a file beside a sweep": lambda at: (at / "plans" / "notes.txt").write_text(
        "mine", encoding="utf-8"
    ),
    "a folder beside a sweep": lambda at: (at / "plans" / "mine").mkdir(),
    "a link in place of a column": lambda at: _link(at / "plans" / "row.npy"),
    "a description of nothing": lambda at: (at / "plans" / "sweep.json").write_text(
        "{}", encoding="utf-8"
    ),
    "a description that names other files": lambda at: (at / "plans" / "sweep.json").write_text(
        '{"columns": {"../x": {}}}', encoding="utf-8"
    ),
    "something at the partial name": lambda at: (at / "plans.partial").mkdir(),
    "a file at the partial name": lambda at: (at / "plans.partial").write_text(
        "mine", encoding="utf-8"
    ),
    "a progress of something else": lambda at: (at / "plans.progress.json").write_text(
        "[1]", encoding="utf-8"
    ),
    "a damaged progress": lambda at: (at / "plans.progress.json").write_text(
        '{"chunks": 3, "st', encoding="utf-8"
    ),
}


def _link(path):
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("disturb", OTHER_FILES.values(), ids=list(OTHER_FILES))
def test_files_not_written_by_a_sweep_are_not_overwritten(tmp_path, disturb, resume):
    sweep_to(tmp_path / "plans", *SWEEP, **COLUMNS)
    disturb(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(UsageError):
        sweep_to(tmp_path / "plans", *SWEEP, resume=resume, **COLUMNS)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_regular_file_is_not_a_column_folder(tmp_path):
    (tmp_path / "plans").write_text("mine", encoding="utf-8")
    with pytest.raises(UsageError, match="is a file"):
        sweep_to(tmp_path / "plans", *SWEEP, **COLUMNS)
    assert (tmp_path / "plans").read_text(encoding="utf-8") == "mine"


class Killed(BaseException):
    pass


def interrupted(target, at=20):
    def progress(completed, total):
        if completed >= at:
            raise Killed

    with pytest.raises(Killed):
        sweep_to(target, *SWEEP, chunk_rows=10, progress=progress, **COLUMNS)


@pytest.mark.parametrize("ending", ["", ".csv", ".parquet"])
def test_a_damaged_partial_output_is_not_resumed(tmp_path, ending):
    if ending == ".parquet":
        pytest.importorskip("pyarrow", reason="the extra 'parquet' is not installed")
    target = tmp_path / f"plans{ending}"
    interrupted(target)
    partial = target.with_name(target.name + ".partial")
    torn = (
        next(path for path in sorted(partial.iterdir()) if path.suffix != ".json")
        if partial.is_dir()
        else partial
    )
    os.truncate(torn, 3) if ending != ".parquet" else torn.unlink()
    with pytest.raises(UsageError, match="is not what was written"):
        sweep_to(target, *SWEEP, chunk_rows=10, resume=True, **COLUMNS)
    assert partial.exists()


def test_a_missing_partial_output_is_not_resumed(tmp_path):
    target = tmp_path / "plans.csv"
    interrupted(target)
    target.with_name("plans.csv.partial").unlink()
    with pytest.raises(UsageError, match="is gone"):
        sweep_to(target, *SWEEP, chunk_rows=10, resume=True, **COLUMNS)


@pytest.mark.parametrize("ending", every(3, ["", ".csv", ".parquet"]))
def test_a_sweep_killed_at_any_final_step_can_be_resumed(tmp_path, monkeypatch, ending):
    """The process may be killed after every system call that removes or renames."""
    if ending == ".parquet":
        pytest.importorskip("pyarrow", reason="the extra 'parquet' is not installed")
    target = tmp_path / f"plans{ending}"
    sweep_to(target, *SWEEP, chunk_rows=10, **COLUMNS)
    expected = {
        name: (tmp_path / name).read_bytes()
        for name in names(tmp_path)
        if (tmp_path / name).is_file()
    }
    step = 0
    while True:
        step += 1
        countdown = [step]
        with monkeypatch.context() as patched:
            for name in ("unlink", "rmdir", "rename", "replace"):
                patched.setattr(Path, name, _dying(getattr(Path, name), countdown))
            try:
                sweep_to(target, *SWEEP, chunk_rows=10, **COLUMNS)
                break
            except Killed:
                pass
        sweep_to(target, *SWEEP, chunk_rows=10, resume=True, **COLUMNS)
        assert {
            name: (tmp_path / name).read_bytes()
            for name in names(tmp_path)
            if (tmp_path / name).is_file() and not Path(name).name.startswith(".npu_sim-")
        } == expected
    assert step > 1


def _dying(method, countdown):
    def die(self, *arguments, **keywords):
        countdown[0] -= 1
        if countdown[0] == 0:
            raise Killed
        return method(self, *arguments, **keywords)

    return die


def test_a_negative_number_of_checks_is_refused():
    with pytest.raises(UsageError, match="check = -1"):
        run_sweep(*SWEEP, check=-1)
