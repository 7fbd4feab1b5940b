import json
import shlex
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'npu_sim[torch]'")

SCRIPT = """
import sys
import torch
import torch_npu
import beside

words = torch.nn.Embedding(int(sys.argv[1]), 8)
for _ in range(3):
    words(torch.zeros(2, 4, dtype=torch.int64)).mul(2).sum().backward()
print("trained", sys.argv[2:], __name__)
sys.exit(beside.CODE)
"""


@pytest.fixture
def script(tmp_path):
    """Return a function that writes a training script that ends with a code."""

    def write(code):
        (tmp_path / "beside.py").write_text(f"CODE = {code}\n", encoding="utf-8")
        path = tmp_path / "train.py"
        path.write_text(SCRIPT, encoding="utf-8")
        return path

    yield write
    import sys

    sys.modules.pop("beside", None)


def test_an_unmodified_script_is_recorded_with_its_arguments(cli, script, tmp_path):
    outcome = cli("record", "--out", tmp_path / "calls.jsonl", script(0), "30", "--json", "--out=x")
    assert outcome.code == 0, outcome.err
    assert "trained ['--json', '--out=x'] __main__" in outcome.out
    assert "embedding_dense_backward" in outcome.out
    assert "--json --out=x belong to the script" in outcome.err
    _, line = [
        json.loads(line)
        for line in (tmp_path / "calls.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert (line["op"], line["count"]) == ("embedding_dense_backward", 3)
    assert line["inputs"] == {"grad": "2x4x8:fp32", "indices": "2x4:int64", "num_weights": 30}


def test_json_is_not_mixed_with_what_the_script_prints(cli, script, tmp_path):
    outcome = cli("record", "--json", "--out", tmp_path / "calls.jsonl", script(0), "30")
    assert outcome.data["schema"] == "npu_sim.calls/1"
    assert [call["count"] for call in outcome.data["calls"]] == [3]
    assert "trained" in outcome.err


def test_a_failing_script_passes_its_exit_code_and_writes_no_file(cli, script, tmp_path):
    outcome = cli("record", "--out", tmp_path / "calls.jsonl", script(7), "30")
    assert outcome.code == 7
    assert not (tmp_path / "calls.jsonl").exists()


def test_a_missing_script_is_named(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outcome = cli("record", "none.py")
    assert outcome.code == 64
    assert "none.py" in outcome.err


def test_an_earlier_recording_is_replaced_on_request_only(cli, script, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    calls = tmp_path / "calls.jsonl"
    calls.write_text("kept", encoding="utf-8")
    outcome = cli("record", script(0), "30")
    assert outcome.code == 64
    assert "calls.jsonl exists already" in outcome.err
    assert "--overwrite" in outcome.err
    behind = cli("record", script(0), "30", "--overwrite")
    assert "--overwrite belong to the script" in behind.err
    assert calls.read_text(encoding="utf-8") == "kept"
    assert cli("record", "--overwrite", script(0), "30").code == 0
    assert "embedding_dense_backward" in calls.read_text(encoding="utf-8")


def test_an_interruption_says_how_many_calls_are_lost(cli, tmp_path, monkeypatch):
    from npu_sim.cli.commands import record
    from npu_sim.cli.interruption import Interruption

    monkeypatch.setattr(record, "INTERRUPTION", Interruption())
    path, out = tmp_path / "train.py", tmp_path / "calls.jsonl"
    text = SCRIPT.replace("import beside\n", "").replace(
        "sys.exit(beside.CODE)", "raise KeyboardInterrupt"
    )
    path.write_text(text, encoding="utf-8")
    outcome = cli("record", "--out", out, path, "30")
    assert outcome.code == 130
    assert f"interrupted: 3 calls recorded so far, {out} is not written" in outcome.err
    assert not out.exists()


LAUNCHER = """
import multiprocessing, os, sys, torch

if __name__ == "__main__":
    words = torch.nn.Embedding(30, 8)
    words(torch.zeros(2, 4, dtype=torch.int64)).mul(2).sum().backward()
    child = multiprocessing.get_context("spawn").Process(target=print, args=("child",))
    child.start()
    child.join()
    os._exit(int(sys.argv[1]))
"""


@pytest.mark.long
@pytest.mark.parametrize("closed", [False, True], ids=["printed", "closed output"])
def test_a_script_that_leaves_by_os_exit_is_recorded(tmp_path, closed):
    (tmp_path / "launch.py").write_text(LAUNCHER, encoding="utf-8")
    command = [sys.executable, "-m", "npu_sim", "record", "launch.py"]
    redirection = " >&-" if closed else ""
    for code in ("0", "3"):
        ended = subprocess.run(
            shlex.join([*command, code]) + redirection,
            shell=True,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == int(code)
        assert "Traceback" not in ended.stderr
        assert (tmp_path / "calls.jsonl").exists() == (code == "0")
        if not closed and code == "0":
            assert "1x  embedding_dense_backward" in ended.stdout
            assert "started processes are not recorded: SpawnProcess-1" in ended.stdout
        (tmp_path / "calls.jsonl").unlink(missing_ok=True)
