"""Formats against ml_dtypes and NumPy, dtype names, and the text form of a tensor."""

import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu_sim.numbers.formats import (
    DTYPES,
    FORMATS,
    SHORT_NAMES,
    TensorSpec,
    canonical_dtype,
    itemsize,
    numpy_dtype,
)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32"])
def test_format_agrees_with_ml_dtypes(name):
    ours, theirs = FORMATS[name], ml_dtypes.finfo(numpy_dtype(name))
    assert (ours.bits, ours.mantissa_bits, ours.exponent_bits) == (
        theirs.bits,
        theirs.nmant,
        theirs.nexp,
    )
    assert ours.itemsize == theirs.dtype.itemsize
    assert ours.largest_finite == float(theirs.max)
    assert ours.smallest_normal == float(theirs.smallest_normal)
    assert ours.smallest_subnormal == float(theirs.smallest_subnormal)
    assert ours.epsilon == float(theirs.eps)


def test_hf32_is_float32_without_the_low_twelve_bits():
    hf32, bits = (
        FORMATS["hf32"],
        np.array([0x7F7F_F000, 0x0080_0000, 0x0000_1000, 0x3F80_1000], np.uint32),
    )
    largest, normal, subnormal, after_one = bits.view(np.float32).tolist()
    assert (hf32.largest_finite, hf32.smallest_normal, hf32.smallest_subnormal) == (
        largest,
        normal,
        subnormal,
    )
    assert hf32.epsilon == after_one - 1
    assert hf32.bits == 1 + hf32.exponent_bits + hf32.mantissa_bits == 32 - 12


@pytest.mark.parametrize("name", DTYPES)
def test_every_way_to_write_a_dtype(name):
    dtype = numpy_dtype(name)
    for written in (
        name,
        name.upper(),
        SHORT_NAMES[name],
        dtype,
        dtype.type,
        dtype.newbyteorder(),
        f"torch.{name}",
    ):
        assert canonical_dtype(written) == name
    assert itemsize(name) == itemsize(SHORT_NAMES[name]) == dtype.itemsize
    assert dtype.name == name


ALIASES = {
    "half": "float16",
    "float": "float32",
    "double": "float64",
    "bool_": "bool",
    "i32": "int32",
    "u8": "uint8",
}
ALIASES |= {"int": "int32", "long": "int64", float: "float64", int: "int64", " BF16 ": "bfloat16"}


@pytest.mark.parametrize(("written", "name"), ALIASES.items())
def test_alias(written, name):
    assert canonical_dtype(written) == name


@pytest.mark.parametrize(
    "written", ["fp8", "", "uint16", np.uint32, complex, object, None, "hf32", dict]
)
def test_unknown_dtype_lists_what_is_allowed(written):
    with pytest.raises(ValueError, match=r"allowed are fp16 .*bf16 .*int32.*bool"):
        canonical_dtype(written)


def test_saved_bfloat16_is_explained(tmp_path):
    np.save(tmp_path / "gradient.npy", np.ones(3, ml_dtypes.bfloat16))
    with pytest.raises(ValueError, match="view the array as"):
        canonical_dtype(np.load(tmp_path / "gradient.npy").dtype)


def test_hf32_is_stored_as_float32():
    assert numpy_dtype("hf32") == np.float32
    assert itemsize("hf32") == 4


@pytest.mark.parametrize(
    ("text", "shape", "dtype", "nbytes", "again"),
    [
        ("4096x512:bf16", (4096, 512), "bfloat16", 4194304, "4096x512:bf16"),
        ("4096:int32", (4096,), "int32", 16384, "4096:int32"),
        ("scalar:fp32", (), "float32", 4, "scalar:fp32"),
        (":half", (), "float16", 2, "scalar:fp16"),
        ("0x3:i64", (0, 3), "int64", 0, "0x3:int64"),
        (" 2X3 : float ", (2, 3), "float32", 24, "2x3:fp32"),
    ],
)
def test_parse(text, shape, dtype, nbytes, again):
    spec = TensorSpec.parse(text)
    assert (spec.shape, spec.dtype, spec.rank, spec.nbytes) == (shape, dtype, len(shape), nbytes)
    assert spec.contiguous
    assert spec.storage_format == "ND"
    assert str(spec) == again


sizes = st.lists(st.integers(0, 2**40), max_size=8).map(tuple)


@given(
    st.builds(
        TensorSpec,
        sizes,
        st.sampled_from(DTYPES),
        st.booleans(),
        st.sampled_from(["ND", "NCL", "NC1HWC0"]),
    )
)
def test_text_form_loses_nothing(spec):
    assert TensorSpec.parse(str(spec)) == spec
    assert spec.nbytes == spec.numel * numpy_dtype(spec.dtype).itemsize


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("4096x512", "no dtype"),
        ("4x-1:fp32", "size '-1'"),
        ("4xx2:fp32", "size ''"),
        ("4x2.5:fp32", "size '2.5'"),
        ("2:fp31", "unknown dtype 'fp31'"),
        ("2:", "unknown dtype ''"),
        ("2:fp32:NCL:ND", "storage format"),
        ("", "no dtype"),
    ],
)
def test_parse_error_names_the_part_and_the_right_form(text, reason):
    with pytest.raises(ValueError, match=reason) as caught:
        TensorSpec.parse(text)
    assert repr(text) in str(caught.value)
    assert "4096x512:bf16" in str(caught.value)


def test_constructor_normalises():
    spec = TensorSpec([np.int64(2), 3], np.float16, storage_format="nd")
    assert spec == TensorSpec((2, 3), "fp16")
    assert hash(spec) == hash(TensorSpec((2, 3), "fp16"))
    assert all(type(size) is int for size in spec.shape)


@pytest.mark.parametrize("shape", [(-1,), (2.0,), 3, ("4",), None])
def test_constructor_refuses_what_is_no_shape(shape):
    with pytest.raises(ValueError, match="shape"):
        TensorSpec(shape, "fp32")


@pytest.mark.parametrize("name", DTYPES)
def test_spec_of_an_array(name):
    array = np.zeros((4, 6), numpy_dtype(name))
    assert TensorSpec.of(array) == TensorSpec((4, 6), name)
    assert TensorSpec.of(array[:, ::2]) == TensorSpec((4, 3), name, contiguous=False)
    assert TensorSpec.of(array.T) == TensorSpec((6, 4), name, contiguous=False)
    assert TensorSpec.of(array[0, 0]) == TensorSpec((), name)


def test_import_is_cheap():
    heavy = (
        "import npu_sim.numbers.formats, sys; "
        "print({'numba', 'ml_dtypes', 'pydantic'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", heavy], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "set()"), done.stderr
