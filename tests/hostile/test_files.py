"""Limits for untrusted files, atomic writes, and removal of npu_sim's own files only."""

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import npu_sim
from npu_sim import UsageError, system
from npu_sim.cores import config_directory
from npu_sim.files import reading, writing
from npu_sim.files.tensors import read_tensor
from npu_sim.sweeps.runner import run_sweep, sweep_to
from tests.cases import every
from tests.cli.runner import npu_sim as run_here
from tests.lines import check_line

resource = pytest.importorskip("resource", reason="needs limits and pipes of POSIX")
ROOT = Path(__file__).parents[2]
PROFILE = (config_directory() / "atlas_a2.yaml").read_text(encoding="utf-8")
SWEEP = ("rms_norm", {"rows": "1..50"})
COLUMNS = {"columns": ("row", "status", "block_dim")}

# --- Reading ---

PROFILES = {
    "aliases": ("a: &a [x, x]\nb: [*a, *a]", "take no aliases"),
    "an alias of itself": ("a: &a [*a]", "take no aliases"),
    "no date": ("name: 2001-99-99", "cannot be read"),
    "a tag": ("name: !!int abc", "no tags"),
    "a tag of Python": ("name: !!python/object/apply:os.system [ls]", "no tags"),
    "a tag without a constructor": ("name: !!timestamp abc", "no tags"),
    "many digits": ("name: " + "9" * 5000, "5000 characters"),
    "nesting": ("a: " + "[" * 1500 + "]" * 1500, "nested more than 20 deep"),
    "a whole number too large": (
        PROFILE.replace("cube_clock_mhz: 1850", "cube_clock_mhz: 0x" + "f" * 900),
        "cube_clock_mhz",
    ),
    "bytes beyond every product": (
        PROFILE.replace("l2_bytes: 201326592", "l2_bytes: 0x" + "f" * 30),
        "l2_bytes",
    ),
    "infinite": (PROFILE.replace("cube_clock_mhz: 1850", "cube_clock_mhz: .inf"), "finite"),
    "size": ("a: 1\n" * 300000, "larger than 1048576 bytes"),
    "no text": ("a: \0", "not valid YAML"),
    "nothing": ("", "not a mapping"),
    "a key that is a mapping": ("? {a: b}\n: c", "not valid YAML"),
}


@pytest.mark.parametrize(("text", "message"), PROFILES.values(), ids=list(PROFILES))
def test_invalid_profiles_are_refused_with_the_reason(tmp_path, text, message):
    path = tmp_path / "own.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=message) as refused:
        npu_sim.load_profile(path)
    assert (refused.value.argument, refused.value.message.count(str(path))) == ("product", 1)


def test_an_alias_is_refused_before_expansion(tmp_path):
    """Six levels of nine aliases are half a million entries; twenty levels exceed any memory."""
    levels = [
        f"l{level}: &l{level} [{', '.join([f'*l{level - 1}' if level else 'x'] * 9)}]"
        for level in range(20)
    ]
    path = tmp_path / "laughs.yaml"
    path.write_text("\n".join(levels), encoding="utf-8")
    with pytest.raises(UsageError, match="take no aliases"):
        npu_sim.load_profile(path)


def pipe(path):
    os.mkfifo(path)


def device(path):
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [pipe, device, Path.mkdir], ids=["pipe", "device", "folder"])
def test_special_files_are_refused_without_blocking(tmp_path, make):
    for name, read in (
        ("own.yaml", npu_sim.load_profile),
        ("own.npy", lambda path: read_tensor("x", str(path))),
    ):
        make(tmp_path / name)
        with pytest.raises(UsageError, match="not a plain file"):
            read(tmp_path / name)


def header(shape, dtype="<f4", version=b"\x01\x00"):
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY" + version + len(text).to_bytes(2, "little") + text.encode()


TENSORS = {
    "more elements than memory": header("(1000000000000000000,)"),
    "more elements than numbers": header("(100000000000000000000000,)"),
    "a negative size": header("(-4,)"),
    "objects": header("(1,)", "|O") + b"\x80\x04N.",
    "an end too early": header("(4,)") + b"\0" * 15,
    "an archive": b"PK\x03\x04" + b"\0" * 30,
    "a later version": header("(1,)", version=b"\x09\x00"),
    "code for a shape": header("__import__('os').system('true')"),
    "nothing": b"",
    "text": b"hello",
}


@pytest.mark.parametrize("content", TENSORS.values(), ids=list(TENSORS))
def test_invalid_tensors_are_refused_before_memory_is_allocated(tmp_path, content):
    path = tmp_path / "x.npy"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="cannot be read"):
        read_tensor("x", str(path))


def test_long_lines_of_calls_are_refused_and_the_others_are_checked(tmp_path):
    long, short = b'{"op": "' + b"x" * (3 * reading.LINE_BYTES) + b'"}\n', b'{"op": "rms_norm"}\n'
    path = tmp_path / "calls.jsonl"
    path.write_bytes(short + long + short)
    with path.open("rb") as file:
        lines = list(reading.lines_of(file))
    assert lines[0] == lines[2] == short
    assert len(lines) == 3
    checked = check_line(lines[1])
    assert checked.outcome == "malformed"
    assert "longer than" in checked.message


def test_a_long_name_is_not_compared_with_known_names():
    line = json.dumps({"op": "x" * 900_000, "inputs": {}})
    assert check_line(line).outcome == "malformed"


def test_an_unpaired_surrogate_is_written_to_every_output_of_preflight(
    tmp_path, monkeypatch, capsys
):
    (tmp_path / "calls.jsonl").write_text(
        '{"op": "\\ud800", "inputs": {}}\n' + CALLS, encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "step.md")
    files = ("--out", "checked.jsonl", "--junit", "checked.xml", "--report", "checked.html")
    assert run_here(capsys, monkeypatch, "preflight", "calls.jsonl", *files).code == 1
    checked = [
        json.loads(line)
        for line in (tmp_path / "checked.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert [line["outcome"] for line in checked] == ["malformed", "runs"]
    assert checked[0]["op"] == "\ud800"
    assert len(list(ElementTree.parse(tmp_path / "checked.xml").iter("testcase"))) == 2


# --- Writing ---


def npu_sim_command(*arguments, cwd, room=None):
    """Run the command line in its own process with a limit on the size of files."""

    def limit():
        if room is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

    environment = (
        {**os.environ, "PYTHONPATH": str(ROOT), "NPU_SIM_CACHE_DIR": ""}
        if room
        else {**os.environ, "PYTHONPATH": str(ROOT)}
    )
    command = [sys.executable, "-m", "npu_sim", *map(str, arguments)]
    return subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        preexec_fn=limit,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


CALLS = '{"op": "rms_norm", "inputs": {"x": "4x128:fp32", "gamma": "128:fp32"}}\n'
COMMANDS = {
    "run --out": ("run", "rms_norm", "--x", "4x128:fp32", "--gamma", "128:fp32", "--out"),
    "plan --report": ("plan", "rms_norm", "--x", "4x128:fp32", "--gamma", "128:fp32", "--report"),
    "plan --trace": ("plan", "rms_norm", "--x", "4x128:fp32", "--gamma", "128:fp32", "--trace"),
    "preflight --out": ("preflight", "calls.jsonl", "--out"),
    "preflight --junit": ("preflight", "calls.jsonl", "--junit"),
    "sweep --out": ("sweep", "rms_norm", "--grid", "rows=1..40", "--out"),
}
INVALID_TARGETS = {
    "a folder": ("folder.npz", "is a folder|no sweep|not a format"),
    "a folder that is not there": ("missing/x.npz", "does not exist|not a format"),
    "a long name": ("x" * 300 + ".npz", "too long|not a format"),
    "a pipe": ("pipe.npz", "not a plain file|not a format"),
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=list(COMMANDS))
@pytest.mark.parametrize(("target", "message"), INVALID_TARGETS.values(), ids=list(INVALID_TARGETS))
def test_invalid_targets_are_refused_before_the_work(
    tmp_path, monkeypatch, capsys, command, target, message
):
    (tmp_path / "calls.jsonl").write_text(CALLS, encoding="utf-8")
    (tmp_path / "folder.npz").mkdir()
    os.mkfifo(tmp_path / "pipe.npz")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "npu_sim.framework.checking.check_uncached", lambda *_: pytest.fail("work began")
    )
    outcome = run_here(capsys, monkeypatch, *command, target)
    assert outcome.code == 64
    assert any(word in outcome.err for word in message.split("|")), outcome.err
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "calls.jsonl",
        "folder.npz",
        "pipe.npz",
    ]


@pytest.mark.parametrize("name", every(3, ["run --out", "preflight --out", "plan --report"]))
def test_a_full_disk_is_one_message_and_leaves_no_files(tmp_path, name):
    target = {"run --out": "y.npz"}.get(name, "out")
    (tmp_path / "calls.jsonl").write_text(CALLS * 10, encoding="utf-8")
    outcome = npu_sim_command(*COMMANDS[name], target, cwd=tmp_path, room=1000)
    assert outcome.returncode == 64, outcome.stderr
    assert "cannot be written: File too large" in outcome.stderr
    assert "Traceback" not in outcome.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["calls.jsonl"]


def test_a_killed_writer_leaves_hidden_files_that_the_next_one_removes(tmp_path):
    code = (
        "import sys, os, signal; from pathlib import Path\n"
        "from npu_sim.files.writing import write_atomically\n"
        "def write(file):\n"
        "    file.write(b'half'); file.flush(); os.kill(os.getpid(), signal.SIGKILL)\n"
        "write_atomically(Path(sys.argv[1]), write)"
    )
    subprocess.run(
        [sys.executable, "-c", code, tmp_path / "x"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert all(path.name.startswith(".npu_sim-") for path in tmp_path.iterdir())
    writing.write_text(tmp_path / "x", "whole")
    assert list(tmp_path.iterdir()) == [tmp_path / "x"]


def test_the_next_write_removes_the_temporary_file_of_a_killed_writer(tmp_path):
    """A file is written under a temporary name and then renamed."""
    code = (
        "import sys, os, signal; from pathlib import Path; from npu_sim.files import writing\n"
        "writing.os.replace = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)\n"
        "writing.write_text(Path(sys.argv[1]), 'new')"
    )
    path = tmp_path / "x"
    for text in ("old", "newest"):
        writing.write_text(path, text)
        assert (path.read_text(encoding="utf-8"), list(tmp_path.iterdir())) == (text, [path])
        subprocess.run(
            [sys.executable, "-c", code, path],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            check=False,
        )
        assert path.read_text(encoding="utf-8") == text


def test_concurrent_writers_of_a_file_do_not_interfere(tmp_path):
    path, texts = tmp_path / "x", [character * 100 for character in "abcd"]

    def write(text):
        for _ in range(50):
            writing.write_text(path, text)

    with ThreadPoolExecutor(len(texts)) as pool:
        list(pool.map(write, texts))
    assert path.read_text(encoding="utf-8") in texts
    assert list(tmp_path.iterdir()) == [path]


class Killed(Exception):  # noqa: N818
    """Simulates a kill of the process."""


def write_half(file):
    file.write(b"half")
    raise Killed


def test_a_file_is_replaced_atomically_and_keeps_its_permissions(tmp_path):
    path = tmp_path / "x"
    path.write_text("old", encoding="utf-8")
    path.chmod(0o640)
    with pytest.raises(Killed):
        writing.write_atomically(path, write_half)
    assert path.read_text(encoding="utf-8") == "old"
    writing.write_text(path, "new \ud800")
    assert path.read_bytes() == b"new \\ud800"
    assert path.stat().st_mode & 0o777 == 0o640
    assert [entry.name for entry in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize("before", ["old", None], ids=["a file", "no file"])
def test_a_link_stays_and_its_target_is_written(tmp_path, before):
    (tmp_path / "data").mkdir()
    target, link = tmp_path / "data" / "x.csv", tmp_path / "link.csv"
    link.symlink_to("data/x.csv")
    for write in (
        lambda: writing.write_text(link, "new"),
        lambda: sweep_to(link, *SWEEP, **COLUMNS),
    ):
        target.unlink(missing_ok=True)
        if before is not None:
            target.write_text(before, encoding="utf-8")
        write()
        assert link.is_symlink()
        assert target.read_text(encoding="utf-8") not in ("", before)
        assert names(tmp_path) == ["data", "data/x.csv", "link.csv"]


def test_a_link_into_a_missing_folder_is_refused(tmp_path):
    (tmp_path / "link.npy").symlink_to("missing/x.npy")
    with pytest.raises(UsageError, match="does not exist"):
        writing.require_target(tmp_path / "link.npy")


def test_new_files_have_the_permissions_of_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        writing.write_text(tmp_path / "x", "new")
    finally:
        os.umask(before)
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("before", ["old", None], ids=["a file", "no file"])
def test_the_data_of_a_file_are_on_disk_before_its_name_and_the_umask_stays(
    tmp_path, monkeypatch, before
):
    path, steps = tmp_path / "x", []
    if before is not None:
        path.write_text(before, encoding="utf-8")

    def recorded(name, function):
        def call(*args, **kwargs):
            steps.append(name)
            return function(*args, **kwargs)

        return call

    for name in ("umask", "fsync", "replace"):
        monkeypatch.setattr(os, name, recorded(name, getattr(os, name)))
    writing.write_text(path, "new")
    assert path.read_text(encoding="utf-8") == "new"
    assert steps[0] == "fsync"
    assert "replace" in steps[1:]
    assert "umask" not in steps
    assert names(tmp_path) == ["x"]


@pytest.mark.parametrize("name", ["aux.jsonl", "NUL", "com1.npz"])
def test_names_that_windows_reserves_are_refused_there_alone(tmp_path, monkeypatch, name):
    writing.require_target(tmp_path / name)
    monkeypatch.setattr(system, "WINDOWS", True)
    with pytest.raises(UsageError, match="Windows reserves this name"):
        writing.require_target(tmp_path / name)
    writing.require_target(tmp_path / f"my_{name}")


def test_disk_space_is_checked_before_the_sweep(tmp_path, monkeypatch):
    usage = type(writing.shutil.disk_usage(tmp_path))
    monkeypatch.setattr(
        writing.shutil, "disk_usage", lambda path: usage(1 << 40, (1 << 40) - 100, 100)
    )
    with pytest.raises(UsageError, match="its disk has 100 left"):
        sweep_to(tmp_path / "plans", *SWEEP, **COLUMNS)
    assert list(tmp_path.iterdir()) == []


# --- Removal ---


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
