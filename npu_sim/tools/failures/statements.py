"""Facts that the sentence of a cause states, as phrases: arguments with their dtypes and sizes.

Source: specification page ``error_texts`` (sections 5 and 8).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from npu_sim.language import Text, joined
from npu_sim.numbers.formats import canonical_dtype

LIST = r"\[[^\[\]]{0,200}\]"
TENSOR = re.compile(r"(?P<name>\w{1,100})\((?P<dtype>DT_\w{1,40}),\s{0,8}\w{1,60}\)")
"""A tensor with its dtype and format in a list of EZ1001."""
NESTED = re.compile(rf"\[({LIST})\]")
"""A list in a list of its own, as texts have it whose form and value both have brackets."""


ASPECT = (
    r"(?:incorrect|invalid) (?P<aspect>(?:shape|dtype|format|value|size|data type|dim num)"
    r"(?: (?:size|dim))?)(?:s|es)?"
)
"""What a structured check refuses."""
GIVEN, WANTED = r"(?P<given>[^\n]{1,300}?)", r"(?P<wanted>[^\n]{1,300}?)"


class Statement(NamedTuple):
    """What one form of a sentence states."""

    pattern: str
    """Expression of the sentence, with bounded repetitions; its groups are the fields."""
    words: str
    """Template of the statement."""


STATEMENTS = (
    Statement(
        rf"OP\[\w{{1,200}}\] (?:attr\[: )?(?P<one>\w{{1,100}}(?: input)?)\]?,? has {ASPECT}"
        rf"\[: {GIVEN}\], it should be(?:\[: {WANTED}\]| (?P<list>[^\n]{{1,300}}?))\.?$",
        Text("{one} has {aspect} {given}; it should be {wanted}{list}"),
    ),
    Statement(
        rf"(?:Parameters?|Attribute|Attr) \[?(?P<one>[\w., ]{{1,200}}?)\]? (?:of|for) \S{{1,200}} "
        rf"ha(?:s|ve) (?:an )?{ASPECT} {GIVEN}\. (?:It|They) should be {WANTED}\.?$",
        Text("{one}: {aspect} {given}; it should be {wanted}"),
    ),
    Statement(
        rf"(?:Parameters?|Attribute|Attr) \[?(?P<one>[\w., ]{{1,200}}?)\]? (?:of|for) \S{{1,200}} "
        rf"ha(?:s|ve) (?:an )?{ASPECT} {GIVEN}\. Reason: {WANTED}\.?$",
        Text("{one}: {aspect} {given}; {wanted}"),
    ),
    Statement(
        rf"tensor for (?P<one>[\w.]{{1,100}}) to have same size as tensor for "
        rf"(?P<other>[\w.]{{1,100}}), but (?P<size>{LIST}) does not equal (?P<other_size>{LIST})",
        Text("{one} has size {size}, {other} has size {other_size}: they must be equal"),
    ),
    Statement(
        rf"size of tensor (?P<one>[\w.]{{1,100}}) (?P<size>{LIST}) must match the size of tensor "
        rf"(?P<other>[\w.]{{1,100}}) (?P<other_size>{LIST})",
        Text("{one} has size {size}, {other} has size {other_size}: they must be equal"),
    ),
    Statement(
        rf"(?P<size>{LIST}) can ?not (?:be )?broadcast (?:to|with) (?P<other_size>{LIST})",
        Text("the sizes {size} and {other_size} cannot be broadcast to one another"),
    ),
    Statement(
        rf"(?:^|\s)(?P<size>\d{{1,20}}|{LIST}) and (?P<other_size>\d{{1,20}}|{LIST}) "
        r"can ?not (?:be )?broadcast",
        Text("the sizes {size} and {other_size} cannot be broadcast to one another"),
    ),
    Statement(
        rf"(?P<one>[\w.]{{1,100}}) not implemented for (?P<dtype>DT_\w{{1,40}}), "
        rf"should be in dtype support list (?P<allowed>{LIST})",
        Text("{one} is {dtype}; allowed are {allowed}"),
    ),
    Statement(
        r"same dtype, but found (?P<one>[\w.]{1,100}) (?P<dtype>DT_\w{1,40}) and "
        r"(?P<other>[\w.]{1,100}) (?P<other_dtype>DT_\w{1,40})",
        Text("{one} is {dtype}, {other} is {other_dtype}: they must be equal"),
    ),
    Statement(
        r"but got (?P<one>[\w.]{1,100}) with sizes (?P<size>\[[^\[\]]{0,200}\])",
        Text("{one} has size {size}"),
    ),
    Statement(
        r"socVersion \[(?P<soc>\w{1,60})\] does not support opType \[(?P<kernel>\w{1,200})\]",
        Text("the SoC {soc} has no operator {kernel}"),
    ),
    Statement(
        r"because value (?P<value>[^\s,]{1,100}) for parameter (?P<one>[\w.]{1,100}) is invalid\. "
        r"Expected value: (?P<allowed>[^\n]{1,200}?)\.?$",
        Text("{one} is {value}; expected is {allowed}"),
    ),
    Statement(
        r"set device ?= ?(?P<device>-?\d{1,9}), valid device range is "
        r"(?P<range>\[\d{1,9}, ?\d{1,9}\))",
        Text("device {device} does not exist; valid are {range}"),
    ),
    Statement(
        r"Index (?P<index>\d{1,20}) out of range ?\[(?P<low>-?\d{1,20})[ ,]{1,3}(?P=index)\)",
        Text("index {index} equals the length of the table: valid are {low} <= index < {index}"),
    ),
    Statement(
        r"Index (?P<index>-?\d{1,20}) out of range ?"
        r"\[(?P<low>-?\d{1,20})[ ,]{1,3}(?P<high>-?\d{1,20})\)",
        Text("index {index} is outside of the table: valid are {low} <= index < {high}"),
    ),
)
"""Forms of sentences, the most specific first."""
_COMPILED = tuple((one, re.compile(one.pattern)) for one in STATEMENTS)


def dtype_in_words(name: str) -> str:
    """Return the canonical name of a dtype of the product; unknown ones as they are."""
    try:
        return canonical_dtype(name)
    except ValueError:
        return name


def statement(cause: str) -> str:
    """Return the facts that a sentence states, as phrases; empty for other sentences."""
    for one, pattern in _COMPILED:
        if found := pattern.search(cause):
            return Text(
                one.words, **{name: _field(text) for name, text in found.groupdict().items()}
            )
    return ""


def _field(value: str | None) -> str:
    """Return a value of a sentence; dtypes, alone or in a list, by their canonical names."""
    if value is None or "DT_" not in value:
        return NESTED.sub(r"\1", value or "")
    names = (name.strip() for name in value.strip("[]").split(","))
    return joined((dtype_in_words(name) for name in names if name), ", ")


def dtypes_of(listed: str) -> dict[str, str]:
    """Return the dtypes of the tensors that a list of EZ1001 names, by tensor."""
    return {found["name"]: dtype_in_words(found["dtype"]) for found in TENSOR.finditer(listed)}


def tensors_text(dtypes: Mapping[str, str]) -> str:
    """Return tensors with their dtypes: ``x float16, gamma float32``."""
    return joined(
        (Text("{name} {dtype}", name=name, dtype=dtype) for name, dtype in dtypes.items()), ", "
    )


def listed_lines(given: Mapping[str, str], rows: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """Yield the dtypes of a call, and those that the kernels of the SoC take instead."""
    yield Text("the call has {tensors}", tensors=tensors_text(given))
    for row in rows:
        yield Text("the SoC takes {tensors}", tensors=tensors_text(row))
