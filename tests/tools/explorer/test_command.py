"""``npu-sim explore`` as a process."""

import re
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

from npu_sim.cores import config_directory
from tests.cli import runner
from tests.processes import interruptible


@pytest.fixture
def started(tmp_path):
    profile = tmp_path / "my_chip.yaml"
    profile.write_text(
        (config_directory() / "atlas_a2.yaml")
        .read_text(encoding="utf-8")
        .replace("name: atlas_a2", "name: my_chip"),
        encoding="utf-8",
    )
    command = [
        sys.executable,
        "-m",
        "npu_sim",
        "explore",
        str(profile),
        "--port",
        "0",
        "--no-browser",
    ]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=interruptible
    )
    yield process, profile
    process.kill()
    process.communicate()


def test_explore_prints_its_address_serves_own_profiles_and_stops(started):
    process, profile = started
    address = re.fullmatch(
        r"npu-sim explorer: (http://127\.0\.0\.1:\d+/)(\?token=\S+)\n", process.stdout.readline()
    )
    with urllib.request.urlopen(f"{address[1]}api/catalog{address[2]}", timeout=20) as reply:
        content = reply.read().decode("utf-8")
    assert str(profile) in content
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
    assert process.stderr.read() == "interrupted\n"


def test_other_machines_reach_the_explorer_only_with_an_option(capsys, monkeypatch):
    refused = runner.npu_sim(capsys, monkeypatch, "explore", "--no-browser", "--host", "0.0.0.0")
    assert refused.code == 64
    assert "--i-know" in refused.err


def test_a_port_in_use_is_refused_with_a_hint(capsys, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        refused = runner.npu_sim(
            capsys, monkeypatch, "explore", "--no-browser", "--port", listener.getsockname()[1]
        )
    assert refused.code == 64
    assert "--port" in refused.err


def test_a_busy_port_is_a_usage_error(cli):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        outcome = cli("explore", "--no-browser", "--port", listener.getsockname()[1])
    assert outcome.code == 64
    assert "choose another with --port" in outcome.err
    assert "ACLNN" not in outcome.err
