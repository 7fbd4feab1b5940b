"""Texts put together by the grammar of the product's messages, and the forms in which people paste
them: the reading does not depend on either.
"""

import json
from collections.abc import Callable

import pytest

from npu_sim import diagnose
from npu_sim.registry import OPERATORS
from tests.tools.failures.test_diagnosis import TEXTS

SENTENCES = {
    "op-plugin 5.0": "call {call} failed, detail:",
    "op-plugin 6.0.rc1": (
        "call {call} failed, detail:{block}\n\n[ERROR] 2026-03-04-10:11:12 (PID:7, Device:0, "
        "RankID:-1) ERR01005 OPS internal error"
    ),
    "op-plugin 7.0": (
        "call {call} failed, detail:{block}\n\n[ERROR] 2026-03-04-10:11:12 (PID:7, Device:0, "
        "RankID:-1) ERR01100 OPS call acl api failed"
    ),
    "op-plugin 7.1": (
        "operator():build/CMakeFiles/torch_npu.dir/compiler_depend.ts:130 NPU function error: call "
        "{call} failed, error code is {number}\n[ERROR] 2026-03-04-10:11:12 (PID:7, Device:0, "
        "RankID:-1) ERR00100 PTA call acl api failed.\n"
    ),
    "compact": " NPU function error: call {call} failed, error code is {number} ",
}
"""Sentences of torch_npu; the block follows where a sentence does not hold it."""
STATING = ("op-plugin 7.1", "compact")
"""Sentences that state the number."""
HEADS = (
    "{code}: {text}",
    "{code}: [PID: 7] 2026-03-04-10:11:12.100.200 {text}",
    "[PID: 7] 2026-03-04-10:11:12.100.200 {title}({code}): {text}",
)
"""Heads of a block, the oldest first."""
INNER_HEADS = (
    "EZ9999: Inner Error!\nEZ9999: 2026-03-04-10:11:12.100.200  {text}",
    "EZ9999: Inner Error!\nEZ9999: [PID: 7] 2026-03-04-10:11:12.100.200 {text}",
    "EZ9999: Inner Error!\nEZ9999[PID: 7] 2026-03-04-10:11:12.100.200 (EZ9999):  {text}",
    "EZ9999: Internal error!\nEZ9999[PID: 7] 2026-03-04-10:11:12.100.200 (EZ9999):  {text}",
)
ARGUMENTS = {
    "embedding_dense_backward": ("grad", "grad"),
    "conv_tbc_backward": ("gradOutput", "grad_output"),
    "rms_norm": ("gamma", "gamma"),
    "rms_norm_grad": ("rstd", "rstd"),
    "cross_entropy_loss_grad": ("logProb", "log_prob"),
    "moe_token_permute": ("indices", "indices"),
    "moe_token_permute_grad": ("permutedOutputGrad", "permuted_output_grad"),
    "moe_token_unpermute": ("probsOptional", "probs"),
    "moe_token_unpermute_grad": ("sortedIndices", "sorted_indices"),
}
"""An argument of every operator, as its C++ and as npu_sim names it."""
CHECKS = (
    "Expected a proper Tensor but got null for argument {argument}.",
    "Tensor {argument} not implemented for DT_INT8, should be in dtype support list [DT_FLOAT,].",
    "Expected both tensors to have same dtype, but found {argument} DT_FLOAT and x DT_INT8.",
    "Expected tensor for {argument} to have same size as tensor for x, but [3] does not equal [4].",
    "The {argument} tensor cannot be larger than 8 dimensions.",
    "The {argument} tensor must have at least 1 dimensions.",
    "Expected 2 dimension input, but got {argument} with sizes [3, 4, 5].",
)
TITLES = {entry.name: entry.title for entry in OPERATORS}


def refusals():
    """Yield parameter checks of every operator: name, text, expected fields."""
    place = 0
    for operator, (spelled, own) in ARGUMENTS.items():
        for age, sentence in SENTENCES.items():
            check = CHECKS[place % len(CHECKS)]
            head = HEADS[place % len(HEADS)]
            place += 1
            block = head.format(
                code="EZ1001", title="AclNN_Parameter_Error", text=check.format(argument=spelled)
            )
            number = "161001" if "null" in check else "161002"
            text = sentence.format(call=f"aclnn{TITLES[operator]}", block=block, number=number)
            yield (
                f"{operator}, {age}",
                text if block in text else text + block,
                {
                    "operator": operator,
                    "blamed": True,
                    "code": number if age in STATING else "EZ1001",
                    "stage": "parameter",
                    "argument": own,
                },
            )


def failed_planners():
    """Yield planners that refuse a call, in all generations of the block."""
    for place, (operator, title) in enumerate(TITLES.items()):
        head = INNER_HEADS[place % len(INNER_HEADS)]
        sentence = SENTENCES["op-plugin 7.1"].format(call=f"aclnn{title}", number="561002")
        inner = f"Tiling failed.[FUNC:Tiling][FILE:x_tiling.cpp][LINE:{300 + place}]"
        tail = "        TraceBack (most recent call last):\n        X do tiling failed, ret is -1."
        text = sentence + head.format(text=inner) + "\n" + tail.replace("X do", f"{title} do")
        expected = {"operator": operator, "blamed": True, "code": "561002", "stage": "tiling"}
        yield f"planner of {operator}", text, expected


def victims():
    """Yield calls in which an earlier failure appears: named, and not blamed."""
    numbers = ("507015", "507035", "507014", "507048", "361001")
    for place, (operator, title) in enumerate(TITLES.items()):
        number = numbers[place % len(numbers)]
        text = SENTENCES["op-plugin 7.1"].format(call=f"aclnn{title}", number=number)
        text += HEADS[place % len(HEADS)].format(
            code="EZ9903",
            title="AclNN_Runtime_Error",
            text="rtKernelLaunchWithHandleV2 failed: 507015",
        )
        yield f"victim {operator}", text, {"operator": operator, "blamed": False, "code": number}


UNSEEN = [*refusals(), *failed_planners(), *victims()]


@pytest.mark.parametrize(
    ("text", "expected"), [case[1:] for case in UNSEEN], ids=[case[0] for case in UNSEEN]
)
def test_texts_by_the_grammar_are_read(text, expected):
    answer = diagnose(text)
    assert {name: getattr(answer, name) for name in expected} == expected


def before_lines(prefix) -> Callable[[str], str]:
    return lambda text: "\n".join(prefix + line for line in text.split("\n"))


def with_other_rank(text):
    """The lines of rank 0, each behind one of rank 1."""
    other = ("Traceback (most recent call last):", '  File "/a/b.py", line 12, in main', "    f(x)")
    return "\n".join(
        f"[rank1]: {other[place % 3]}\n[rank0]: {line}"
        for place, line in enumerate(text.split("\n"))
    )


PASTED = {
    "worker": before_lines(
        "(Worker_DP1_TP1_EP5 pid=465) ERROR 02-09 17:11:36 [multiproc_executor.py:751] "
    ),
    "rank and file": before_lines("[rank0]:[E1028 10:45:49.568958992 compiler_depend.ts:429] "),
    "quoted": before_lines("> "),
    "pytest": before_lines("E   "),
    "ray": before_lines("(ActorHybridWorker pid=71, ip=10.1.1.1) "),
    "container": before_lines("worker-0  | "),
    "date": before_lines("[2025-11-30 05:12:25] "),
    "two ranks": with_other_rank,
    "JSON": lambda text: json.dumps({"msg": text}),
    "JSON in Chinese": lambda text: json.dumps({"错误": text}, ensure_ascii=False),
    "repr": lambda text: repr({"error": text}),
    "Windows": lambda text: text.replace("\n", "\r\n"),
    "colours": lambda text: "\n".join(f"\x1b[0;36m{line}\x1b[0m" for line in text.split("\n")),
    "colours as text": lambda text: "\n".join(
        f"^[[0;36m{line}^[[0m^M" for line in text.split("\n")
    ),
    "Chinese report": lambda text: f"训练过程中报错，完整日志如下：\n{text}\n请问怎么解决？谢谢！",
    "Chinese on the line": lambda text: f"报错信息：{text}。",
    "Chinese prefix": before_lines("【错误】"),
}


@pytest.mark.parametrize("pasted", PASTED.values(), ids=list(PASTED))
def test_the_reading_does_not_depend_on_how_a_text_is_pasted(pasted):
    for text in (*(case["text"] for case in TEXTS), *(case[1] for case in UNSEEN)):
        one, other = diagnose(text), diagnose(pasted(text))
        for name in ("operator", "blamed", "code", "stage", "argument"):
            assert getattr(other, name) == getattr(one, name), pasted(text)
