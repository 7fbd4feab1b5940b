"""Names in a profile control neither the terminal nor the log of a workflow."""

import pytest

from tests.cli.test_names_from_files import CONTROL, FILE_NAME, NAME, SHOWN, commands

HEADER = "Step Id,Name,Type,Start Time(us),Duration(us),Wait Time(us),Block Dim,Input Shapes"


def test_profile_escapes_names(cli, tmp_path):
    path = tmp_path / "kernel_details.csv"
    name = NAME.replace("\r", "")
    rows = [f'1,"{name}","{name}",{start},5.0,0,20,"{name}"' for start in (10, 20)]
    path.write_text("\n".join((HEADER, *rows, "")), encoding="utf-8")
    done = cli("profile", path)
    assert done.code == 0, done.err
    assert "stop-commands" in done.out
    assert CONTROL.findall(done.out + done.err) == []
    assert commands(done.out) == []


def test_the_headline_of_a_profile_shows_a_newline_in_the_file_name_escaped(cli, tmp_path):
    path = tmp_path / f"{FILE_NAME}.csv"
    row = "1,MatMul,MatMulV3,10,5.0,0,20,a"
    path.write_text("\n".join((HEADER, row, "")), encoding="utf-8")
    done = cli("profile", path)
    assert done.code == 0, done.err
    assert f"{SHOWN}.csv" in done.out.splitlines()[0]
    assert commands(done.out) == []


@pytest.mark.parametrize("language", ["en", "zh"])
def test_errors_show_a_newline_in_a_file_name_escaped(cli, monkeypatch, tmp_path, language):
    monkeypatch.setenv("NPU_SIM_LANG", language)
    monkeypatch.chdir(tmp_path)
    done = cli("profile", f"{FILE_NAME}.csv")
    assert done.code != 0
    assert SHOWN in done.err
    assert commands(done.out + "\n" + done.err) == []
