"""Files are written whole or not at all, to targets that are checked before the work."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from zlib import crc32

import pytest

from npu_sim import UsageError, system
from npu_sim.files import writing
from npu_sim.sweeps.runner import sweep_to
from tests.cases import every
from tests.cli.runner import npu_sim as run_here

resource = pytest.importorskip("resource", reason="needs limits and pipes of POSIX")
ROOT = Path(__file__).parents[2]
SWEEP = ("rms_norm", {"rows": "1..50"})
COLUMNS = {"columns": ("row", "status", "block_dim")}


def names(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def npu_sim_command(*arguments, cwd, room=None):
    """Run the command line in its own process with a limit on the size of files."""

    def limit():
        if room is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    if room:  # Python writes byte code as far as there is room, and would read it later
        environment |= {"NPU_SIM_CACHE_DIR": "", "PYTHONDONTWRITEBYTECODE": "1"}
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


@pytest.mark.parametrize("target", ["victim", "missing", "folder"])
def test_a_link_in_a_folder_of_others_is_replaced_and_not_followed(tmp_path, target):
    folder, victim = tmp_path / "received", tmp_path / "victim"
    folder.mkdir()
    (tmp_path / "folder").mkdir()
    victim.write_text("mine", encoding="utf-8")
    (folder / "evidence.jsonl").symlink_to(tmp_path / target)
    writing.write_into(folder, "evidence.jsonl", "new", "check")
    assert victim.read_text(encoding="utf-8") == "mine"
    assert not (folder / "evidence.jsonl").is_symlink()
    assert (folder / "evidence.jsonl").read_text(encoding="utf-8") == "new"
    assert names(tmp_path) == ["folder", "received", "received/evidence.jsonl", "victim"]


def test_what_is_written_beside_a_file_follows_no_link(tmp_path):
    """The hidden names of a file that is not complete, and of its lock, are known in advance."""
    victim, path = tmp_path / "victim", tmp_path / "evidence.jsonl"
    victim.write_text("mine", encoding="utf-8")
    hidden = f"{system.HIDDEN}{crc32(path.name.encode()):08x}"
    for name in (hidden, f"{hidden}.lock"):
        (tmp_path / name).symlink_to(victim)
        with suppress(UsageError):  # a lock that is a link
            writing.write_into(tmp_path, path.name, "new", "check")
        assert victim.read_text(encoding="utf-8") == "mine"
        (tmp_path / name).unlink(missing_ok=True)


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
