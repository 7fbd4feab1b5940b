"""Tensor files: read without PyTorch, without a device, and without running code."""

import io
import os
import pickle
import zipfile
from typing import NamedTuple

import numpy as np
import pytest

from npu_sim import UsageError
from npu_sim.numbers.formats import numpy_dtype
from npu_sim.tools.dumps.msprobe import read_dumped_tensor


class Global(NamedTuple):
    """Pickled as a name of a module that need not be installed."""

    module: str
    name: str


class Pickler(pickle._Pickler):
    """Writes a :class:`Global` as its name, and a storage as torch.save does."""

    def save(self, found, save_persistent_id=True):
        if isinstance(found, Global):
            self.write(pickle.GLOBAL + f"{found.module}\n{found.name}\n".encode())
        else:
            super().save(found, save_persistent_id)

    def persistent_id(self, found):
        return found if isinstance(found, tuple) and found[:1] == ("storage",) else None


def tensor_call(
    values, storage, shape=None, function=("torch._utils", "_rebuild_tensor_v2"), more=()
):
    """Return a pickle that describes a tensor as PyTorch does."""
    shape = values.shape if shape is None else shape
    strides = tuple(int(np.prod(shape[axis + 1 :])) for axis in range(len(shape)))
    described = ("storage", Global("torch", storage), "0", "npu:0", values.size)
    buffer = io.BytesIO()
    pickler = Pickler(buffer, 2)
    pickler.write(pickle.PROTO + b"\x02")
    pickler.save(Global(*function))
    pickler.save((described, 0, shape, strides, False, None, *more))
    pickler.write(pickle.REDUCE + pickle.STOP)
    return buffer.getvalue()


def write(path, described, data, compression=zipfile.ZIP_STORED, **members):
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("archive/data.pkl", described)
        archive.writestr("archive/data/0", data)
        for name, content in members.items():
            archive.writestr(f"archive/{name}", content)
    return path


VALUES = np.arange(12, dtype=np.float32).reshape(3, 4) - 5


@pytest.mark.parametrize(
    ("dtype", "storage"),
    [
        ("float32", "FloatStorage"),
        ("float16", "HalfStorage"),
        ("bfloat16", "BFloat16Storage"),
        ("int64", "LongStorage"),
        ("int32", "IntStorage"),
        ("bool", "BoolStorage"),
    ],
)
def test_a_tensor_of_a_device_is_read_without_it(tmp_path, dtype, storage):
    values = VALUES.astype(numpy_dtype(dtype))
    path = write(tmp_path / "t.pt", tensor_call(values, storage), values.tobytes())
    found = read_dumped_tensor(path)
    assert found.dtype == values.dtype
    assert found.tobytes() == values.tobytes()


def test_a_tensor_of_old_torch_npu_is_read(tmp_path):
    function = ("torch_npu.utils.storage", "_rebuild_npu_tensor")
    described = tensor_call(VALUES, "FloatStorage", function=function, more=((2, (3, 4)),))
    path = write(tmp_path / "t.pt", described, VALUES.tobytes())
    assert np.array_equal(read_dumped_tensor(path), VALUES)


def test_files_of_pytorch_itself_are_read(tmp_path):
    torch = pytest.importorskip("torch")
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        tensor = torch.arange(12).reshape(3, 4).to(dtype)
        torch.save(tensor.T, tmp_path / "t.pt")
        found = read_dumped_tensor(tmp_path / "t.pt")
        assert np.array_equal(found.astype(np.float64), tensor.T.to(torch.float64).numpy())


def test_code_in_a_pickle_is_not_run(tmp_path):
    class Harmful:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "made"),)

    path = write(tmp_path / "t.pt", pickle.dumps(Harmful(), 2), b"")
    with pytest.raises(UsageError, match="which is not loaded"):
        read_dumped_tensor(path)
    assert not (tmp_path / "made").exists()


OLD_NPU = b"\x80\x02ctorch_npu.utils.storage\n_rebuild_npu_tensor\n"


@pytest.mark.parametrize(
    ("described", "data", "members"),
    [
        (b"", VALUES.tobytes(), {}),
        (pickle.dumps([1, 2]), VALUES.tobytes(), {}),
        (tensor_call(VALUES, "FloatStorage"), VALUES.tobytes()[:-1], {}),
        (tensor_call(VALUES, "FloatStorage"), VALUES.tobytes(), {"byteorder": b"big"}),
        (tensor_call(VALUES, "FloatStorage", (3, 5)), VALUES.tobytes(), {}),
        (tensor_call(VALUES, "FloatStorage", (10**9,)), VALUES.tobytes(), {}),
        (tensor_call(VALUES, "QuantizedStorage"), VALUES.tobytes(), {}),
        # an index of 2^31 - 1 in the memo, for which the C unpickler allocates 16 GiB
        (b"\x80\x02Nr\xff\xff\xff\x7f.", b"", {}),
        (b"\x80\x02" + b"(" * 60000, b"", {}),
        (b"x" * (1 << 17), b"", {}),
        # tuples of tuples, each used twice, by the opcode DUP and by the memo; a list of itself
        (OLD_NPU + b"(K\x01)" + b"2\x86" * 60 + b"tR.", b"", {}),
        (OLD_NPU + b"(K\x01)" + b"q\x00h\x00\x86" * 60 + b"tR.", b"", {}),
        (b"\x80\x02}(" + b")" + b"q\x00h\x00\x86" * 60 + b"K\x01u.", b"", {}),
        (b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(K\x01K\x00]q\x00h\x00a)tR.", b"", {}),
        # an attribute of the function that rebuilds a tensor
        (b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n}X\x01\x00\x00\x00aK\x01sb.", b"", {}),
    ],
)
def test_damaged_files_are_errors(tmp_path, described, data, members):
    path = write(tmp_path / "t.pt", described, data, **members)
    with pytest.raises(UsageError, match=r"t\.pt: is not a tensor file"):
        read_dumped_tensor(path)


def test_compressed_data_is_an_error(tmp_path):
    described, data = tensor_call(np.zeros(1 << 16, np.float32), "FloatStorage"), bytes(1 << 18)
    path = write(tmp_path / "t.pt", described, data, zipfile.ZIP_DEFLATED)
    with pytest.raises(UsageError, match="compressed"):
        read_dumped_tensor(path)


def test_other_files_are_errors(tmp_path):
    (tmp_path / "t.pt").write_bytes(b"no archive")
    with pytest.raises(UsageError, match="is not a tensor file"):
        read_dumped_tensor(tmp_path / "t.pt")
    with pytest.raises(UsageError, match="cannot be read"):
        read_dumped_tensor(tmp_path / "missing.pt")
