"""Metadata of fields: columns, the vendor's structure, and the record without a tiling."""

from operator import attrgetter
from typing import Annotated, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu_sim.tiling.common import (
    FAILED,
    FP32_VALUE,
    STATUS,
    SUCCESS,
    Column,
    Field,
    Part,
    nothing,
    table,
    vendor_fields,
)
from tests.compiled_planners import compiled


class Batches(NamedTuple):
    num: Annotated[int, Field("rows of a batch", "row", vendor="num")]
    loop: Annotated[int, Field("batches", "row", vendor="loop count")]
    columns: Annotated[int, Field("columns")]


class Split(NamedTuple):
    batches: Annotated[Batches, Part(vendor="ub_{}", help=" of a core", prefix="core_")]
    width: int


class Tiling(NamedTuple):
    status: int
    mode: Annotated[int, Field("mode", "1", vendor="mode", words=("whole", "pieces"), none=-1)]
    factor: Annotated[float, Field("1 / columns", FP32_VALUE, vendor="avg_factor", none=2)]
    first: Batches
    tail: Annotated[Batches, Part(vendor="tail_{}", help=" of the last core", bound="max(row, 8)")]
    split: Annotated[Split, Part(prefix="")]


NO_TILING = nothing(Tiling)

numbers = st.integers(-(2**40), 2**40)
batches = st.builds(Batches, numbers, numbers, numbers)
tilings = st.builds(
    Tiling,
    numbers,
    numbers,
    st.floats(allow_nan=False, width=32),
    batches,
    batches,
    st.builds(Split, batches, numbers),
)


def column(name):
    (found,) = (one for one in table(Tiling) if one.name == name)
    return found


def leaves(record):
    """All numbers of a record, those of its parts in their place."""
    return [leaf for one in record for leaf in (leaves(one) if isinstance(one, tuple) else [one])]


@given(tilings)
def test_the_paths_of_a_table_read_every_number_in_its_place(tiling):
    assert [attrgetter(one.path)(tiling) for one in table(Tiling)] == leaves(tiling)


@given(tilings)
def test_the_vendors_structure_has_every_field_with_a_name_under_each_of_its_names(tiling):
    structure = vendor_fields(tiling)
    named = {name: one for one in table(Tiling) for name in one.field.vendor.split()}
    assert list(structure) == list(named)
    for name, value in structure.items():
        assert value == (
            float(f"{tiling.factor:.9g}")
            if name == "avg_factor"
            else attrgetter(named[name].path)(tiling)
        )


def test_columns_are_named_by_path_or_prefix():
    assert [(one.path, one.name) for one in table(Tiling)] == [
        ("status", "status"),
        ("mode", "mode"),
        ("factor", "factor"),
        ("first.num", "first_num"),
        ("first.loop", "first_loop"),
        ("first.columns", "first_columns"),
        ("tail.num", "tail_num"),
        ("tail.loop", "tail_loop"),
        ("tail.columns", "tail_columns"),
        ("split.batches.num", "core_num"),
        ("split.batches.loop", "core_loop"),
        ("split.batches.columns", "core_columns"),
        ("split.width", "width"),
    ]


def test_a_column_has_the_kind_and_the_field_of_its_line():
    words = ("whole", "pieces")
    assert column("mode") == Column(
        "mode", "mode", int, Field("mode", "1", vendor="mode", words=words, none=-1)
    )
    assert column("factor").kind is float
    assert column("status").field == STATUS
    assert column("width").field == Field()


def test_a_part_says_what_its_fields_are_called_and_bounded_by_there():
    assert column("first_num").field == Field("rows of a batch", "row", vendor="num")
    assert column("tail_num").field == Field(
        "rows of a batch of the last core", "max(row, 8)", vendor="tail_num"
    )
    assert column("tail_loop").field.vendor == "tail_loop tail_count"
    assert column("core_num").field == Field("rows of a batch of a core", "row", vendor="ub_num")


def test_a_bound_of_a_part_gives_none_to_fields_that_sweeps_leave_out():
    assert column("tail_columns").field.bound == ""


def test_without_a_tiling_every_field_is_what_its_line_says_and_the_status_failed():
    empty = Batches(0, 0, 0)
    assert Tiling(FAILED, -1, 2.0, empty, empty, Split(empty, 0)) == NO_TILING
    assert (
        type(NO_TILING.factor) is np.float32
    )  # as planners compute it: compiled, both results have one type
    assert FAILED != SUCCESS


def tile(rows):
    return (
        NO_TILING
        if rows == 0
        else Tiling(
            SUCCESS, 0, np.float32(0.5), Batches(rows, 1, 1), NO_TILING.tail, NO_TILING.split
        )
    )


@pytest.mark.parametrize("rows", [0, 3])
def test_compiled_planners_may_refer_to_the_record_without_a_tiling(rows):
    assert compiled(tile)(rows) == tile(rows)


def test_fp32_values_have_the_nine_digits_that_identify_them():
    tiling = NO_TILING._replace(factor=0.3333333432674408)
    assert vendor_fields(tiling)["avg_factor"] == 0.333333343


class AtRelease(NamedTuple):
    rows: Annotated[int, Field("rows", vendor="rows")]
    later: Annotated[int, Field("a field that came later", vendor="later", switch="has_later")]
    batches: Annotated[Batches, Part("ub_{}", switch="has_batches")]


class Rules(NamedTuple):
    has_later: int
    has_batches: int


@pytest.mark.parametrize(
    ("has_later", "has_batches", "names"),
    [
        (0, 0, {"rows"}),
        (1, 0, {"rows", "later"}),
        (0, 1, {"rows", "ub_num", "ub_loop", "ub_count"}),
        (1, 1, {"rows", "later", "ub_num", "ub_loop", "ub_count"}),
    ],
)
def test_the_vendors_structure_leaves_out_what_the_release_does_not_have(
    has_later, has_batches, names
):
    assert (
        vendor_fields(AtRelease(1, 2, Batches(3, 4, 5)), Rules(has_later, has_batches)).keys()
        == names
    )


class Named(NamedTuple):
    status: int
    path: str


def test_a_field_that_is_no_number_is_named():
    with pytest.raises(
        TypeError,
        match=r"Named\.path is <class 'str'>: a field is an int, a float, or a NamedTuple of them",
    ):
        table(Named)
