"""Device exceptions of the product: their block in a plog, and their dump files (adump).

The block names kernel, arguments and tiling. A dump file is the length of its header (8 bytes,
little-endian), the header (a protobuf message ``DumpData``), and the bytes of all inputs, outputs
and workspaces one after another. Only the header and the tiling structure, which is one of the
inputs, are read.

Source: specification pages ``plog`` ("The block of one exception", "Cutting the words") and
``adump``, whose layout comes from public sources; no public example file was found to test it on.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO, Any, NamedTuple

from npu_sim.files.reading import open_plain
from npu_sim.language import Text
from npu_sim.numbers.arrays import Shape
from npu_sim.status import UsageError
from npu_sim.tiling import ATOMIC_INDEX, WORD_BYTES

MOST_WORDS = 1 << 14
"""Maximum number of 64-bit words of the arguments of an exception."""
HEAD = re.compile(r"\[[A-Z]{1,20}\] (?P<module>[A-Z]{1,40})\((?P<pid>\d{1,20}),[^)]{0,200}\):")
KERNEL_NAME = re.compile(
    r"(?P<op>[A-Za-z]\w{0,200}?)_(?P<hash>[0-9a-f]{32})"
    r"(?:_(?P<mode>high_performance|high_precision))?"
    r"(?:_(?P<key>\d{1,20}))?(?:_(?P<mix>mix_ai[cv]))?$"
)
NUMBER = r"(?:0x[0-9a-fA-F]{1,16}|[0-9]{1,20})"
FACTS = tuple(
    (key, re.compile(pattern))
    for key, pattern in (
        ("device", r"(?:from|on the) device\((?P<device>[^)]{1,80})\)"),
        (
            "there is an",
            r"there is an? (?P<exception>[^,]{1,80}), core id is (?P<core_id>\d{1,9})\b",
        ),
        ("the error is", r"the error is (?P<error>[^,]{1,80}), core id is (?P<core_id>\d{1,9})\b"),
        ("dump info", rf"error code = (?P<error_code>{NUMBER}), dump info"),
        ("pc start", rf"pc start: (?P<pc_start>{NUMBER}), current: (?P<pc_current>{NUMBER})"),
        ("para base", rf"para base: (?P<para_base>{NUMBER})\b"),
        ("errcode:(", r"errcode:(?P<errcode>\([^)]{1,80}\))"),
        ("errorStr:", r"errorStr: (?P<error_string>[^.]{1,200})\."),
        ("kernel_name", r"fault kernel_name ?= ?(?P<fault_kernel_name>[\w./-]{0,299}\w)"),
        ("tilingKey", r"tilingKey = (?P<tiling_key>\d{1,20})"),
        ("totalLen", r"totalLen=\((?P<total_words>\d{1,9})\*8\)"),
        ("argsSize", r"argsSize=(?P<args_size>\d{1,9})"),
        ("schemMode", r"schemMode=(?P<schem_mode>\d{1,9})"),
        ("blockDim", r"blockDim=(?P<block_dim>\d{1,9})"),
    )
)
"""Facts of an exception: literal text of the line, and pattern; the first value holds."""
INTEGER_FACTS = ("core_id", "tiling_key", "total_words", "args_size", "schem_mode", "block_dim")
WORDS = re.compile(r"args\(\d{1,9} to \d{1,9}\) after execute:")
WORD = re.compile(rf"\b{NUMBER}\b")


@dataclass
class ExceptionLog:
    """Facts and arguments (64-bit words) of one exception while its lines are read."""

    facts: dict[str, Any] = field(default_factory=dict)
    words: list[int] = field(default_factory=list)
    ended: bool = False

    def read(self, line: str, module: str) -> None:
        """Add the facts of one line."""
        for key, pattern in FACTS:
            if key in line and (found := pattern.search(line)):
                for name, value in found.groupdict().items():
                    self.facts.setdefault(name, int(value) if name in INTEGER_FACTS else value)
        if "tilingKey" in line or "args print end" in line:
            self.ended = self.ended or bool(self.words)
        elif not self.ended and module != "IDEDD" and (found := WORDS.search(line)):
            given = WORD.findall(line, found.end())
            self.words += [_integer(word) for word in given[: MOST_WORDS - len(self.words)]]

    def as_dict(self) -> dict[str, Any] | None:
        """Return the exception as plain data; None when there was none."""
        facts = self.facts
        if not {"exception", "error", "fault_kernel_name", "tiling_key"} & facts.keys():
            return None
        answer = {**dict.fromkeys(("tiling_key", "schem_mode", "block_dim")), **facts}
        if error := answer.pop("error", None):  # the wording of newer runtimes
            answer.setdefault("exception", f"exception of {error}")
        if name := facts.get("fault_kernel_name"):
            answer["kernel_name_parts"] = parts_of_name(name)
        if "pc_start" in facts:
            start, current = (_integer(facts[name]) for name in ("pc_start", "pc_current"))
            answer["pc_offset"] = hex(current - start) if current >= start else None
        return {**answer, "words_found": len(self.words), **self._tiling()}

    def _tiling(self) -> dict[str, Any]:
        """Return which 64-bit words are the tiling structure; empty if it cannot be located."""
        base = _integer(self.facts.get("para_base", "0"))
        words = self.words[: self.facts.get("total_words", MOST_WORDS)]
        end = base + WORD_BYTES * len(words)
        targets = [
            {"word": index, "points_to_word": (word - base) // WORD_BYTES}
            for index, word in enumerate(words)
            if base and base < word < end
        ]
        answer: dict[str, Any] = {"words_pointing_into_args": targets}
        if not targets:
            return answer
        first = min(targets, key=lambda target: target["points_to_word"])
        start = first["points_to_word"]
        later = [target["points_to_word"] for target in targets if target["points_to_word"] > start]
        stop = min(later, default=len(words))
        answer |= {
            "tiling_pointer_word": first["word"],
            "tiling_first_word": start,
            "tiling_end_word": stop,
        }
        for index in range(start, stop):
            if words[index] >> 32 == ATOMIC_INDEX:
                answer |= {"atomic_index_word": index, "atomic_index": words[index] & 0xFFFFFFFF}
                stop = index
                break
        return answer | {
            "tiling_bytes": WORD_BYTES * (stop - start),
            "tiling_words_hex": [hex(word) for word in words[start:stop]],
        }


def _integer(text: str) -> int:
    """Return the value of a `NUMBER`; as many of its bits as a word has."""
    return int(text, 16 if text.startswith("0x") else 10) & 0xFFFF_FFFF_FFFF_FFFF


def parts_of_name(name: str) -> dict[str, str]:
    """Return operator type, hash, mode, key and mix of a kernel's name; empty for other names."""
    found = KERNEL_NAME.match(name)
    return {} if found is None else {k: v for k, v in found.groupdict().items() if v is not None}


# --- Dump files ---

HEADER_BYTES = 1 << 22
"""Largest header that is read; it has a few thousand bytes and the log lines of the exception."""
MOST_TENSORS = 1 << 12
"""Maximum number of inputs and outputs."""
TILING_BYTES = 1 << 16
"""Largest tiling structure that is read."""
TILING = 7
"""``input_type`` of the tiling structure."""
DTYPES = {
    1: "float32",
    2: "float16",
    3: "int8",
    4: "uint8",
    6: "uint16",
    7: "int32",
    8: "int64",
    9: "uint32",
    10: "uint64",
    11: "bool",
    12: "float64",
    27: "bfloat16",
}
"""``data_type`` of a tensor; 0, undefined, is usual in dumps of aclnn calls."""
ROLES = {3: "output", 4: "input"}
"""Fields of ``DumpData`` with tensors."""
SIZE_FIELD = {"output": 6, "input": 5}
"""Field of a tensor with the bytes of its data, by role."""
HINT = "give the file that the product wrote, unchanged"
TEXT_HINT = "name a text file, or - for standard input"


class DumpedMemory(NamedTuple):
    """An input or output of the kernel, as the header describes it."""

    role: str
    """``input``, ``output`` or ``tiling``."""
    dtype: str
    """Canonical dtype; empty if undefined."""
    shape: Shape
    bytes: int
    """Bytes of its data."""
    argument: int | None
    """Position of an input among the kernel's arguments; None for outputs."""


class ExceptionDump(NamedTuple):
    """Header of an exception dump, and its tiling structure."""

    name: str
    """Name of the file."""
    version: str
    """Version of the format."""
    time: str
    """Time of the dump in UTC, ISO 8601."""
    operator: str
    """The header's ``op_name``."""
    message: str
    """Lines of plog about the exception."""
    tensors: tuple[DumpedMemory, ...]
    """Inputs and then outputs, in the order of their data."""
    tiling: bytes
    """The tiling structure, padded to 64-bit words; empty without one."""

    @property
    def kernel_types(self) -> tuple[str, ...]:
        """Names that may be the kernel's: parts of the operator's name and of the file's."""
        parts = f"{self.operator}.{self.name}".replace("/", ".").split(".")
        return tuple(part.removesuffix("AiCore") for part in parts)

    def as_dict(self) -> dict[str, Any]:
        """Return what the header states, as plain data."""
        return {
            "version": self.version,
            "time": self.time,
            "op_name": self.operator,
            "tensors": [tensor._asdict() for tensor in self.tensors],
        }


def is_exception_dump(path: Path) -> bool:
    """Return whether a file is an exception dump, by its name or its first bytes.

    The upper half of a header's length is 0, the first bytes of a text are not.
    """
    if path.name.startswith("exception_info."):
        return True
    with open_plain("file", path, TEXT_HINT) as file:
        return file.read(WORD_BYTES)[4:] == bytes(4)


def read_exception_dump(path: Path) -> ExceptionDump:
    """Return the header and the tiling structure of an exception dump.

    Raises
    ------
    UsageError
        When the file is shorter than its header states, or the header is damaged.
    """
    with open_plain("file", path, HINT) as file:
        try:
            return _read(path.name, file)
        except ValueError as error:
            raise UsageError(
                "file", "{path} is not an exception dump: {error}", HINT, path=path, error=error
            ) from None


def _read(name: str, file: IO[bytes]) -> ExceptionDump:
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(file.read(WORD_BYTES), "little")
    if length > min(size - WORD_BYTES, HEADER_BYTES):
        raise ValueError(
            Text("a header of {length} bytes in a file of {size}", length=length, size=size)
        )
    values: dict[int, Any] = {}
    tensors: dict[str, list[DumpedMemory]] = {"input": [], "output": []}
    for number, value in _fields(file.read(length)):
        if number in ROLES and isinstance(value, bytes):
            tensors[ROLES[number]].append(_tensor(ROLES[number], value))
        else:
            values[number] = value
        if len(tensors["input"]) + len(tensors["output"]) > MOST_TENSORS:
            raise ValueError(Text("more than {most} tensors", most=MOST_TENSORS))
    all_tensors = (*tensors["input"], *tensors["output"])
    tiling, offset = b"", WORD_BYTES + length
    for tensor in all_tensors:
        if offset + tensor.bytes > size:
            raise ValueError(
                Text(
                    "the data of the {role} at byte {offset} has {bytes} bytes, the file {size}",
                    role=tensor.role,
                    offset=offset,
                    bytes=tensor.bytes,
                    size=size,
                )
            )
        if tensor.role == "tiling" and not tiling:
            file.seek(offset)
            tiling = file.read(min(tensor.bytes, TILING_BYTES))
        offset += tensor.bytes
    return ExceptionDump(
        name=name,
        version=_text(values.get(1)),
        time=_time(_number(values.get(2))),
        operator=_text(values.get(6)),
        message=_text(values.get(9)),
        tensors=all_tensors,
        tiling=tiling.ljust(-(-len(tiling) // WORD_BYTES) * WORD_BYTES, b"\0"),
    )


def _tensor(role: str, message: bytes) -> DumpedMemory:
    values = dict(_fields(message))
    shape = values.get(3, b"")
    sizes = (value for _, value in _fields(shape)) if isinstance(shape, bytes) else ()
    return DumpedMemory(
        role="tiling" if role == "input" and values.get(11) == TILING else role,
        dtype=DTYPES.get(_number(values.get(1)), ""),
        shape=tuple(axis for run in sizes for axis in _packed(run)),
        bytes=_number(values.get(SIZE_FIELD[role])),
        argument=_number(values.get(10)) if role == "input" else None,
    )


# --- The protobuf wire format: https://protobuf.dev/programming-guides/encoding ---

VARINT, LENGTH = 0, 2
FIXED = {1: 8, 5: 4}
"""Wire types of fields with a fixed number of bytes."""


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a message: number, and an integer or the bytes."""
    offset = 0
    while offset < len(message):
        key, offset = _varint(message, offset)
        wire_type = key & 7
        if wire_type == VARINT:
            number, offset = _varint(message, offset)
            yield key >> 3, number
            continue
        if wire_type == LENGTH:
            size, offset = _varint(message, offset)
        elif wire_type in FIXED:
            size = FIXED[wire_type]
        else:
            raise ValueError(Text("a field of wire type {wire_type}", wire_type=wire_type))
        if offset + size > len(message):
            raise ValueError("a field of the header is cut off")
        yield key >> 3, message[offset : offset + size]
        offset += size


def _varint(data: bytes, offset: int) -> tuple[int, int]:
    """Return an integer, and the offset of the byte after it."""
    number = 0
    for shift, byte in enumerate(data[offset : offset + 10]):
        number |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return number & 0xFFFF_FFFF_FFFF_FFFF, offset + shift + 1
    raise ValueError("a number of the header is cut off")


def _packed(data: int | bytes) -> Iterator[int]:
    """Yield the integers of a repeated field, which are packed into bytes as a rule."""
    if isinstance(data, int):
        yield data
        return
    offset = 0
    while offset < len(data):
        number, offset = _varint(data, offset)
        yield number


def _time(microseconds: int) -> str:
    try:
        return (datetime(1970, 1, 1) + timedelta(microseconds=microseconds)).isoformat()
    except OverflowError:
        return ""


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0
