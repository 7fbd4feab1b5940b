"""Tables and paragraphs at every width: complete words, no trailing blanks, blocks when narrow."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from npu_sim.show.forms.layout import (
    UNLIMITED,
    Column,
    Paragraph,
    Table,
    lines_table,
    longest_word,
    part,
    render,
    stack,
    wrapped,
)

WORDS = st.sampled_from(
    [
        "a",
        "dy",
        "4096x7168:bf16,",
        "rms_norm_grad",
        "16778752",
        "12.5",
        "us",
        "bytes;",
        "(67",
        "%)",
        "Ascend910B4-1",
    ]
)
SENTENCES = st.lists(WORDS, max_size=12).map(" ".join)
CHINESE = "不支持（dy）的数据类型为bfloat16，请使用 float16。"
SOCS = Table(
    (
        Column("SoC", part(0), key=True),
        Column("outcome", part(1), plain=True),
        Column("cores", part(2), right=True),
        Column("caveats", part(3)),
    ),
    [("Ascend910B1, 910B2, 910B2C", "runs", "48", ""), ("Ascend910A", "refused 161002", "", "")],
)


@given(SENTENCES, st.integers(1, 100))
def test_lines_hold_complete_words_in_order_within_the_width(text, width):
    lines = wrapped(text, width)
    assert " ".join(lines).split() == text.split()
    assert all(line == line.rstrip() for line in lines)
    assert all(cell_len(line) <= max(width, longest_word(line)) for line in lines)
    assert all(
        cell_len(f"{line} {later}") > width
        for line, later in zip(lines, (longest_first(line) for line in lines[1:]), strict=False)
    )


def longest_first(line):
    """Return the first piece of a line: a word, or a number with its unit."""
    return re.match(
        (
            r"[-+(]?\d[\d.,]*(?:e[-+]?\d+)? "
            r"(?:[num]?s|bytes?|[KMGT]?i?B(?:/s)?|ulp|%|[MG]Hz)(?!\w)\S*|\S+"
        ),
        line,
    )[0]


@pytest.mark.parametrize(
    "quantity",
    [
        "76.977 us",
        "131456 bytes",
        "16 MiB",
        "(67 %)",
        "1850 MHz",
        "70144 ulp,",
        "1.6 TB/s",
        "2.35e+04 ulp",
    ],
)
def test_a_number_and_its_unit_are_not_separated(quantity):
    for text in (f"at least {quantity} more", f"指令启动 {quantity}；来自公开速率"):
        assert all(any(quantity in line for line in wrapped(text, width)) for width in range(1, 40))


@pytest.mark.parametrize("width", range(2, 60))
def test_chinese_lines_break_between_characters_but_not_before_punctuation(width):
    lines = wrapped(CHINESE, width)
    assert "".join(lines).replace(" ", "") == CHINESE.replace(" ", "")
    assert not [line for line in lines if line[0] in "），。" or line[-1] == "（"]
    assert all(word in "".join(lines) for word in ("bfloat16", "float16"))
    assert all(cell_len(line) <= max(width, longest_word(line)) for line in lines)


def test_names_between_chinese_commas_are_words():
    lines = wrapped("SoC：Ascend910B1，Ascend910B2，Ascend910B4-1；dtype", 24)
    assert lines == ["SoC：Ascend910B1，", "Ascend910B2，", "Ascend910B4-1；dtype"]


@given(
    st.lists(st.tuples(WORDS, SENTENCES, SENTENCES), min_size=1, max_size=4),
    st.sampled_from([30, 60, 80, 120, UNLIMITED]),
)
def test_labelled_lines_keep_every_word_at_every_width(lines, width):
    printed = render(lines_table(lines), width)
    assert sorted(printed.split()) == sorted(
        word for line in lines for cell in line for word in cell.split()
    )
    assert not re.search(r"[ \t]$", printed, re.M)


def test_columns_that_fit_are_side_by_side_and_empty_columns_are_omitted():
    assert render(SOCS, 80).splitlines() == [
        "SoC                         outcome         cores",
        "Ascend910B1, 910B2, 910B2C  runs               48",
        "Ascend910A                  refused 161002",
    ]


def test_columns_that_do_not_fit_become_blocks():
    assert render(SOCS, 40).splitlines() == [
        "Ascend910B1, 910B2, 910B2C",
        "  runs | cores 48",
        "Ascend910A",
        "  refused 161002",
    ]
    table = Table(
        (Column("SoC", part(0), key=True), Column("estimate", part(1)), Column("bound", part(2))),
        [("910B1", "V about 146 us (110 to 183)", "76.977 us")],
    )
    assert render(table, 36).splitlines() == [
        "910B1",
        "  estimate V about 146 us (110 to",
        "    183)",
        "  bound 76.977 us",
    ]


def test_a_table_can_provide_its_own_narrow_form():
    table = Table((Column("call", part(0)),), [("x" * 30,)], narrow=Paragraph("too narrow"))
    assert render(table, 20) == "too narrow"
    assert render(table, 30).splitlines() == ["call", "x" * 30]


def test_without_a_width_a_record_is_one_line():
    lines = [("path", "word " * 40, "note"), ("cores", "48", "note")]
    printed = render(stack("title " * 100, lines_table(lines)), UNLIMITED).splitlines()
    assert len(printed) == 3
    assert printed[2].split() == ["cores", "48", "note"]
    assert len(printed[2]) < 60  # a long line in the same table does not change the columns


def test_numbers_of_a_column_are_right_aligned():
    table = Table(
        (Column("area", part(0)), Column("bytes", part(1), right=True)),
        [("sort", "786432"), ("sync", "3072")],
    )
    assert render(table, 80).splitlines()[1:] == ["sort  786432", "sync    3072"]


def test_the_text_of_an_answer_has_no_styles_where_colours_are_forced(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert render(Paragraph("RmsNorm runs", "bold green")) == "RmsNorm runs"


def test_a_long_text_does_not_push_notes_away_on_a_wide_terminal():
    long = "same path; each core's sum is stored separately and added in core order, " * 2
    lines = [("path", "split", "columns"), ("change", long, "decision"), ("core", long, "")]
    rows = render(lines_table(lines), 200).splitlines()
    assert rows[0].index("columns") <= 72
    assert rows[1].index("decision") == rows[0].index("columns")
    assert rows[-1].split(maxsplit=1)[1] == long.strip()
    assert render(lines_table(lines[:1]), 200) == render(lines_table(lines[:1]), 80)


@pytest.mark.parametrize("width", [80, 200, UNLIMITED])
def test_no_lines_are_printed_as_nothing(width):
    assert render(lines_table([]), width) == ""
