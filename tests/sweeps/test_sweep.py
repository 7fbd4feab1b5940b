import os
import pickle
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numba.core.event import install_recorder

import npu_sim
from npu_sim.framework.checks import Holds
from npu_sim.framework.inference import arguments_of, call_with, plan_arguments, read_call
from npu_sim.framework.row_planner import UNCOUNTABLE, bound_of, row_planner
from npu_sim.operators.loading import load_operator
from npu_sim.registry import OPERATOR_NAMES
from npu_sim.sweeps import compile
from npu_sim.sweeps.compile import make_jitable
from npu_sim.sweeps.runner import LocalEngine, planned_record, record_dtype, run_sweep, sampled_rows
from npu_sim.sweeps.space import largest_values, make_space, may_be_uncountable, record_columns
from npu_sim.tiling.common import FP32_VALUE, table
from tests.cases import every
from tests.sweeps.compared import mismatches
from tests.sweeps.wide_grids import WIDE_GRIDS

ROOT = Path(__file__).parents[2]
EQUAL_TO_ANOTHER_COLUMN = {
    "rms_norm": {"rows", "columns", "always_0", "always_1", "normal_flag"},
    "rms_norm_grad": {"rows", "columns", "splits_columns"},
    "cross_entropy_loss_grad": {"rows", "columns", "reduction", "wraps"},
    "moe_token_permute": {"tokens", "columns", "top_k", "copies.row_bytes"},
    "moe_token_permute_grad": {"hidden", "top_k"},
    "moe_token_unpermute": {"hidden", "top_k"},
    "moe_token_unpermute_grad": {"tokens", "top_k", "hidden", "rows", "ub_bytes"},
    "embedding_dense_backward": {
        "element_bytes",
        "tiling.block_dim",
        "tiling.rows",
        "tiling.dim",
        "tiling.num_weights",
        "tiling.scale_grad_by_freq",
        "tiling.small_dim.part_num",
        "tiling.out_index_workspace_length",
        "older.block_dim",
    },
}
"""Numbers of a tiling that equal an axis or another column. Sweeps record few numbers of the cube
models of a convolution."""


@pytest.mark.parametrize("operator", sorted(EQUAL_TO_ANOTHER_COLUMN))
def test_every_number_of_a_record_is_a_column_or_equals_another(operator):
    declaration = load_operator(operator)
    columns = {column.path.removeprefix("tiling.") for column in row_planner(declaration).columns}
    equal = EQUAL_TO_ANOTHER_COLUMN.get(operator, set())
    numbers = {
        column.path for column in table(declaration.tiling) if not column.path.endswith("status")
    }
    assert columns | equal >= numbers
    assert equal <= numbers - columns


def test_every_operator_is_swept():
    assert sorted(WIDE_GRIDS) == sorted(OPERATOR_NAMES)


@pytest.mark.long
@pytest.mark.parametrize("operator", sorted(WIDE_GRIDS))
def test_rows_equal_the_plan_of_a_single_call_and_its_check(operator):
    everywhere = {"product": "all", "soc": "all", "release": "all"}
    if operator.startswith("rotary"):  # not modelled on Atlas inference from release 9.0 on
        everywhere["product"] = "atlas_a2,atlas_a3,atlas_train"
    records = npu_sim.sweep(operator, {**WIDE_GRIDS[operator], **everywhere}, sample=3000, seed=7)
    assert mismatches(records, sampled_rows(100, len(records), seed=1)) == []
    assert np.count_nonzero(records["status"] == 0) > 300
    assert len(np.unique(records["status"])) >= 2


@pytest.mark.parametrize("operator", sorted(WIDE_GRIDS))
def test_the_arguments_of_a_call_can_be_read_back(operator):
    declaration = load_operator(operator)
    space = make_space(declaration, WIDE_GRIDS[operator], sample=200, seed=3)
    for row in range(space.rows):
        _, values = space.call_at(row)
        read, _ = read_call(declaration, arguments_of(declaration, call_with(declaration, values)))
        assert read.items() <= values.items() or 0 in values.values()


def test_the_last_axis_of_a_grid_varies_fastest(small):
    operator, grid, _ = small
    records = npu_sim.sweep(operator, {**grid, "product": "atlas_a2,atlas_train"})
    for row in sampled_rows(500, len(records)):
        expected = planned_record(records.space, records.columns, row)
        assert {name: records[name][row] for name in expected} == expected


def test_any_part_of_a_sweep_gives_the_same_records_alone(small):
    operator, grid, options = small
    full = npu_sim.sweep(operator, grid, **options)
    engine = LocalEngine(full.space, full.columns, threads=1)
    for first, count in ((0, 1), (13, 700), (len(full) - 5, 5), (4094, 3)):
        part = np.empty(count, engine.dtype)
        engine.fill(part, first)
        assert np.array_equal(part, np.asarray(full[first : first + count]))


@pytest.mark.parametrize("threads", [1, 3])
def test_results_do_not_depend_on_the_number_of_threads(small, threads):
    operator, grid, options = small
    assert np.array_equal(
        npu_sim.sweep(operator, grid, threads=threads, **options),
        npu_sim.sweep(operator, grid, **options),
    )


def test_records_are_a_structured_array_with_labels(small):
    operator, grid, options = small
    records = npu_sim.sweep(operator, grid, **options)
    assert isinstance(records, np.ndarray)
    assert set(records.dtype.names) == set(options["columns"])
    assert type(records["block_dim"]) is np.ndarray
    assert set(records.words("grad_dtype")) == {"float32", "bfloat16"}
    assert set(records.words("product")) == {"atlas_a2"}
    assert records[records["rows"] == 11]["dim"].max() == 30000
    columns = records.as_columns()
    assert all(column.flags.c_contiguous for column in columns.values())
    assert np.array_equal(columns["workspace_bytes"], records["workspace_bytes"])


def test_columns_are_as_narrow_as_their_bounds():
    declaration = load_operator("embedding_dense_backward")
    narrow = {
        column.name: column.dtype
        for column in record_columns(make_space(declaration, {"rows": "1..100"}))
    }
    wide = {
        column.name: column.dtype
        for column in record_columns(make_space(declaration, {"rows": [1, 2**40]}))
    }
    assert narrow["rows"] == np.int8
    assert wide["rows"] == np.int64
    assert "older_share" in wide
    assert "older_share" not in narrow  # EmbeddingDenseGrad cannot run on Atlas A2 with so few rows


def bounds_exceeded(space, row):
    """Names of the columns of a row whose values exceed their declared bounds."""
    operator, largest = space.operator, largest_values(space)
    record = planned_record(space, record_columns(space), row)
    bounds = {
        column.name: bound_of(operator, column.field, largest)
        for column in row_planner(operator).columns
        if column.name in record and column.field.bound != FP32_VALUE
    }
    return {name for name, bound in bounds.items() if bound and abs(record[name]) > bound}


def near_a_power(rng, top):
    """A size that is small or just below 2**7, 2**15 or 2**31."""
    power = 2 ** rng.choice((4, 7, 15, 31))
    return min(rng.randint(max(power - 20, 1), power), top)


@pytest.mark.parametrize("operator", every(4, sorted(WIDE_GRIDS)))
def test_no_number_exceeds_its_declared_bound(operator):
    """Every space is one call on few devices, so that the bounds are as tight as they get."""
    rng, declaration = random.Random(8), load_operator(operator)
    exceeded, spaces = set(), 0
    for _ in range(400):
        grid = {"product": rng.choice(("atlas_a2", "atlas_train", "all"))}
        for name, values in WIDE_GRIDS[operator].items():
            if values.endswith(":log"):
                top = int(values.removesuffix(":log").split("..")[1])
                grid[name] = near_a_power(rng, top)
            else:
                grid[name] = rng.choice(values.split(","))
        space = make_space(declaration, grid)
        try:
            exceeded |= bounds_exceeded(space, rng.randrange(space.rows))
            spaces += 1
        except npu_sim.UsageError:  # sizes whose products exceed 64 bits
            continue
    assert not exceeded
    assert spaces > 200


@pytest.mark.parametrize(
    ("operator", "axis"),
    [("rms_norm", "col"), ("rms_norm_grad", "col"), ("moe_token_permute", "hidden")],
)
def test_padded_rows_fit_their_column(operator, axis):
    """Padding takes a row of 120 elements to 128, which int8 does not hold."""
    space = make_space(load_operator(operator), {axis: "120..127"})
    columns = {column.name: column.dtype for column in record_columns(space)}
    assert columns[axis] == np.int8
    aligned = [
        planned_record(space, record_columns(space), row)["columns_aligned"]
        for row in range(space.rows)
    ]
    assert max(aligned) == 128 <= np.iinfo(columns["columns_aligned"]).max


@pytest.mark.long
@pytest.mark.parametrize("operator", ["rms_norm", "rms_norm_grad"])
def test_sweeps_of_rows_just_below_128_store_what_is_planned(operator):
    records = npu_sim.sweep(operator, {"col": "120..127"})
    assert mismatches(records, range(len(records))) == []


@pytest.mark.parametrize(
    ("options", "texts"),
    [
        ({"columns": ("block_dimm",)}, ("block_dimm", "block_dim")),
        ({"engine": "spark"}, ("spark", "local, dask")),
        ({"threads": 0}, ("threads",)),
        ({"sample": -1}, ("sample",)),
    ],
)
def test_invalid_options_are_named(small, options, texts):
    operator, grid, _ = small
    with pytest.raises(npu_sim.UsageError) as caught:
        npu_sim.sweep(operator, grid, **options)
    for word in texts:
        assert word in f"{caught.value.message} {caught.value.hint}"


def test_sizes_beyond_64_bits_are_refused():
    with pytest.raises(npu_sim.UsageError, match="beyond 64 bits"):
        npu_sim.sweep("embedding_dense_backward", {"num_weights": 2**40, "dim": 2**40})


BIG = "1,2097152,2147483648,1099511627776"
BEYOND_INT64 = {
    "rms_norm": {"row": BIG, "col": f"8,{BIG}", "dtype": "fp32,bf16"},
    "swi_glu": {"row": BIG, "col": BIG, "dtype": "fp32,bf16"},
    "add_rms_norm": {"row": BIG, "col": f"8,{BIG}", "outputs": "full,y_only", "dtype": "fp16"},
    "cross_entropy_loss_grad": {"N": BIG, "C": BIG},
    "swi_glu_grad": {"row": f"8589934592,{BIG}", "col": f"8589934592,{BIG}"},
    "rotary_position_embedding_grad": dict.fromkeys(
        ("x0", "x2", "cos0", "cos1", "dim"), "1,513,4096,8589934592"
    ),
}


@pytest.mark.parametrize("operator", every(3, BEYOND_INT64))
def test_rows_with_a_tensor_beyond_int64_are_refused_like_their_plans(operator):
    records = npu_sim.sweep(operator, BEYOND_INT64[operator])
    beyond = 0
    for row, status in enumerate(records["status"]):
        profile, values = records.space.call_at(row)
        call = plan_arguments(records.space.operator, values)
        try:
            npu_sim.plan(operator, product=profile, **call)
            planned = 0
        except npu_sim.AclnnError as error:
            planned = int(error.status)
        except npu_sim.UsageError:
            planned, beyond = UNCOUNTABLE, beyond + 1
        assert status == planned, values
    assert beyond == np.count_nonzero(records["status"] == UNCOUNTABLE)
    assert beyond
    _, different = run_sweep(operator, BEYOND_INT64[operator], check=len(records))
    assert different == []


def test_tensors_are_counted_where_a_row_may_have_too_many_bytes(small):
    operator, grid, _ = small
    assert not may_be_uncountable(make_space(load_operator(operator), grid))
    assert may_be_uncountable(make_space(load_operator("rms_norm"), BEYOND_INT64["rms_norm"]))


def test_spaces_can_be_pickled(small):
    operator, grid, options = small
    records = npu_sim.sweep(operator, grid, **options)
    space, columns = pickle.loads(pickle.dumps((records.space, records.columns)))
    assert space.fingerprint == records.space.fingerprint
    assert space.operator is records.space.operator
    assert columns == records.columns


@pytest.mark.long
def test_the_total_workspace_equals_the_specification_page():
    """Examples of the page ``workspace``: small dim with scale, sorted path, document sample."""
    columns = ("rows", "dim", "num_weights", "total_workspace_bytes")
    call = {"grad_dtype": "fp16", "indices_dtype": "int64", "rows": 1000, "num_weights": 5000}
    scaled = npu_sim.sweep(
        "embedding_dense_backward", {**call, "dim": 64, "scale_grad_by_freq": True}, columns=columns
    )
    wide = npu_sim.sweep("embedding_dense_backward", {**call, "dim": 1024}, columns=columns)
    sample = npu_sim.sweep(
        "embedding_dense_backward",
        {"indices_dtype": "int64", "rows": 2, "dim": 3, "num_weights": 4},
        columns=columns,
    )
    assert [records["total_workspace_bytes"].tolist() for records in (scaled, wide, sample)] == [
        [18338816],
        [41362944],
        [16778240],
    ]


def test_an_own_product_can_be_swept(small, tmp_path):
    from npu_sim.cores import config_directory

    operator, grid, options = small
    text = (config_directory() / "atlas_a2.yaml").read_text(encoding="utf-8")
    profile = tmp_path / "mine.yaml"
    profile.write_text(
        text.replace("name: atlas_a2", "name: mine").replace("ub_bytes: 196608", "ub_bytes: 98304"),
        encoding="utf-8",
    )
    records = npu_sim.sweep(operator, {**grid, "product": ["atlas_a2", str(profile)]}, **options)
    assert mismatches(records, sampled_rows(200, len(records), seed=2)) == []
    shipped, modified = np.split(records, 2)
    assert set(modified.words("product")) == {"mine"}
    assert not np.array_equal(shipped["workspace_bytes"], modified["workspace_bytes"])


@pytest.fixture
def sweep_uncached(tmp_path, monkeypatch):
    """Return a function that sweeps without compiled planners in memory; the cache starts empty."""
    monkeypatch.setenv("NPU_SIM_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compile, "fill_function", compile.fill_function.__wrapped__)

    def sweep(declaration):
        space = make_space(declaration, WIDE_GRIDS[declaration.name], sample=500, seed=3)
        out = np.empty(space.rows, record_dtype(record_columns(space)))
        with install_recorder("numba:run_pass") as passes:
            LocalEngine(space, record_columns(space), threads=1).fill(out, 0)
        return out, len(passes.buffer)

    return sweep


@pytest.mark.long
def test_planners_on_disk_belong_to_the_same_declaration(sweep_uncached):
    declaration = load_operator("moe_token_permute_grad")
    stricter = replace(
        declaration, checks=(*declaration.checks, Holds("hidden < 7", "permuted_output_grad"))
    )
    (first, compiled_first), (again, compiled_again) = (
        sweep_uncached(declaration),
        sweep_uncached(declaration),
    )
    assert compiled_first > 0
    assert compiled_again == 0
    assert again.tobytes() == first.tobytes()
    refused, _ = sweep_uncached(stricter)
    assert np.count_nonzero(refused["status"]) > np.count_nonzero(first["status"])


FACTORY = """
from dataclasses import replace
import npu_sim
from scale_rows import OPERATOR

TILE, TILING = OPERATOR.tile, OPERATOR.tiling

def limited(most):
    def tile(row, device, rules):
        tiling = TILE(row, device, rules)
        return TILING(tiling.status, most, tiling.core_rows, tiling.ub_rows, tiling.ub_bytes)
    return tile

for most in 1, 2:
    name = f"limited_to_{most}"
    npu_sim.register(replace(OPERATOR, name=name, title=name, tile=limited(most)))
    print(npu_sim.sweep(name, {"row": "512"})["block_dim"].tolist())
"""


def test_planners_that_one_function_makes_are_swept_apart(tmp_path):
    program = tmp_path / "factory.py"
    program.write_text(FACTORY)
    environment = {
        **os.environ,
        "NPU_SIM_CACHE_DIR": str(tmp_path / "cache"),
        "PYTHONPATH": os.pathsep.join((str(ROOT / "examples" / "own_operator"), str(ROOT))),
    }
    done = subprocess.run(
        [sys.executable, program], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[1]\n[2]\n"


def buffers(tiling):
    """A planner's function that reads a field of its own name."""
    return tiling.buffers


def test_a_function_that_reads_a_field_of_its_own_name_is_registered():
    assert make_jitable(buffers) is buffers
