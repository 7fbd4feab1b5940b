"""Device profiles in every format that profilers write."""

from pathlib import Path

import pytest

from npu_sim import TensorSpec, UsageError
from npu_sim.files.device_profile import read_device_profile
from npu_sim.files.measured_launch import tensors_of
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
        ("Type", "Kind", "line 1: has no column 'type' or 'op type'"),
    ],
)
def test_a_damaged_file_is_refused_with_line_and_column(
    tmp_path: Path, find: str, put: str, expected: str
):
    path = damaged(write_csv(tmp_path / "kernel_details.csv", [GRAD]), find, put)
    with pytest.raises(UsageError, match=expected):
        read_device_profile(path)


def test_other_files_are_refused(tmp_path: Path):
    text, damaged_database, folder = tmp_path / "a.csv", tmp_path / "a.db", tmp_path
    text.write_bytes(b"Type,Duration(us)\nRmsNormGrad,\xff\n")
    damaged_database.write_bytes(b"SQLite format 3\x00" + b"x" * 200)
    for path, message in (
        (text, "line 2: is no text"),
        (damaged_database, "cannot be read as a database"),
        (folder, "is no file"),
    ):
        with pytest.raises(UsageError, match=message):
            read_device_profile(path)
    with pytest.raises(UsageError, match="there is no such file"):
        read_device_profile(tmp_path / "missing.csv")


def test_every_dtype_needs_a_shape():
    with pytest.raises(ValueError, match="1 shapes for 2 dtypes"):
        tensors_of("4,4", "FLOAT;FLOAT", "ND")
