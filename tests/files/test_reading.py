"""Limits for untrusted files."""

import json
import os
from pathlib import Path

import pytest

import npu_sim
from npu_sim import UsageError
from npu_sim.cores import config_directory
from npu_sim.files import reading
from npu_sim.files.tensors import read_tensor
from npu_sim.language import translated, using_language
from tests.lines import check_line

resource = pytest.importorskip("resource", reason="needs limits and pipes of POSIX")
ROOT = Path(__file__).parents[2]
PROFILE = (config_directory() / "atlas_a2.yaml").read_text(encoding="utf-8")

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


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "不是 .npy 文件"),
        (b"\x93NUMPY", "不是 .npy 文件"),
        (header("(1,)")[:60], "文件头已损坏"),
        (header("(1, 2"), "文件头已损坏"),
    ],
)
def test_what_is_wrong_with_a_tensor_file_is_said_in_the_language_in_use(
    tmp_path, content, sentence
):
    path = tmp_path / "x.npy"
    path.write_bytes(content)
    with pytest.raises(UsageError) as refused:
        read_tensor("x", str(path))
    with using_language("zh"):
        assert str(refused.value).startswith(f"x = '{path}'：无法读取：{sentence}\n")


@pytest.mark.filterwarnings("error")
def test_a_tensor_file_of_python_2_is_read_without_a_warning(tmp_path):
    path = tmp_path / "x.npy"
    path.write_bytes(header("(1L,)") + b"\0" * 4)
    assert read_tensor("x", str(path)).shape == (1,)


@pytest.mark.parametrize(
    ("text", "english", "chinese"),
    [
        ('{"a" 1}', "not JSON: column 6", "不是 JSON：第 6 列"),
        ('{"a": 1}\n}', "not JSON: line 2, column 1", "不是 JSON：第 2 行第 1 列"),
        (b'{"a": "\xff"}', "not JSON: not text in UTF-8", "不是 JSON：不是 UTF-8 文本"),
        ("[" * 100_000, "not JSON: nested too deeply", "不是 JSON：嵌套过深"),
        ("9" * 5000, "not JSON: a number of too many digits", "不是 JSON：有的数位数过多"),
    ],
)
def test_the_place_where_a_text_is_not_json_is_said_in_both_languages(text, english, chinese):
    with pytest.raises(ValueError, match=f"^{english}$") as refused:
        reading.parse_json(text)
    (sentence,) = refused.value.args
    with using_language("zh"):
        assert translated(sentence) == chinese


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
