"""Causes: the sentence of a text, in whatever form it stands, and what follows from its values."""

import pytest

from npu_sim import diagnose

TIME = "2026-03-04-10:11:12.100.200"


def lines_of(text):
    """The lines of an answer by label; those of equal labels one below the other."""
    lines: dict[str, str] = {}
    for label, line in diagnose(text).lines:
        lines[label] = f"{lines[label]}\n{line}" if label in lines else str(line)
    return lines


INNER = "RuntimeError: call {call} failed, error code is 561002\nEZ9999: Inner Error!\n{block}"
PLACE = "[FUNC:Check][FILE:{file}.cpp][LINE:21]"
OPLOG = "[ERROR] OP(29,w):{time} [x.cc:10][{module}][Infer][33] {said}"


@pytest.mark.parametrize(
    ("head", "prefix"),
    [
        (f"EZ9999: [PID: 9] {TIME} ", "op[RmsNormGrad], "),
        (f"EZ9999[PID: 9] {TIME} (EZ9999):  ", "op[RmsNormGrad_12], "),
        (f"EZ9999: {TIME}  ", "op[RmsNormGrad], "),
        ("        ", "op[RmsNormGrad], "),
        (f"E89999: [PID: 9] {TIME} ", "op[RmsNormGrad], "),
        (f"EZ9999: {TIME}  ", ""),
    ],
)
@pytest.mark.parametrize("said", ["Shape of rstd is wrong.", "dim [3] of rstd is above [2]."])
def test_the_cause_is_the_sentence_without_the_name_of_the_operator(head, prefix, said):
    block = head + prefix + said + PLACE.format(file="rms_norm_grad_tiling")
    text = INNER.format(call="aclnnRmsNormGrad", block=block)
    assert lines_of(text)["cause"] == said
    assert diagnose(text).operator == "rms_norm_grad"


def test_a_sentence_of_our_planner_behind_a_name_has_its_meaning():
    said = "op[RotaryPositionEmbeddingGrad], B * N should smaller than 1000."
    block = f"EZ9999[PID: 9] {TIME} (EZ9999):  {said}"
    text = block + PLACE.format(file="rope_interleaved_grad_tiling")
    found = lines_of(INNER.format(call="aclnnRotaryPositionEmbeddingGrad", block=text))
    assert found["cause"].startswith("B * N should smaller than 1000")
    assert "B*N is 1000 or more" in found["meaning"]


def test_the_first_sentence_of_a_call_in_plog_is_the_cause():
    first = 'OpName:[Tile] "[5, 2] can not be tiled to [6, 2]"'
    second = "errno[561000] OpName:[aclnnRepeat_52] infer shape fail, [7]"
    lines = (
        OPLOG.format(time=TIME, module=name, said=said)
        for name, said in (("OP_PROTO", first), ("NNOP", second))
    )
    text = "\n".join(lines)
    assert lines_of(text)["cause"] == "[5, 2] can not be tiled to [6, 2]"
    assert diagnose(text).operator == "aclnnRepeat"
