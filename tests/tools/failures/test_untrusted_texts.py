"""Untrusted texts: near matches of every pattern, and numbers that are none."""

import importlib
import re
import time
from re import _constants as constants
from re import _parser as parser

import pytest

from npu_sim import diagnose
from npu_sim.show.forms.layout import wrapped
from npu_sim.tools.failures.device_exceptions import FACTS, KERNEL_NAME
from npu_sim.tools.failures.reader import FORMS, MOST_CHARACTERS, PREFIX

PATTERNS = {
    **{form.pattern: re.compile(form.pattern) for form in FORMS},
    **{pattern.pattern: pattern for _, pattern in FACTS},
    **{
        value.pattern: value
        for module in ("device_exceptions", "reader")
        for value in vars(importlib.import_module(f"npu_sim.tools.failures.{module}")).values()
        if isinstance(value, re.Pattern)
    },
}
ANCHORED = (KERNEL_NAME, PREFIX)
"""Patterns that apply at one place of a line."""
SIZES = (MOST_CHARACTERS // 8, MOST_CHARACTERS)
"""Lengths of the lines that are compared; reading takes linear time."""
MOST_RATIO = 20
LEAST_SECONDS = 1e-2
"""Shorter times count as this one, so that noise does not decide."""
REPEATS = (parser.MAX_REPEAT, parser.MIN_REPEAT, parser.POSSESSIVE_REPEAT)


def repetitions(parsed):
    """Yield the largest count of every repetition of a parsed pattern."""
    for operation, value in parsed:
        if operation in REPEATS:
            yield value[1]
        for part in value if isinstance(value, tuple | list) else (value,):
            for inner in part if isinstance(part, list) else (part,):
                if isinstance(inner, parser.SubPattern):
                    yield from repetitions(inner)


def one_of(items) -> str:
    """Return a character of a set; x or a blank of a negated one."""
    kind, value = items[0]
    if kind is constants.NEGATE:
        return "x"
    if kind is constants.RANGE:
        return chr(value[0])
    categories = {constants.CATEGORY_DIGIT: "1", constants.CATEGORY_SPACE: " "}
    return chr(value) if kind is constants.LITERAL else categories.get(value, "a")


def texts(parsed) -> list[str]:
    """Return texts that a parsed pattern matches: two of every repetition, and all branches."""
    found = [""]
    for operation, value in parsed:
        if operation is constants.LITERAL:
            parts = [chr(value)]
        elif operation is constants.IN:
            parts = [one_of(value)]
        elif operation is constants.BRANCH:
            parts = [text for branch in value[1] for text in texts(branch)[:2]]
        elif operation is constants.SUBPATTERN:
            parts = texts(value[-1])[:4]
        elif operation in REPEATS:
            least, most, inner = value
            parts = [text * min(max(least, 2), most) for text in texts(inner)[:2]]
        else:
            parts = ["a"] if operation is constants.ANY else [""]
        found = [text + part for text in found for part in dict.fromkeys(parts)][:12]
    return found


def lines(pattern: re.Pattern[str], length: int):
    """Yield lines of near matches: starts of a match, repeated or with the last character so."""
    whole = max(texts(parser.parse(pattern.pattern, pattern.flags)), key=len) + "~"
    for cut in range(len(whole), 0, -1):
        start = whole[:cut]
        yield start + start[-1] * (length - cut)
        if cut % 8 == len(whole) % 8:
            yield (start * (length // cut + 1))[:length]


def seconds(read, argument) -> float:
    start = time.perf_counter()
    read(argument)
    return max(time.perf_counter() - start, LEAST_SECONDS)


def is_linear(read, short, long) -> bool:
    """Return whether the long text takes 8 times as long, and not 64: in one of five trials."""
    return any(seconds(read, long) <= MOST_RATIO * seconds(read, short) for _ in range(5))


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=list(PATTERNS))
def test_near_matches_are_found_in_linear_time(pattern):
    def search(texts):
        for text in texts:
            if pattern in ANCHORED:
                pattern.match(text)
            else:
                pattern.findall(text)

    assert is_linear(search, *(list(lines(pattern, length)) for length in SIZES))


def test_near_matches_are_read_in_linear_time():
    short, long = (
        [next(lines(pattern, length)) for pattern in PATTERNS.values()] for length in SIZES
    )
    assert is_linear(diagnose, short, long)


@pytest.mark.parametrize("text", ["x {}", "错 {}", "错{}x", "1{} "])
@pytest.mark.parametrize("piece", [" ", "（", "1,", "a错", "，"])
def test_long_texts_are_wrapped_in_linear_time(piece, text):
    short, long = (text.format(piece * (length // 16)) for length in SIZES)
    assert is_linear(lambda line: wrapped(line, 80), short, long)


DEVICE_LINE = (
    "[ERROR] RUNTIME(41,python3):2026-03-04-10:11:12 [a.cc:1]4 GetError:there is an aicore error "
    "exception, core id is {core}, error code = {error}, dump info: pc start: {error}, current: "
    "0x12, para base: {base}."
)


@pytest.mark.parametrize("number", ["0123", "0xZZ", "9" * 5000, "0x", "-1", "٣", "0x" + "f" * 40])
def test_odd_numbers_of_a_log_are_read_or_left_out(number):
    words = f"[ERROR] RUNTIME(41,p): [AIC_INFO] args(0 to {number}) after execute:{number}, 0x20"
    text = [
        DEVICE_LINE.format(core=number, error=number, base=number),
        "[AIC_INFO] args(0 to 1) after execute: " + number,
        f"(PID:{number}, Device:{number}, RankID:{number}) [rank{number}]: x",
        words,
        f"tilingKey = {number}, totalLen=({number}*8), argsSize={number}, blockDim={number}",
        f"fault kernel_name=RmsNorm_{'a' * 32}_{number}",
    ]
    for lines_read in (text, *([line] for line in text)):
        assert diagnose(lines_read).as_dict()["answer"]


def test_decimal_and_hexadecimal_words_are_distinguished():
    text = (
        "there is an aicore error exception, core id is 1\nargs(0 to 2) after execute: 0123, 0x10"
    )
    assert diagnose(text).exception["words_found"] == 2
