"""Device profiles in every format that profilers write."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from itertools import cycle, islice
from pathlib import Path

import pytest

from npu_sim import TensorSpec, UsageError
from npu_sim.tools.profiles import reader
from npu_sim.tools.profiles.reader import read_device_profile, tensors_of
from tests.measured import EMBEDDING, GRAD, OTHER, SUMMARY_NAMES, write_csv, write_database

ROWS = (*EMBEDDING, GRAD, OTHER)


def facts(path: Path) -> list[tuple[object, ...]]:
    return [
        (row.kernel, row.duration_us, row.block_dim, row.inputs, row.outputs)
        for row in read_device_profile(path)
    ]


def test_a_row_has_kernel_time_cores_and_tensors(tmp_path: Path):
    (row,) = read_device_profile(write_csv(tmp_path / "kernel_details.csv", [GRAD]))
    assert (row.line, row.kernel, row.duration_us, row.block_dim) == (2, "RmsNormGrad", 95.0, 40)
    assert row.inputs == tuple(
        map(
            TensorSpec.parse, ("4096x1x1024:bf16", "4096x1x1024:bf16", "4096x1x1:fp32", "1024:bf16")
        )
    )
    assert row.counter("aiv_total_cycles") == 1800 * 95 * 40


@pytest.mark.parametrize(
    "names", [SUMMARY_NAMES, {"Block Dim": "Block Num"}, {"Duration(us)": "Duration (us)"}]
)
def test_column_names_of_other_releases_are_accepted(tmp_path: Path, names: dict[str, str]):
    assert facts(write_csv(tmp_path / "a.csv", ROWS)) == facts(
        write_csv(tmp_path / "b.csv", ROWS, names)
    )


@pytest.mark.parametrize("blocks", ["blockDim", "blockNum"])
def test_the_database_gives_the_same_rows(tmp_path: Path, blocks: str):
    assert facts(write_database(tmp_path / "a.db", ROWS, blocks)) == facts(
        write_csv(tmp_path / "a.csv", ROWS)
    )


def test_columns_but_kernel_and_time_may_be_missing(tmp_path: Path):
    few = write_csv(
        tmp_path / "few.csv",
        [GRAD],
        without=[name for name in SUMMARY_NAMES if name not in ("Type", "Duration(us)")],
    )
    assert facts(few)[0][:2] == ("RmsNormGrad", 95.0)
    none = write_csv(
        tmp_path / "none.csv", [GRAD], without=["Block Dim", "Input Shapes", "Output Shapes"]
    )
    assert facts(none) == [("RmsNormGrad", 95.0, None, None, None)]


@pytest.mark.parametrize(
    ("shapes", "dtypes", "expected"),
    [
        ('"4,8;8"', "FLOAT;DT_BF16", ("4x8:fp32", "8:bf16")),
        ('""', "FLOAT", (":fp32",)),
        ('"220;"', "FLOAT;FLOAT16", ("220:fp32", ":fp16")),
        ('"[4,8];[8]"', "INT64;INT32", ("4x8:int64", "8:int32")),
    ],
)
def test_shapes_may_have_quotes_or_brackets(shapes: str, dtypes: str, expected: tuple[str, ...]):
    tensors = tensors_of(shapes, dtypes, "ND;ND")
    assert tensors is not None
    assert [(spec.shape, spec.dtype) for spec in tensors if spec] == [
        _spec(text) for text in expected
    ]


def _spec(text: str) -> tuple[tuple[int, ...], str]:
    if text.startswith(":"):
        return (), TensorSpec.parse(f"1{text}").dtype
    spec = TensorSpec.parse(text)
    return spec.shape, spec.dtype


def test_kernels_without_shapes_have_none():
    assert tensors_of("N/A", "N/A", "N/A") is None
    assert tensors_of('"4"', "COMPLEX64", "ND") == (None,)


def damaged(path: Path, find: str, put: str) -> Path:
    path.write_text(path.read_text(encoding="utf-8").replace(find, put, 1), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("find", "put", "expected"),
    [
        (",95.0,", ",fast,", r"line 2, column 'Duration\(us\)': 'fast' is not a number"),
        (",95.0,", ",inf,", r"line 2, column 'Duration\(us\)': 'inf' is not a number"),
        (
            "4096,1,1024;4096",
            "4096,x,1024;4096",
            r"line 2, column 'Input Shapes': '4096,x,1024' is not a shape",
        ),
        (",RmsNormGrad,", ",", "line 2: 12 columns"),
        ("Type", "Kind", "line 1: has none of the columns 'type', 'op type'"),
    ],
)
def test_a_damaged_file_is_refused_with_line_and_column(
    tmp_path: Path, find: str, put: str, expected: str
):
    path = damaged(write_csv(tmp_path / "kernel_details.csv", [GRAD]), find, put)
    with pytest.raises(UsageError, match=expected):
        read_device_profile(path)


def test_other_files_are_refused(tmp_path: Path):
    text, damaged_database, folder = tmp_path / "a.csv", tmp_path / "a.db", tmp_path / "empty"
    folder.mkdir()
    text.write_bytes(b"Type,Duration(us)\nRmsNormGrad,\xff\n")
    damaged_database.write_bytes(b"SQLite format 3\x00" + b"x" * 200)
    for path, message in (
        (text, "line 2: is not text"),
        (damaged_database, "cannot be read as a database"),
        (folder, "a folder without CSV files"),
    ):
        with pytest.raises(UsageError, match=message):
            read_device_profile(path)
    with pytest.raises(UsageError, match="No such file"):
        read_device_profile(tmp_path / "missing.csv")


@pytest.mark.parametrize("content", [b"", b"Type,Duration(us)\nRmsNormGrad,9\n", b"\xff\x00"])
def test_a_file_named_db_is_a_database(tmp_path: Path, content: bytes):
    (tmp_path / "profile.DB").write_bytes(content)
    with pytest.raises(UsageError, match=r"profile\.DB: is not an SQLite database"):
        read_device_profile(tmp_path / "profile.DB")


def test_every_dtype_needs_a_shape():
    with pytest.raises(ValueError, match="1 shapes for 2 dtypes"):
        tensors_of("4,4", "FLOAT;FLOAT", "ND")


@pytest.mark.parametrize(
    ("unit", "cell", "expected"),
    [("us", "95", 95), ("ms", "0.095", 95), ("ns", "95000", 95), ("s", "0.000095", 95)],
)
def test_units_of_columns_are_honoured(tmp_path: Path, unit: str, cell: str, expected: float):
    path = tmp_path / "units.csv"
    path.write_text(f"Type,Duration({unit}),Start Time({unit})\nRmsNormGrad,{cell},{cell}\n")
    (row,) = read_device_profile(path)
    assert (row.duration_us, row.start_us) == pytest.approx((expected, expected))


@pytest.mark.parametrize(
    ("header", "cells", "message"),
    [
        ("Type,Duration(us)", "Add,-5", "line 2, column 'Duration(us)': '-5' is negative"),
        ("Type,Duration(us)", "Add,nan", "line 2, column 'Duration(us)': 'nan' is not a number"),
        ("Type,Duration(h)", "Add,1", "line 1, column 'Duration(h)': 'h' is not a unit of time"),
        (
            "Type,Duration(us),aiv_vec_time(us)",
            "Add,5,-1",
            "line 2, column 'aiv_vec_time(us)': '-1' is negative",
        ),
    ],
)
def test_times_that_cannot_be_are_refused_with_line_and_column(
    tmp_path: Path, header: str, cells: str, message: str
):
    path = tmp_path / "wrong.csv"
    path.write_text(f"{header}\n{cells}\n")
    with pytest.raises(UsageError) as caught:
        read_device_profile(path)
    assert message in str(caught.value)


def test_a_block_dim_of_0_is_not_recorded(tmp_path: Path):
    row = GRAD._replace(block_dim=0)
    for path in (
        write_csv(tmp_path / "a.csv", [row], {"Block Dim": "Block Num"}),
        write_database(tmp_path / "a.db", [row], "blockNum"),
    ):
        assert [launch.block_dim for launch in read_device_profile(path)] == [None]


def changed(path: Path, *statements: str) -> Path:
    """Return a database of launches after changes by SQL."""
    write_database(path, ROWS)
    with closing(sqlite3.connect(path)) as database, database:
        for statement in statements:
            database.execute(statement)
    return path


COUNTED = "CREATE TABLE TASK_PMU_INFO (globalTaskId INTEGER, name INTEGER, value)"


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        (["UPDATE TASK SET startNs = NULL WHERE rowid = 2"], "TASK, row 2, column startNs: NULL"),
        (["UPDATE TASK SET endNs = 'x' WHERE rowid = 3"], "TASK, row 3, column endNs: 'x'"),
        (["UPDATE TASK SET endNs = x'00' WHERE rowid = 1"], "TASK, row 1, column endNs: b'"),
        (["UPDATE TASK SET endNs = startNs - 1 WHERE rowid = 1"], "TASK, row 1, column endNs"),
        (
            ["UPDATE COMPUTE_TASK_INFO SET blockDim = 'many' WHERE rowid = 4"],
            "COMPUTE_TASK_INFO, row 4, column blockDim: 'many'",
        ),
        (
            ["UPDATE COMPUTE_TASK_INFO SET opType = NULL WHERE rowid = 1"],
            "COMPUTE_TASK_INFO, row 1, column opType: NULL",
        ),
        (
            ["UPDATE COMPUTE_TASK_INFO SET inputShapes = x'ff' WHERE rowid = 1"],
            "COMPUTE_TASK_INFO, row 1, column inputShapes",
        ),
        (["UPDATE STRING_IDS SET value = NULL WHERE rowid = 1"], "STRING_IDS, row 1, column value"),
        (
            [COUNTED, "INSERT INTO TASK_PMU_INFO VALUES (1, 'aiv_time', NULL)"],
            "TASK_PMU_INFO, row 1, column value: NULL",
        ),
        (
            [COUNTED, "INSERT INTO TASK_PMU_INFO VALUES (1, 'aiv_time', 'much')"],
            "TASK_PMU_INFO, row 1, column value: 'much'",
        ),
        (
            ["ALTER TABLE TASK RENAME COLUMN startNs TO begin"],
            "has no table TASK with a column startNs",
        ),
    ],
)
def test_a_wrong_cell_of_a_database_is_named(tmp_path: Path, statements: list[str], message: str):
    with pytest.raises(UsageError) as caught:
        read_device_profile(changed(tmp_path / "wrong.db", *statements))
    assert message in str(caught.value)


ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"


@pytest.mark.parametrize(
    "view",
    [
        f"{ENDLESS} SELECT i AS id, 'x' AS value FROM n",
        "SELECT 1 AS id, hex(zeroblob(400000000)) AS value",
    ],
)
def test_a_view_in_place_of_a_table_is_not_computed(tmp_path: Path, view: str):
    path = changed(
        tmp_path / "view.db", "DROP TABLE STRING_IDS", f"CREATE VIEW STRING_IDS AS {view}"
    )
    with pytest.raises(UsageError, match="has no table STRING_IDS"):
        read_device_profile(path)


def test_long_texts_and_many_rows_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = changed(
        tmp_path / "long.db", "UPDATE STRING_IDS SET value = hex(zeroblob(600000)) WHERE rowid = 1"
    )
    with pytest.raises(UsageError, match="too big"):
        read_device_profile(path)
    monkeypatch.setattr(reader, "MOST_LAUNCHES", 3)
    for few in (write_csv(tmp_path / "a.csv", ROWS), write_database(tmp_path / "a.db", ROWS)):
        with pytest.raises(UsageError, match="more than 3 launches"):
            read_device_profile(few)
    monkeypatch.setattr(reader, "MOST_ROWS", 5)
    with pytest.raises(UsageError, match="STRING_IDS: more than 5 rows"):
        read_device_profile(tmp_path / "a.db")


def test_reading_a_database_ends_at_the_limit_of_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(reader, "LONGEST_READING_S", -1.0)
    monkeypatch.setattr(reader, "STEPS_BETWEEN_CHECKS", 1)
    with pytest.raises(UsageError, match="reading takes longer than"):
        read_device_profile(write_database(tmp_path / "slow.db", ROWS))


@pytest.mark.parametrize("name", ["startNs", "STRING_IDS", "opType", "blockDim"])
@pytest.mark.parametrize("put", [0xFF, 0x00, 0x28])
def test_a_flipped_byte_in_the_schema_is_an_error_or_harmless(tmp_path: Path, name: str, put: int):
    content = bytearray(write_database(tmp_path / "whole.db", ROWS).read_bytes())
    content[content.index(name.encode())] = put
    path = tmp_path / "flipped.db"
    path.write_bytes(content)
    said = refusal(path)
    assert not said or "flipped.db" in said


def refusal(path: Path) -> str:
    """Return the message of a refused file; empty if it is read."""
    try:
        read_device_profile(path)
    except UsageError as error:
        return str(error)
    return ""


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_a_million_rows_are_read_in_a_gigabyte(tmp_path: Path):
    """The rows have the columns of kernel_details.csv: 271 bytes each."""
    path = write_csv(tmp_path / "million.csv", islice(cycle(ROWS), 1_000_000))
    program = (
        "import pathlib, re, sys, npu_sim; answer = npu_sim.read_profile(sys.argv[1], "
        "soc='Ascend910B3'); status = pathlib.Path('/proc/self/status').read_text(); "
        "print(len(answer.launches), re.search(r'VmHWM:\\s+(\\d+)', status)[1])"
    )  # ru_maxrss of a child starts at that of its parent
    done = subprocess.run(
        [sys.executable, "-c", program, path], capture_output=True, text=True, check=True
    )
    launches, kib = map(int, done.stdout.split())
    assert launches == 1_000_000
    assert kib < 1_000_000


def join(path: Path, whole: Path, rows: list[int]) -> Path:
    """Write a CSV profile that contains some launches of another one a second time."""
    head, *lines = whole.read_text(encoding="utf-8").splitlines(keepends=True)
    again = [lines[row] for row in rows]
    path.write_text("".join([head, *lines, *again]), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("again", "expected"),
    [
        (
            range(len(ROWS)),
            rf"{len(ROWS)} of {2 * len(ROWS)} launches stand twice, such as aclnnCast in line 10",
        ),
        ([7], rf"1 of {len(ROWS) + 1} launches .* aclnnMatMulV2 in line 10: same stream"),
    ],
)
def test_a_file_with_launches_that_stand_twice_is_refused(
    tmp_path: Path, again: list[int], expected: str
):
    whole = write_csv(tmp_path / "whole.csv", ROWS)
    with pytest.raises(UsageError, match=expected):
        read_device_profile(join(tmp_path / "joined.csv", whole, list(again)))


def test_a_database_with_every_row_twice_is_refused(tmp_path: Path):
    path = write_database(tmp_path / "joined.db", ROWS)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("INSERT INTO TASK SELECT * FROM TASK")
    with pytest.raises(UsageError, match=f"{len(ROWS)} of {2 * len(ROWS)} launches stand twice"):
        read_device_profile(path)


def test_equal_rows_without_start_times_are_launches_of_their_own(tmp_path: Path):
    path = write_csv(tmp_path / "a.csv", [GRAD, GRAD], without=["Start Time(us)"])
    assert len(read_device_profile(path)) == 2
