"""Exception dumps of our own making, by the layout of specification page ``adump``."""

import struct
from contextlib import suppress

import numpy as np
import pytest

from npu_sim import UsageError, diagnose, plan
from npu_sim.framework.planning import tiling_bytes
from npu_sim.tools.failures.device_exceptions import HEADER_BYTES, MOST_TENSORS, TILING
from tests.cli.runner import npu_sim
from tests.tools.failures.test_diagnosis import CALL, device_log

ATOMIC_INDEX = struct.pack("<Q", 0xA5A5A5A500000003)
FLOAT, BFLOAT16 = 1, 27


def varint(number):
    data = bytearray()
    while number >= 0x80:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*data, number])


def field(number, value):
    """A field of a protobuf message: an integer, a text or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def tensor(size, size_field=5, dtype=0, shape=(), **more):
    numbers = {"argument": 10, "kind": 11}
    message = field(1, dtype) + field(3, field(1, b"".join(map(varint, shape))))
    message += field(size_field, size)
    return message + b"".join(field(numbers[name], value) for name, value in more.items())


def dump_file(path, inputs, outputs=(), message="", operator="aclnnRmsNormGrad_0_L0"):
    """Write a dump; ``inputs`` and ``outputs`` are messages with the bytes of their data."""
    header = field(1, "2.0") + field(2, 1772619072100200) + field(6, operator)
    header += b"".join(field(4, message) for message, _ in inputs)
    header += b"".join(field(3, message) for message, _ in outputs)
    header += field(9, message) + field(77, 5) + varint(78 << 3 | 5) + bytes(4)  # newer fields
    data = b"".join(content for _, content in (*inputs, *outputs))
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)
    return path


@pytest.fixture
def planned():
    return plan("rms_norm_grad", **CALL)


def rms_norm_grad_dump(path, planned, **more):
    """A dump with dy, the tiling structure with its atomic index, and dx."""
    values = np.zeros(64 * 4096, np.uint16).tobytes()
    tiling = tiling_bytes(planned) + ATOMIC_INDEX
    return dump_file(
        path,
        [
            (tensor(len(values), dtype=BFLOAT16, shape=(64, 4096), argument=0, kind=2), values),
            (tensor(len(tiling), argument=6, kind=TILING), tiling),
        ],
        [(tensor(len(values), 6, BFLOAT16, (64, 4096)), values)],
        **more,
    )


@pytest.mark.parametrize(
    "name", ["exception_info.42.1.1726159207469285", "node.RmsNormGradAiCore.1.20250508095618530"]
)
def test_the_tiling_of_a_dump_is_decoded_into_named_fields(tmp_path, planned, name):
    path = rms_norm_grad_dump(tmp_path / name, planned, message=device_log(planned))
    answer = diagnose(path, **CALL)
    assert (answer.operator, answer.blamed, answer.stage) == ("rms_norm_grad", True, "device")
    assert answer.tiling == planned.tiling
    assert answer.impossible == ()
    dumped = answer.exception["dump"]
    assert (dumped["version"], dumped["time"]) == ("2.0", "2026-03-04T10:11:12.100200")
    assert [
        (one["role"], one["dtype"], tuple(one["shape"]), one["bytes"], one["argument"])
        for one in dumped["tensors"]
    ] == [
        ("input", "bfloat16", (64, 4096), 2 * 64 * 4096, 0),
        ("tiling", "", (), len(tiling_bytes(planned)) + 8, 6),
        ("output", "bfloat16", (64, 4096), 2 * 64 * 4096, None),
    ]


@pytest.mark.parametrize(
    ("name", "operator"),
    [
        ("exception_info.1.2.3", "RmsNormGrad"),
        ("exception_info.1.2.3", "aclnnRmsNormGrad_0_L0.RmsNormGradAiCore"),
        ("aclnnRmsNormGrad_0_L0.RmsNormGradAiCore.1.2025", "x"),
    ],
)
def test_the_kernel_is_named_by_the_header_or_the_file_without_log_lines(
    tmp_path, planned, name, operator
):
    answer = diagnose(rms_norm_grad_dump(tmp_path / name, planned, operator=operator))
    assert (answer.operator, answer.blamed, answer.kernel) == ("rms_norm_grad", True, "RmsNormGrad")
    assert answer.tiling == planned.tiling


def test_a_dump_is_held_against_the_plan_of_the_call(tmp_path, planned):
    path = rms_norm_grad_dump(tmp_path / "exception_info.1.2.3", planned, operator="RmsNormGrad")
    answer = diagnose(path, dy="65x4096:bf16", gamma="4096:bf16")
    assert "row is 64, the plan of the call has 65" in answer.impossible


def test_a_dump_of_another_kernel_has_no_named_fields(tmp_path):
    path = dump_file(tmp_path / "exception_info.1.2.3", [(tensor(8, kind=TILING), bytes(8))])
    answer = diagnose(path)
    assert (answer.stage, answer.tiling) == ("device", {})


def header_of(length, content=b""):
    return struct.pack("<Q", length) + content


def cut(tensors):
    return header_of(len(tensors), tensors)


DAMAGED = {
    "one byte": b"\x01",
    "nothing": b"",
    "a header beyond the file": header_of(500, bytes(20)),
    "a huge header": header_of(2**63, bytes(20)),
    "a number cut off": cut(b"\x0a\xff"),
    "a number of eleven bytes": cut(b"\xff" * 11),
    "a field cut off": cut(b"\x0a\x7f2.0"),
    "a field of the wire type of groups": cut(b"\x0b\x0c"),
    "data beyond the file": cut(field(4, tensor(10**18))),
    "an output beyond the file": cut(field(3, tensor(9, 6)) + bytes(0)) + bytes(8),
    "a damaged tensor": cut(field(4, b"\x1a\x7f")),
    "too many tensors": cut(field(4, b"") * (MOST_TENSORS + 1)),
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=list(DAMAGED))
def test_a_damaged_dump_is_an_error(tmp_path, content):
    path = tmp_path / "exception_info.1.2.3"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="is not an exception dump") as error:
        diagnose(path)
    assert error.value.argument == "file"


def test_a_header_larger_than_any_is_not_read(tmp_path):
    path = tmp_path / "exception_info.1.2.3"
    with path.open("wb") as file:
        file.write(header_of(HEADER_BYTES + 1))
        file.truncate(1 << 34)  # sparse
    with pytest.raises(UsageError, match="is not an exception dump"):
        diagnose(path)


def test_truncated_and_changed_dumps_are_read_or_refused(tmp_path, planned):
    path = rms_norm_grad_dump(tmp_path / "exception_info.1.2.3", planned)
    content, random = path.read_bytes(), np.random.default_rng(0)
    for _ in range(300):
        changed = bytearray(content[: random.integers(1, 400)])
        changed[random.integers(len(changed))] = random.integers(256)
        path.write_bytes(changed)
        with suppress(UsageError):
            diagnose(path)


def test_the_command_reads_a_dump(capsys, monkeypatch, tmp_path, planned):
    path = rms_norm_grad_dump(tmp_path / "exception_info.1.2.3", planned, operator="RmsNormGrad")
    shown = npu_sim(capsys, monkeypatch, "diagnose", path)
    assert shown.code == 0
    assert "input bfloat16 64x4096: 524288 bytes" in shown.out
    assert "row = 64" in shown.out
    path.write_bytes(b"\x01")
    assert npu_sim(capsys, monkeypatch, "diagnose", path).code == 64
