"""The block of one device exception in a plog: kernel, argument words and tiling.

Source: specification page ``plog``, sections "The block of one exception" and "Cutting the words".
"""

import re
from dataclasses import dataclass, field
from typing import Any

from npu_sim.tiling.structures import ATOMIC_INDEX, WORD_BYTES

MOST_WORDS = 1 << 14
"""Maximum number of argument words of an exception."""
HEAD = re.compile(r"\[[A-Z]+\] (?P<module>[A-Z]+)\((?P<pid>\d+),[^)]{0,200}\):")
KERNEL_NAME = re.compile(
    r"(?P<op>[A-Za-z]\w{0,200}?)_(?P<hash>[0-9a-f]{32})"
    r"(?:_(?P<mode>high_performance|high_precision))?(?:_(?P<key>\d+))?(?:_(?P<mix>mix_ai[cv]))?$"
)
FACTS = tuple(
    (key, re.compile(pattern))
    for key, pattern in (
        ("device", r"from device\((?P<device>[^)]{1,80})\)"),
        ("there is an", r"there is an? (?P<exception>[^,]{1,80}), core id is (?P<core_id>\d+)"),
        ("dump info", r"error code = (?P<error_code>\w{1,20}), dump info"),
        ("pc start", r"pc start: (?P<pc_start>\w{1,20}), current: (?P<pc_current>\w{1,20})"),
        ("para base", r"para base: (?P<para_base>0x\w{1,16})"),
        ("errcode:(", r"errcode:(?P<errcode>\([^)]{1,80}\))"),
        ("errorStr:", r"errorStr: (?P<error_string>[^.]{1,200})\."),
        ("kernel_name=", r"fault kernel_name=(?P<fault_kernel_name>[^,\s]{1,300})"),
        ("tilingKey", r"tilingKey = (?P<tiling_key>\d{1,20})"),
        ("totalLen", r"totalLen=\((?P<total_words>\d{1,9})\*8\)"),
        ("argsSize", r"argsSize=(?P<args_size>\d{1,9})"),
        ("schemMode", r"schemMode=(?P<schem_mode>\d{1,9})"),
        ("blockDim", r"blockDim=(?P<block_dim>\d{1,9})"),
    )
)
"""Facts of an exception: literal text of the line, and pattern; the first value holds."""
INTEGER_FACTS = ("core_id", "tiling_key", "total_words", "args_size", "schem_mode", "block_dim")
WORDS = re.compile(r"args\(\d+ to \d+\) after execute:")
WORD = re.compile(r"0x[0-9a-fA-F]{1,16}|\d{1,20}")


@dataclass
class ExceptionLog:
    """Facts and argument words of one exception while its lines are read."""

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
            self.words += [int(word, 0) for word in given[: MOST_WORDS - len(self.words)]]

    def as_dict(self) -> dict[str, Any] | None:
        """Return the exception as plain data; None when there was none."""
        facts = self.facts
        if not {"exception", "fault_kernel_name", "tiling_key"} & facts.keys():
            return None
        answer = {**dict.fromkeys(("tiling_key", "schem_mode", "block_dim")), **facts}
        if name := facts.get("fault_kernel_name"):
            answer["kernel_name_parts"] = kernel_parts(name)
        if "pc_start" in facts:
            start, current = (_address(facts[name]) for name in ("pc_start", "pc_current"))
            answer["pc_offset"] = hex(current - start) if current >= start else None
        return {**answer, "words_found": len(self.words), **self._tiling()}

    def _tiling(self) -> dict[str, Any]:
        """Return which words are the tiling structure; empty if it cannot be located."""
        base = _address(self.facts.get("para_base", "0"))
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


def _address(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        return 0


def kernel_parts(name: str) -> dict[str, str]:
    """Return operator type, hash, mode, key and mix of a kernel's name; empty for other names."""
    found = KERNEL_NAME.match(name)
    return {} if found is None else {k: v for k, v in found.groupdict().items() if v is not None}
