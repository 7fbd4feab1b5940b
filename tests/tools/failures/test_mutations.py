"""Changed texts, logs and exception dumps are read or refused: no other error, in Chinese too."""

import random
from contextlib import suppress

import pytest

import npu_sim
from npu_sim import UsageError, diagnose
from tests.tools.failures.test_device_exceptions import device_log, rms_norm_grad_dump
from tests.tools.failures.test_unseen_texts import UNSEEN

CALL = {"dy": "64x4096:bf16", "gamma": "4096:bf16"}
ODD = (
    *("0x", "0xZZ", "-1", "9" * 400, "1e999", "NaN", "\x00", "\ud800", "\u200b", "\r", "^[[0;36m"),
    *(
        "[",
        "]",
        "(",
        ")",
        "{}",
        "%s",
        "\\n",
        "error code is",
        "args(0 to 1) after execute:",
        "aclnn",
    ),
    *(
        "core id is ",
        "totalLen=(",
        "tilingKey = ",
        "fault kernel_name=",
        "[FILE:",
        "RankID:",
        "aclnn",
    ),
)
"""Pieces that change the meaning of what stands beside them."""


def mutated(text: str, draw: random.Random) -> str:
    """Return a text with a few pieces left out, repeated, exchanged, or replaced by odd ones."""
    for _ in range(draw.choice((1, 1, 2, 5))):
        begin = draw.randrange(len(text) + 1)
        end = min(len(text), begin + draw.choice((0, 1, 3, 12, 60)))
        piece = draw.choice((draw.choice(ODD), "", text[begin:end] * 2, text[begin:end][::-1]))
        text = text[:begin] + piece + text[end:]
    return text


@pytest.fixture
def planned():
    return npu_sim.plan("rms_norm_grad", **CALL)


def read(count: int, seed: int, planned, path) -> None:
    """Diagnose so many changed texts, and a tenth as many exception dumps."""
    draw = random.Random(seed)
    texts = [text for _, text, _ in UNSEEN] + [device_log(planned)]
    for _ in range(count):
        answer = diagnose(mutated(draw.choice(texts), draw))
        answer.as_dict(), str(answer)
    content = rms_norm_grad_dump(path, planned, message=device_log(planned)).read_bytes()
    header = int.from_bytes(content[:8], "little") + 8
    for _ in range(count // 10):
        changed = bytearray(content)
        for _ in range(draw.choice((1, 2, 8))):
            changed[draw.randrange(header)] = draw.randrange(256)
        path.write_bytes(changed[: draw.choice((len(changed), draw.randrange(header)))])
        with suppress(UsageError):
            str(diagnose(path, **CALL))


def test_a_few_changed_texts_and_dumps(tmp_path, planned):
    read(300, 0, planned, tmp_path / "exception_info.1.2.3")


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_thousands_of_changed_texts_and_dumps(tmp_path, planned, seed):
    read(3000, seed, planned, tmp_path / "exception_info.1.2.3")
