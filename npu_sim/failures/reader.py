"""Reading of a pasted text line by line, in bounded memory.

Prefixes are removed from every line, lines are grouped by process, and every form of
:mod:`npu_sim.failures.forms` that a line contains becomes a finding.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, pairwise
from pathlib import Path
from typing import IO, Any, NamedTuple

from npu_sim.failures.device_exceptions import HEAD, TEXT_HINT, ExceptionLog
from npu_sim.failures.forms import (
    CALL_FAILED,
    COLOUR,
    FORMS,
    LETTER_CODE,
    PREFIX,
    RANK,
    TORCH_CODE,
    Form,
)
from npu_sim.files.reading import lines_of, open_plain

MOST_CHARACTERS = 1 << 16
"""Most characters of a line that are read."""
MOST_FINDINGS = 512
"""Maximum number of distinct findings."""
MOST_PROCESSES = 256
"""Maximum number of processes that are distinguished."""
EXCEPTION = re.compile(r"\b[A-Z]\w{2,60}Error: ")
"""Beginning of the sentence of a Python exception."""
CHARACTER = re.compile(r"\\u((?!00[01]|d[89a-f])[0-9a-f]{4})")
"""A character as JSON escapes it; not a control character, nor half of a surrogate pair."""
PREFIXES = 8
"""Most prefixes of one line."""
_COMPILED = tuple((form, re.compile(form.pattern)) for form in FORMS)


class Finding(NamedTuple):
    """One value that a form found."""

    rank: int
    """Position of the form."""
    name: str
    """Kind of the value: a group of the form's pattern, or ``form``."""
    value: str
    process: str
    raised: bool = False
    """Whether the line states a Python exception."""
    begins: bool = False
    ends: bool = False
    """Whether the text begins or ends with the value, which may be a piece of a longer one then."""

    @property
    def form(self) -> Form:
        """The form that found it."""
        return FORMS[self.rank]


@dataclass
class Reading:
    """Findings of a text in the order in which they were read."""

    findings: dict[Finding, None] = field(default_factory=dict)
    codes: dict[str, None] = field(default_factory=dict)
    exceptions: dict[str, ExceptionLog] = field(default_factory=dict)
    ranks: dict[str, dict[str, Any]] = field(default_factory=dict)
    dropped: int = 0

    def values(self, name: str) -> list[Finding]:
        """Return the findings of one name: of exceptions first, then by form and position."""
        return sorted(
            (finding for finding in self.findings if finding.name == name),
            key=lambda finding: (not finding.raised, finding.rank),
        )

    def _add(self, finding: Finding) -> None:
        if len(self.findings) < MOST_FINDINGS:
            self.findings.setdefault(finding)
        else:
            self.dropped += finding not in self.findings

    def _process(self, found: dict[str, str | None], process: str) -> str:
        """Return the name of the process that a prefix states; ``process`` when it states none."""
        rank = found.get("rank") or found.get("process_rank")
        pid = found.get("pid")
        if found.get("process") is None and rank is None and pid is None:
            return process
        name = found.get("process") or (f"rank{rank}" if rank else "")
        key = f"{name} {pid}".strip() if pid else name
        if key in self.ranks or len(self.ranks) < MOST_PROCESSES:
            entry = {"process": name or None, "pid": pid, "rank": rank}
            self.ranks.setdefault(key, {k: v for k, v in entry.items() if v is not None})
        return key

    def read(self, line: str, process: str, *, first: bool = False, last: bool = False) -> str:
        """Read one line without line break; return the process it belongs to.

        ``first`` and ``last``: whether the text begins or ends with it.
        """
        line, process = self._peeled(line, process)
        if head := HEAD.search(line):
            key = head["pid"]
            if key in self.exceptions or len(self.exceptions) < MOST_PROCESSES:
                self.exceptions.setdefault(key, ExceptionLog()).read(line, head["module"])
        else:
            self.exceptions.setdefault("", ExceptionLog()).read(line, "")
        raised = EXCEPTION.search(line) is not None
        for position, (form, pattern) in enumerate(_COMPILED):
            if form.key in line:
                for found in pattern.finditer(line):
                    self._add(Finding(position, "form", "", process))
                    for name, value in found.groupdict().items():
                        if value is not None:
                            begin, end = found.span(name)
                            cut = (first and begin == 0, last and end == len(line))
                            finding = Finding(position, name, value.strip(), process, raised, *cut)
                            self._add(finding)
        if "E" in line:
            self._codes(line, process)
        return process

    def _peeled(self, line: str, process: str) -> tuple[str, str]:
        start = 0
        for _ in range(PREFIXES):
            found = PREFIX.match(line, start)
            if found is None:
                break
            start, process = found.end(), self._process(found.groupdict(), process)
        if found := RANK.search(line, start):
            known = self.ranks.items()
            name = next((key for key, entry in known if entry.get("pid") == found["pid"]), "")
            if not name and "pid" not in self.ranks.get(process, {"pid": ""}):
                name = process  # [rank0]: states no pid
                self.ranks[name]["pid"] = found["pid"]
            if not name:
                name = self._process({"pid": found["pid"], "rank": None}, process)
            entry = self.ranks.get(name, {})
            entry["device"] = found["device"]
            if int(found["rank"]) >= 0:
                entry["rank"] = found["rank"]
        return line[start:], process

    def _codes(self, line: str, process: str) -> None:
        for found in LETTER_CODE.finditer(line):
            if len(self.codes) < MOST_FINDINGS:
                self.codes.setdefault(found["code"])
        for found in TORCH_CODE.finditer(line):
            if len(self.codes) < MOST_FINDINGS:
                self.codes.setdefault(found[0])


def is_own_code(code: str) -> bool:
    """Return whether a code of torch_npu states a failure, and not that of another layer."""
    found = TORCH_CODE.fullmatch(code)
    return found is None or int(found["reason"]) < CALL_FAILED


def read_lines(lines: Iterable[str]) -> Reading:
    """Return the findings of a text, given as lines."""
    reading, process, first = Reading(), "", True
    parts = (part for line in lines for part in _unescaped(line))
    for part, following in pairwise(chain(parts, (None,))):
        assert part is not None
        process = reading.read(part, process, first=first, last=following is None)
        first = False
    return reading


def lines_of_file(path: Path) -> Iterator[str]:
    """Yield the lines of a text file; raises UsageError when it cannot be read."""
    with open_plain("file", path, TEXT_HINT) as file:
        yield from decoded(file)


def decoded(file: IO[bytes]) -> Iterator[str]:
    """Yield the lines of an open file; bytes that are no UTF-8 are replaced."""
    for line in lines_of(file):
        yield line.decode("utf-8", "replace")


def _unescaped(line: str) -> Iterator[str]:
    """Yield the lines within a line: those of an exception in JSON or repr, without colours."""
    line = line[:MOST_CHARACTERS]
    if "\x1b" in line or "^[" in line or "^M" in line or "\r" in line:
        line = COLOUR.sub("", line)
    if "\\u" in line:
        line = CHARACTER.sub(lambda found: chr(int(found[1], 16)), line)
    if "\\n" in line:
        yield from line.replace("\\t", " ").replace('\\"', '"').split("\\n")
    else:
        yield line.rstrip("\n")
