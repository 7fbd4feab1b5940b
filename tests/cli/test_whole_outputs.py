"""Outputs as a whole: Chinese without English words, and no long number without separators."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from npu_sim.operators.loading import load_operator
from npu_sim.registry import OPERATORS
from npu_sim.studies.caveats import CAVEATS, statements
from tests.cases import every

NORM = "rms_norm_grad --dy 4096x7168:bf16 --gamma 7168:bf16"
LOSS = "cross_entropy_loss_grad --log-prob 4096x32000:bf16 --target 4096:int64"
SMALL = NORM.replace("4096", "64").replace("7168", "512")
COMMANDS = [
    f"plan {NORM}",
    f"plan {NORM} --deterministic",
    f"plan {LOSS}",
    "plan rms_norm_grad --dy 4096x7168:fp64 --gamma 7168:fp64",
    "plan rms_norm_grad --dy 4096x7168:bf16 --gamma 7000:bf16",
    "plan cross_entropy_loss_grad --log-prob 262144x32000:fp32 --target 262144:int64",
    f"plan {NORM} --product 910C",
    f"explain {NORM}",
    f"explain {LOSS}",
    f"limits {LOSS} --vary C",
    f"diff {NORM} --products A2,A3,inference",
    f"timeline {NORM}",
    f"timeline {NORM} --products A2,A3",
    "preflight calls.jsonl --timeline",
    "preflight calls.jsonl --products A2,A3",
    "preflight no_calls.jsonl",
    f"plan {NORM} --deterministic --workspace",
    "products",
    "caveats",
    "caveats sort_trick",
    f"study determinism {SMALL}",
    f"study precision {SMALL}",
    f"study invariance {SMALL}",
]
CALLS = [
    ("rms_norm_grad", {"dy": "4096x7168:bf16", "gamma": "7168:bf16"}),
    ("rms_norm_grad", {"dy": "4096x7168:fp64", "gamma": "7168:fp64"}),
    ("rms_norm", {"x": "4096x300:bf16", "gamma": "300:bf16"}),
    ("rms_norm", {"x": "4096x99999:bf16", "gamma": "300:bf16"}),
    ("cross_entropy_loss_grad", {"log_prob": "262144x32000:bf16", "target": "262144:int64"}),
    ("cross_entropy_loss_grad", {"log_prob": "4096x32000:bf16", "target": "4096:int64"}),
    ("moe_token_unpermute", {"permuted_tokens": "64x7168:bf16", "sorted_indices": "64:int32"}),
    ("embedding_dense_backward", {"grad_output": "8192x512:fp32", "num_weights": -3}),
    ("conv_tbc_backward", {"self": "4x4:fp32"}),
    ("nothing", {}),
]
LONG_NUMBER = re.compile(r"(?<![\w.,^-])\d{8,}(?![\w.])")


@pytest.fixture
def output(cli, tmp_path, monkeypatch):
    """Return what a command writes; its files are in the folder of the test."""
    monkeypatch.chdir(tmp_path)
    lines = [
        json.dumps({"op": op, "inputs": inputs, "deterministic": deterministic, "count": count})
        for op, inputs in CALLS
        for deterministic in (False, True)
        for count in (1, 1000)
    ]
    (tmp_path / "calls.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "no_calls.jsonl").write_text('{"operator": "rms_norm"}', encoding="utf-8")

    def text(command):
        outcome = cli(*command.split())
        return outcome.out + outcome.err

    return text


@pytest.mark.parametrize("command", every(3, COMMANDS))
def test_no_number_of_more_than_seven_digits_is_without_separators(output, command):
    assert LONG_NUMBER.findall(output(command)) == []


# Terms that Chinese documents of the vendor leave in English, values and keys that people type,
# names of buffers, a size in a documented shape, and the words of product titles, which are
# followed by the Chinese title.
TERMS = """
    all atol bank columns cube documented false golden hardware inf kernel key mask mean nan off
    plog profile result rtol sum tensor tiling true ulp vector workspace
    inference series training
    cores count expect group inputs level name note nothing places product release route scalar
    self soc tiles prefill decode
"""


def _names():
    """Names of arguments, results, sizes and caveats, in parts."""
    for entry in OPERATORS:
        declared = load_operator(entry.name)
        yield from (*declared.by_name, *declared.result_names)
        yield from (axis.name for axis in declared.all_axes)
    yield from (caveat.name for caveat in CAVEATS)
    yield from (statement.code for statement in statements())


TYPED = {part for name in (*_names(), TERMS) for part in re.findall(r"[a-z]{3,}", name)}


def english_words(text, command):
    text = re.sub(r"npu-sim [^\n\u4e00-\u9fff]*|--[\w-]+|'[^']*'|\S*[._/]\S*", "", text)
    words = set(re.findall(r"(?<![A-Za-z0-9*-])[a-z]{3,}(?![A-Za-z0-9(-])", text))
    return words - TYPED - set(re.findall(r"\w+", command))


@pytest.mark.parametrize("command", every(3, COMMANDS))
def test_chinese_outputs_have_no_english_words(output, monkeypatch, command):
    monkeypatch.setenv("NPU_SIM_LANG", "zh")
    assert english_words(output(command), command) == set()


class Texts(HTMLParser):
    """The texts of a page and the names of its pictures and tables, without code and commands."""

    def __init__(self, page):
        super().__init__()
        self.texts, self.hidden = [], 0
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.hidden += tag in ("script", "style", "pre")
        self.texts += [value for name, value in attrs if name in ("title", "aria-label")]

    def handle_endtag(self, tag):
        self.hidden -= tag in ("script", "style", "pre")

    def handle_data(self, data):
        if not self.hidden:
            self.texts.append(data)


@pytest.mark.parametrize(
    "command",
    every(
        3,
        [
            f"plan {NORM}",
            f"plan {LOSS}",
            "plan conv_tbc_backward --input 128x8x64:fp16 --weight 3x64x64:fp16",
            f"run {SMALL}",
            f"limits {LOSS} --vary C",
            f"diff {NORM} --products A2,A3,inference",
            f"timeline {NORM}",
            "preflight calls.jsonl --timeline",
            "preflight calls.jsonl --products A2,A3",
            f"study determinism {SMALL}",
            f"study precision {SMALL}",
            f"study invariance {SMALL}",
            f"study certificate {SMALL}",
            "sweep rms_norm_grad --grid row=1..64:*2 --grid col=16,128",
        ],
    ),
)
def test_chinese_reports_have_no_english_words(output, monkeypatch, command):
    monkeypatch.setenv("NPU_SIM_LANG", "zh")
    output(f"{command} --report report.html")
    page = Path("report.html").read_text(encoding="utf-8")
    assert english_words("\n".join(Texts(page).texts), command) == set()
