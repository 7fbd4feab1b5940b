"""EmbeddingDenseBackward on data: accepted inputs, results, and refused calls."""

import ml_dtypes
import numpy as np
import pytest

import npu_sim
from npu_sim.cores import config_directory
from npu_sim.operators.shared.study import formula_results, study_call
from npu_sim.status import AclnnError, UsageError

OPERATOR = "embedding_dense_backward"
RNG = np.random.default_rng(11)
GRAD = RNG.standard_normal((60, 24)).astype(np.float32)
INDICES = RNG.integers(0, 30, 60, dtype=np.int32)
EXPECTED = npu_sim.embedding_dense_backward(GRAD, INDICES, num_weights=30)


def test_the_example_of_the_product_document():
    grad = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
    result = npu_sim.embedding_dense_backward(grad, np.array([1, 2]), num_weights=4, padding_idx=0)
    np.testing.assert_array_equal(result, [[0, 0, 0], [1, 2, 3], [4, 5, 6], [0, 0, 0]])


@pytest.mark.parametrize(
    "dtype", ["float32", "float16", "float64", "int32", "int64", "int16", "int8", "uint8"]
)
def test_index_dtypes_give_the_same_bits(dtype):
    np.testing.assert_array_equal(
        npu_sim.embedding_dense_backward(GRAD, INDICES.astype(dtype), num_weights=30), EXPECTED
    )


def test_bool_indices_are_zero_and_one():
    flags = INDICES > 14
    expected = npu_sim.embedding_dense_backward(GRAD, flags.astype(np.int32), num_weights=2)
    np.testing.assert_array_equal(
        npu_sim.embedding_dense_backward(GRAD, flags, num_weights=2), expected
    )


def test_fractional_indices_are_truncated_towards_zero():
    shifted = INDICES.astype(np.float32) + np.float32(0.75)
    np.testing.assert_array_equal(
        npu_sim.embedding_dense_backward(GRAD, shifted, num_weights=30), EXPECTED
    )
    np.testing.assert_array_equal(
        npu_sim.embedding_dense_backward(GRAD, np.full(60, -0.5), 30)[0], _sum_of_all()
    )


def _sum_of_all():
    return npu_sim.embedding_dense_backward(GRAD, np.zeros(60, np.int32), num_weights=30)[0]


@pytest.mark.parametrize(
    ("grad", "indices"),
    [
        (GRAD.reshape(3, 20, 24), INDICES.reshape(3, 20)),
        (GRAD.reshape(5, 3, 4, 24), INDICES.reshape(12, 5)),
        (np.asfortranarray(GRAD), INDICES),
        (np.repeat(GRAD, 2, axis=0)[::2], np.repeat(INDICES, 3)[::3]),
        (GRAD[::-1], INDICES[::-1]),
    ],
    ids=["rank 3", "other ranks", "column major", "strided", "reversed"],
)
def test_ranks_and_strides(grad, indices):
    rows, flat = (
        np.ascontiguousarray(grad).reshape(60, 24),
        np.ascontiguousarray(indices).reshape(60),
    )
    expected = npu_sim.embedding_dense_backward(rows, flat, num_weights=30)
    np.testing.assert_array_equal(
        npu_sim.embedding_dense_backward(grad, indices, num_weights=30), expected
    )


class ArrayInterface:
    """An object with the array interface that is not an ndarray."""

    def __init__(self, array):
        self._array = array
        self.__array_interface__ = array.__array_interface__


class Dlpack:
    """An object with DLPack only."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


@pytest.mark.parametrize("wrap", [ArrayInterface, Dlpack, lambda array: array.tolist()])
def test_anything_that_shares_memory_is_taken(wrap):
    grad = wrap(GRAD) if not isinstance(wrap(GRAD), list) else GRAD
    np.testing.assert_array_equal(
        npu_sim.embedding_dense_backward(grad, wrap(INDICES), num_weights=30), EXPECTED
    )


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_16_bit_results_are_the_fp32_sums_rounded_once(dtype):
    grad = GRAD.astype(dtype)
    wide = npu_sim.embedding_dense_backward(grad.astype(np.float32), INDICES, num_weights=30)
    np.testing.assert_array_equal(
        npu_sim.embedding_dense_backward(grad, INDICES, num_weights=30), wide.astype(dtype)
    )


def test_results_go_to_the_callers_array_strided_or_not():
    for out in (np.empty((30, 24), np.float32), np.empty((24, 30), np.float32).T):
        assert npu_sim.embedding_dense_backward(
            GRAD, INDICES, num_weights=30, out=out
        ) is out or np.shares_memory(
            npu_sim.embedding_dense_backward(GRAD, INDICES, num_weights=30, out=out), out
        )
        np.testing.assert_array_equal(out, EXPECTED)


@pytest.mark.parametrize(
    ("position", "value", "dtype"),
    [
        (0, 30, "int32"),
        (17, -1, "int64"),
        (59, np.nan, "float32"),
        (5, np.inf, "float64"),
        (3, 2**40, "int64"),
    ],
)
def test_an_index_out_of_range_is_named_and_nothing_is_written(position, value, dtype):
    indices, out = INDICES.astype(dtype), np.full((30, 24), 7, np.float32)
    indices[position] = value
    with pytest.raises(AclnnError) as refused:
        npu_sim.embedding_dense_backward(GRAD, indices, num_weights=30, out=out)
    assert int(refused.value.status) == 361001
    assert f"indices[{position}] = {indices[position]}" in refused.value.message
    assert np.all(out == 7)


@pytest.mark.parametrize(
    ("out", "says"),
    [
        (np.empty((30, 23), np.float32), "30x23:fp32"),
        (np.empty((30, 24), np.float16), "30x24:fp16"),
        (GRAD[:30], "shares memory with grad"),
    ],
)
def test_an_unfit_output_array_is_refused(out, says):
    with pytest.raises(UsageError, match=says):
        npu_sim.embedding_dense_backward(GRAD, INDICES, num_weights=30, out=out)


def test_empty_tensors_give_zeros():
    assert not npu_sim.embedding_dense_backward(
        np.empty((0, 5), np.float32), np.empty(0, np.int32), num_weights=4
    ).any()
    assert npu_sim.embedding_dense_backward(
        np.empty((3, 0), np.float32), np.zeros(3, np.int32), num_weights=4
    ).shape == (4, 0)


@pytest.mark.parametrize(
    "call",
    [
        {},
        {"deterministic": True},
        {"scale_grad_by_freq": True},
        {"core_order": "random", "seed": 3},
    ],
)
def test_a_made_up_chip_computes(tmp_path, call):
    text = (config_directory() / "atlas_a2.yaml").read_text(encoding="utf-8")
    text = text.replace("vector_core_count: 48", "vector_core_count: 7", 1).replace(
        "  ub_bytes: 196608", "  ub_bytes: 65536"
    )
    path = tmp_path / "seven.yaml"
    path.write_text(text, encoding="utf-8")
    options = {"grad": GRAD, "indices": INDICES, "num_weights": 30, "product": str(path), **call}
    result = npu_sim.run(OPERATOR, **options)
    assert result.plan.block_dim == 7
    described = study_call(OPERATOR, options)
    golden = formula_results(OPERATOR, described.arguments, described.tensors)["grad_weight"]
    np.testing.assert_allclose(result.outputs["grad_weight"], golden, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "option",
    [
        {"core_order": "backwards"},
        {"seed": -1},
        {"limits": "none"},
        {"deterministic": 1},
        {"colour": 3},
    ],
)
def test_a_bad_option_is_refused_by_name(option):
    with pytest.raises(UsageError) as refused:
        npu_sim.run(OPERATOR, grad=GRAD, indices=INDICES, num_weights=30, **option)
    assert refused.value.argument == next(iter(option))
