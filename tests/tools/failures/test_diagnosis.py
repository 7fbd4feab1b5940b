"""Diagnosis of error texts and logs of our own making in the product's formats."""

import json
import struct
from pathlib import Path

import pytest

from npu_sim import UsageError, diagnose, plan
from npu_sim.framework.planning import tiling_bytes
from npu_sim.language import using_language
from npu_sim.registry import find_operator
from npu_sim.status import Status
from npu_sim.tools.failures.reader import CODES, MOST_CHARACTERS, MOST_FINDINGS, read_lines
from tests.cli.runner import npu_sim

DATA = Path(__file__).parents[2] / "data" / "failures"
SHARED = Path(__file__).parents[3].parent / "shared" / "data" / "failures"
"""Public texts beside the repository; they are not part of it."""
TEXTS = [json.loads(line) for line in (DATA / "texts.jsonl").read_text("utf-8").splitlines()]
CALL = {"dy": "64x4096:bf16", "gamma": "4096:bf16"}
BASE = 0x12C100010000


def device_log(planned, *, block_dim=None, key=None, name_key=None, words=None):
    """A plog with a device exception of a planned kernel, in the format of 8.5 and 9.0."""
    data = tiling_bytes(planned)
    tiling = words or list(struct.unpack(f"<{len(data) // 8}Q", data))
    block = [0x12C0C0013000, 0, BASE + 8 * 4, 0x12C0C0011000, *tiling, 0xA5A5A5A500000000, 0]
    head = "[ERROR] RUNTIME(41,python3):2026-03-04-10:11:12.100.200 [stream.cc:10]41 GetError:"
    key = planned.tiling_key if key is None else key
    hash_of = "ab1b6750d7f510985325b603cb06dc8b"
    name = f"{planned.kernel}_{hash_of}_{key if name_key is None else name_key}"
    lines = [
        "The error from device(chipId:0, dieId:0), serial number is 4, there is an exception of "
        "aivec error, core id is 7, error code = 0x800000, dump info: pc start: 0x12c0c002e000, "
        f"current: 0x12c0c002e5e8, para base: {BASE:#x}.",
        f"Aicore kernel execute failed, device_id=0, fault kernel_name={name}, program id=0",
        *(
            f"[AIC_INFO] args({at} to {at + 19}) after execute:"
            + ", ".join(hex(word) for word in block[at : at + 20])
            + "."
            for at in range(0, len(block), 20)
        ),
        f"tilingKey = {key}, print 2 Times totalLen=({len(block)}*8), argsSize={8 * len(block)}, "
        f"blockDim={planned.block_dim if block_dim is None else block_dim}",
        "[AIC_INFO] after execute:args print end",
    ]
    return "\n".join(head + line for line in lines)


@pytest.mark.parametrize("case", TEXTS, ids=[case["name"] for case in TEXTS])
def test_texts_are_read(case):
    answer = diagnose(case["text"])
    wanted = {key: case[key] for key in case.keys() - {"name", "text", "ranks"}}
    assert {key: getattr(answer, key) for key in wanted} == wanted
    assert "ranks" not in case or len(answer.ranks) == case["ranks"]
    assert answer.answer


def test_a_device_exception_is_decoded_into_named_fields():
    planned = plan("rms_norm_grad", **CALL)
    answer = diagnose(device_log(planned), **CALL)
    assert (answer.operator, answer.blamed, answer.stage) == ("rms_norm_grad", True, "device")
    assert answer.tiling == planned.tiling
    assert answer.exception["tiling_key"] == planned.tiling_key
    assert answer.impossible == ()


def test_what_is_impossible_in_a_device_exception_is_stated():
    planned = plan("rms_norm_grad", **CALL)
    log = device_log(planned, block_dim=planned.block_dim + 1, name_key=77)
    assert [text.fields.get("name") for text in diagnose(log).impossible] == [None, "block_dim"]
    other = diagnose(device_log(planned), dy="65x4096:bf16", gamma="4096:bf16")
    assert "row is 64, the plan of the call has 65" in other.impossible


def test_arguments_that_never_arrived_are_not_decoded():
    planned = plan("rms_norm_grad", **CALL)
    answer = diagnose(device_log(planned, words=[0] * 11))
    assert answer.tiling == {}
    assert len(answer.impossible) == 1


def test_a_refused_call_has_its_check_and_the_nearest_legal_value():
    text = next(case["text"] for case in TEXTS if case["name"] == "planner of 8.5 or 9.0")
    answer = diagnose(text, x="64x4096:fp16", gamma="4000:fp16")
    assert answer.refusal["argument"] == "gamma"
    assert "4096" in answer.refusal["hint"]
    assert answer.runs_on == ()


def test_a_call_of_an_operator_that_the_text_does_not_name():
    with pytest.raises(UsageError) as error:
        diagnose("EZ9999: Inner Error!", x="64x4096:fp16")
    assert error.value.argument == "operator"


@pytest.mark.parametrize("text", [b"EZ9999", 3, None, {}])
def test_what_is_no_text_is_an_error(text):
    with pytest.raises(UsageError) as error:
        diagnose(text)
    assert error.value.argument == "text"


def test_a_text_of_two_failures_names_both_operators():
    first = "call aclnnRmsNormGrad failed, detail:EZ1001: dy must not be nullptr"
    second = "call aclnnEmbeddingDenseBackward failed, detail:EZ1001: wrong shape"
    assert "also named" not in dict(diagnose(first).lines)
    named = dict(diagnose(f"{first}\n{second}").lines)["also named"]
    assert named.startswith("embedding_dense_backward: ")


def test_a_process_that_failed_in_another_call_lends_it_nothing():
    refused = (
        "[rank0]: RuntimeError: call aclnnRmsNorm failed, error code is 161002\n"
        "[rank0]: EZ1001: Tensor gamma not implemented for DT_INT32, should be in dtype support "
        "list [DT_FLOAT,].\n"
    )
    planner = (
        "[rank1]: RuntimeError: call aclnnSwiGlu failed, error code is 561002\n"
        "[rank1]: SwiGlu do tiling failed, ret is -1.\n"
    )
    found = diagnose(refused + planner)
    assert (found.operator, found.code) == ("rms_norm", "161002")
    assert (found.stage, found.kernel, found.argument) == ("parameter", None, "gamma")
    assert dict(found.lines)["also named"].startswith("swi_glu: in another process")
    found = diagnose(planner + refused)
    assert (found.operator, found.code) == ("swi_glu", "561002")
    assert (found.stage, found.kernel, found.argument) == ("tiling", "SwiGlu", None)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_encodings_and_line_ends_of_a_file_change_nothing(tmp_path, encoding, line_end):
    text = (
        "[rank0]: RuntimeError: call aclnnRmsNorm failed, error code is 161002\n"
        "[rank0]: EZ1001: The k-axis of the two inputs are different.\n"
        "[rank0]: TraceBack\n"
    )
    file = tmp_path / "log.txt"
    file.write_bytes(text.replace("\n", line_end).encode(encoding))
    assert diagnose(file).as_dict() == diagnose(text).as_dict()
    assert diagnose(text).ranks[0]["rank"] == "0"


def test_findings_are_bounded_in_number():
    lines = (f"call aclnnOperator{number} failed" for number in range(3 * MOST_FINDINGS))
    reading = read_lines(lines)
    assert len(reading.findings) == MOST_FINDINGS
    assert reading.dropped > 0


@pytest.mark.parametrize(
    "piece", ["[rank0]:", "Parameters a and ", "aclnn", "a:b", "[FUNC:", "(E", "\\n", "0x1, "]
)
def test_long_lines_are_read_in_linear_time(piece):
    line = piece * (2 * MOST_CHARACTERS // len(piece))
    assert diagnose([line + " NPU function error", "error code is 161002"]).code == "161002"


def test_the_answer_is_chinese():
    with using_language("zh"):
        from npu_sim.show.forms.layout import render
        from npu_sim.tools.failures.view import diagnosis_view

        text = render(diagnosis_view(diagnose(TEXTS[3]["text"])), 200)
    assert "算子" in text
    assert "operator" not in text


def test_the_command_prints_json_and_ends_with_the_code_of_the_plan(capsys, monkeypatch, tmp_path):
    file = tmp_path / "error.txt"
    file.write_text(TEXTS[3]["text"], encoding="utf-8")
    shown = npu_sim(capsys, monkeypatch, "diagnose", file, "--json")
    assert (shown.code, shown.data["operator"]) == (0, "rms_norm")
    call = '{"inputs": {"x": "64x4096:fp16", "gamma": "4000:fp16"}}'
    refused = npu_sim(capsys, monkeypatch, "diagnose", file, "--call", call)
    assert refused.code == 2
    assert "4096" in refused.out
    for wrong in ("[", "{}", '{"inputs": {"product": "a2"}}'):
        assert npu_sim(capsys, monkeypatch, "diagnose", file, "--call", wrong).code == 64
    misspelt = call.replace('{"inputs"', '{"release_": "8.3", "inputs"')
    unknown = npu_sim(capsys, monkeypatch, "diagnose", file, "--call", misspelt)
    assert unknown.code == 64
    assert "'release_' is not a key of a call; did you mean release?" in unknown.err
    on_950 = '{"product": "950", "inputs": {"x": "64x4096:fp16", "gamma": "4096:fp16"}}'
    stated = npu_sim(capsys, monkeypatch, "diagnose", file, "--product", "a2", "--call", on_950)
    assert "passes all documented checks on Ascend 950PR/950DT" in " ".join(stated.out.split())
    assert npu_sim(capsys, monkeypatch, "diagnose", tmp_path / "none").code == 64


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("AICore error 507015", (None, False, "507015")),
        ("507035", (None, False, "507035")),
        ("errcode:21008", (None, False, "21008")),
        ("HCCL function error: hcclSend(a, b), error code is 2", (None, False, "2")),
        ("    y = torch_npu.npu_rms_norm(x, g)", ("rms_norm", False, None)),
        (
            "call aclnnRmsNorm failed, detail:EZ1001: x\n"
            "RuntimeError: call aclnnCast failed, error code is 161002",
            ("aclnnCast", True, "161002"),
        ),
        (
            "call aclnnMatmul failed, error code is 507015\nfault kernel_name=RmsNormGrad_ab1b, x",
            ("rms_norm_grad", True, "507015"),
        ),
        ("x[FUNC:A][FILE:rms_norm_grad_tiling.cpp][LINE:3]", ("rms_norm_grad", True, "EZ9999")),
        ("[FILE:cross_entropy_loss_grad_infershape.cpp]", ("cross_entropy_loss_grad", True, None)),
        ("[FILE:embedding_dense_grad_v2_tiling.cpp]", ("embedding_dense_backward", True, "EZ9999")),
        ("[FILE:add_rms_norm_tiling.cpp]", ("add_rms_norm", True, "EZ9999")),
        ("[FILE:add_rms_norm_cast_tiling.cpp]", (None, False, "EZ9999")),
        ("the current working operator name is aclnnRms", (None, False, None)),
        ("RmsNorm do tiling failed, ret is -1.", (None, False, "EZ9999")),
        ("  RmsNorm do tiling failed, ret is -1.", ("rms_norm", True, "EZ9999")),
        ("Kernel Run failed, opType: 12, RmsNormGrad", ("rms_norm_grad", False, None)),
    ],
)
def test_operator_and_code_of_short_texts(text, expected):
    answer = diagnose(text)
    assert (answer.operator, answer.blamed, answer.code) == expected


def test_a_refused_dtype_is_answered_with_dtypes():
    text = (
        "call aclnnEmbeddingDenseBackward failed, detail:EZ1001: Tensor grad not implemented for "
    )
    argument = dict(diagnose(text + "DT_DOUBLE, should be in [].").lines)["argument"]
    assert argument.endswith("documented dtypes float32, float16, bfloat16")


def test_a_call_of_another_operator_than_the_failed_one_is_an_error():
    text = "call aclnnRmsNorm failed, error code is 561002"
    with pytest.raises(UsageError, match="the text says that rms_norm failed"):
        diagnose(text, operator="rms_norm_grad", **CALL)


def test_the_command_reads_a_text_given_as_argument(capsys, monkeypatch, tmp_path):
    for text in ("call aclnnRmsNorm failed, error code is 561002", "561002"):
        assert npu_sim(capsys, monkeypatch, "diagnose", text, "--json").data["code"] == "561002"
    shown = npu_sim(capsys, monkeypatch, "diagnose", "errcode:21008", "--json")
    assert shown.data["code"] == "21008"
    shown = npu_sim(capsys, monkeypatch, "diagnose", "[FILE:rms_norm_grad_tiling.cpp]", "--json")
    assert shown.data["operator"] == "rms_norm_grad"
    for file in ("error.txt", "C:/logs/error.txt"):
        missing = npu_sim(capsys, monkeypatch, "diagnose", file)
        assert missing.code == 64
        assert "- for standard input" in missing.err


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the data beside the repository")
def test_public_texts_and_logs():
    right, wrongly_blamed = 0, []
    lines = (SHARED / "errors.jsonl").read_text("utf-8").splitlines()
    for line in lines:
        entry = json.loads(line)
        reading, answer = entry["reading"], diagnose(entry["text"])
        name = (reading["op"] or "").removesuffix(" (ATB)")
        known = find_operator(name) if name else None
        code = None if reading["code"] is None else str(reading["code"])
        operator = known.name if known else name or None
        right += (answer.code, answer.operator) == (code, operator)
        if answer.blamed and answer.operator != operator:
            wrongly_blamed.append(entry["id"])
    assert right >= 0.95 * len(lines)
    assert wrongly_blamed == []
    decoded = json.loads((SHARED / "plog" / "decoded.json").read_text("utf-8"))
    for name, facts in decoded.items():
        found = diagnose((SHARED / "plog" / name).read_text("utf-8")).exception
        words = facts.pop("tiling_words_hex")
        for key in ("source", "lines_kept", "lines_in_file"):
            facts.pop(key)
        assert {key: found.get(key) for key in facts} == facts
        assert found["tiling_words_hex"][: len(words)] == words


@pytest.mark.parametrize(
    ("line", "operator", "means"),
    [
        (
            "B * N is large or D is not aligned.[FUNC:DoRotateHalfTiling]"
            "[FILE:rope_rotate_half_tiling.cpp][LINE:577]",
            "rotary_position_embedding",
            "cos expanded to (B, 1, S, D)",
        ),
        (
            "reserveAlignNum = 2528 too large.[FUNC:RopeHalfGradSetTiling]"
            "[FILE:rope_half_grad_tiling.cpp][LINE:363]",
            "rotary_position_embedding_grad",
            "tnd_flag_stays_set",
        ),
    ],
)
def test_diagnose_explains_the_sentences_of_the_planners(line, operator, means):
    found = diagnose(f"EZ9999: Inner Error!\nEZ9999: [PID: 11] {line}")
    assert found.operator == operator
    assert means in str(found)


def test_a_diagnosis_prints_as_its_text_and_as_a_page():
    found = diagnose("EZ9999: inner error, error code is 507015")
    assert "507015" in repr(found) == str(found)
    html = found._repr_html_()
    assert html.startswith("<iframe")
    assert "507015" in html


@pytest.mark.parametrize("status", [one for one in Status if one])
def test_every_status_of_the_operators_is_named(status):
    meanings = [meaning for code, _, meaning in CODES if str(int(status)).startswith(code)]
    assert status.name in meanings[0]


def test_the_label_of_an_unknown_text_is_chinese(cli, monkeypatch, tmp_path):
    monkeypatch.setenv("NPU_SIM_LANG", "zh")
    (tmp_path / "log.txt").write_text("nothing known\n")
    assert "文本" in cli("diagnose", str(tmp_path / "log.txt")).out
