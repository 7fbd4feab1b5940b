"""Reading of untrusted files: regular files only, with a size limit for each purpose."""

import json
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import yaml
from pydantic import ValidationError

from npu_sim.language import Text
from npu_sim.status import InvalidKeyError, UsageError, closest, obstacle, shown
from npu_sim.system import open_without_waiting

CONFIG_BYTES = 1 << 20
"""Largest configuration file, of a product or a model; shipped ones have some 10,000 bytes."""
JSON_BYTES = 1 << 26
"""Largest JSON file that describes the state or the columns of a sweep."""
DROPPED_BYTES = 1 << 26
"""Largest file that can be dropped on the explorer; the command line reads larger ones."""
LINE_BYTES = 1 << 20
"""Longest line of a file of calls."""


def cannot_read(argument: str, path: object, error: OSError | ValueError, hint: str) -> UsageError:
    """Return the error for a path that the system does not allow us to read."""
    return UsageError(
        argument, "{path}: cannot be read: {why}", hint, path=path, why=obstacle(error)
    )


def open_plain(argument: str, path: Path, hint: str) -> IO[bytes]:
    """Open a regular file for reading.

    A pipe or a device, which might never end, is refused without waiting for it.

    Raises UsageError for any other kind of file, and for one that cannot be read.
    """
    try:
        file = open(path, "rb", opener=open_without_waiting)  # noqa: SIM115  (returned open)
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return file
        file.close()
    except IsADirectoryError:
        pass
    except (OSError, ValueError) as error:
        raise cannot_read(argument, path, error, hint) from None
    raise UsageError(argument, "{path}: cannot be read: it is not a plain file", hint, path=path)


def read_limited(argument: str, path: Path, most_bytes: int, hint: str) -> bytes:
    """Return the content of a regular file of at most ``most_bytes`` bytes.

    Raises UsageError when the file is not regular, cannot be read, or is larger.
    """
    with open_plain(argument, path, hint) as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise UsageError(
            argument,
            "{path} is larger than {most_bytes} bytes, the most that is read of such a file",
            hint,
            path=path,
            most_bytes=most_bytes,
        )
    return content


def lines_of(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file of calls or a pipe.

    Of a line longer than ``LINE_BYTES``, the first ``LINE_BYTES + 1`` bytes are returned.
    """
    while line := file.readline(LINE_BYTES + 1):
        yield line
        while len(line) > LINE_BYTES and not line.endswith(b"\n"):
            line = file.readline(LINE_BYTES + 1)


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text.

    Raises ValueError with a sentence that says where the text is not JSON: a column, and the line
    where it has several.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        where = "not JSON: column {column}"
        if "\n" in error.doc.strip():
            where = "not JSON: line {line}, column {column}"
        problem = Text(where, line=error.lineno, column=error.colno)
    except UnicodeDecodeError:
        problem = Text("not JSON: not text in UTF-8")
    except RecursionError:
        problem = Text("not JSON: nested too deeply")
    except ValueError:  # an integer of more digits than Python reads
        problem = Text("not JSON: a number of too many digits")
    raise ValueError(problem)


YAML_DEPTH = 20
"""Deepest nesting of mappings and lists."""
YAML_SCALAR = 1000
"""Longest value in characters."""

_SURROGATE = re.compile("[\ud800-\udfff]")
"""Escapes in a file can write half of a character, which no output can encode."""

FAST_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The compiled loader, ten times as fast, if PyYAML was built with it."""

KeyPath = tuple[str | int, ...]
Refusal = Callable[..., UsageError]
"""Builds the error for a file from a message and a hint."""


@dataclass(frozen=True)
class YamlDocument:
    """A YAML mapping with the line of every key."""

    path: Path
    """The file."""
    data: dict[str, Any]
    """Its content as plain Python data."""
    lines: Mapping[KeyPath, int]
    """Line number (from 1) of the key at every path."""
    argument: str
    """Argument that named the file."""

    def line(self, key: KeyPath) -> int:
        """Return the line of a key or of its nearest ancestor.

        Values that a SoC inherits are found under ``chip``.
        """
        inherited = ("chip", *key[2:])
        if key[:1] == ("socs",) and key not in self.lines and inherited in self.lines:
            key = inherited
        while key and key not in self.lines:
            key = key[:-1]
        return self.lines.get(key, 1)

    def error(self, key: KeyPath, problem: str, hint: str = "") -> UsageError:
        """Return the error for a key of this file."""
        return UsageError(
            self.argument,
            "{path}, line {line}: {name}: {problem}",
            hint,
            path=self.path,
            line=self.line(key),
            name=".".join(str(part) for part in key) or "the file",
            problem=problem,
        )

    def validation_error(self, error: ValidationError, *known_keys: Iterable[str]) -> UsageError:
        """Return pydantic's first problem as an error of this file; the hint counts the others."""
        # A misspelt key is also reported as missing; the misspelling is what the file shows.
        problems = sorted(
            error.errors(include_url=False),
            key=lambda problem: problem["type"] != "extra_forbidden",
        )
        first = problems[0]
        key = tuple(first["loc"])
        if first["type"] == "extra_forbidden":
            problem: str = Text(
                "unknown key{hint}",
                hint=closest(str(key[-1]), [name for group in known_keys for name in group]),
            )
        elif first["type"] == "missing":
            problem = "is missing"
        elif first["type"] == "value_error":
            raised = first["ctx"]["error"]
            problem = raised.args[0]
            if isinstance(raised, InvalidKeyError):
                problem, key = raised.problem, key + raised.key
        elif isinstance(first["input"], str | int | float | bool | None):
            problem = Text(
                "{input} is not allowed: {msg}", input=shown(first["input"]), msg=first["msg"]
            )
        else:
            problem = first["msg"]
        return self.error(
            key,
            problem,
            Text("{count} more in this file", count=len(problems) - 1) if len(problems) > 1 else "",
        )


def read_yaml(path: Path, argument: str, hint: str) -> YamlDocument:
    """Read a YAML file whose top level is a mapping.

    - ``path``: the file.
    - ``argument``, ``hint``: argument that named the file, and hint of errors.

    Raises UsageError when the file cannot be read, is not YAML, is not a mapping, repeats a key, or
    is larger or deeper than a profile is.
    """
    refusal = partial(UsageError, argument)
    content = read_limited(argument, path, CONFIG_BYTES, hint)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise refusal(
            Text("{path}: cannot be read: {error}", path=path, error=error), hint
        ) from None
    try:
        try:
            node, data = _read(text, path, FAST_LOADER, refusal)
        except yaml.YAMLError:
            # Messages of this loader are the same on every machine.
            node, data = _read(text, path, yaml.SafeLoader, refusal)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise refusal(
            Text(
                "{path}{line}: not valid YAML: {problem}",
                path=path,
                line=Text(", line {line}", line=mark.line + 1) if mark is not None else "",
                problem=getattr(error, "problem", None) or "not YAML",
            )
        ) from None
    except UsageError:  # a ValueError too
        raise
    except (ValueError, OverflowError) as error:  # a malformed date, number or tag
        raise refusal(
            Text("{path}: holds a value that cannot be read: {error}", path=path, error=error)
        ) from None
    if node is None or not isinstance(data, dict):
        raise refusal(Text("{path}: not a mapping of keys to values", path=path), hint)
    lines: dict[KeyPath, int] = {}
    _collect_lines(node, (), lines, path, refusal)
    return YamlDocument(path, data, lines, argument)


def _read(text: str, path: Path, loader_class: Any, refusal: Refusal) -> tuple[Any, Any]:
    """Return the nodes of a document and its data."""
    _refuse_unsafe(text, path, loader_class, refusal)
    node = yaml.compose(text, Loader=loader_class)
    # Nodes are turned into data by a loader, whatever text it was made for.
    return node, loader_class("").construct_document(node) if node is not None else None


def _refuse_unsafe(text: str, path: Path, loader_class: Any, refusal: Refusal) -> None:
    """Refuse aliases, tags, deep nesting and very long values.

    Only parser events are read, which needs neither memory nor recursion.
    """
    depth = 0
    for event in yaml.parse(text, Loader=loader_class):
        where = partial(_place, path, event)
        if isinstance(event, yaml.AliasEvent):
            message = Text("write out what *{anchor} stands for", anchor=event.anchor)
            raise refusal(Text("{where}: such files take no aliases", where=where()), message)
        tag = getattr(event, "tag", None)
        if tag is not None:
            raise refusal(
                Text(
                    "{where}: such files take no tags such as {tag}", where=where(), tag=shown(tag)
                ),
                "write the plain value",
            )
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.ScalarEvent) and len(event.value) > YAML_SCALAR:
            message = Text(
                "{where}: a value of {length} characters", where=where(), length=len(event.value)
            )
            raise refusal(message, Text("at most {most} characters", most=YAML_SCALAR))
        if isinstance(event, yaml.ScalarEvent) and _SURROGATE.search(event.value):
            message = Text(
                "{where}: an unpaired surrogate in {value}", where=where(), value=shown(event.value)
            )
            raise refusal(message, "write the character itself")
        if depth > YAML_DEPTH:
            message = Text("{where}: nested more than {most} deep", where=where(), most=YAML_DEPTH)
            raise refusal(message)


def _place(path: Path, event: yaml.Event) -> str:
    return Text(
        "{path}, line {line}", path=path, line=event.start_mark.line + 1 if event.start_mark else 1
    )


def _collect_lines(
    node: yaml.Node, key: KeyPath, lines: dict[KeyPath, int], path: Path, refusal: Refusal
) -> None:
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            inner = (*key, name.value)
            line = name.start_mark.line + 1
            if inner in lines:
                raise refusal(
                    Text(
                        "{path}, line {line}: {dotted}: repeats the key of line {first_line}",
                        path=path,
                        line=line,
                        dotted=".".join(str(part) for part in inner),
                        first_line=lines[inner],
                    )
                )
            lines[inner] = line
            _collect_lines(value, inner, lines, path, refusal)
    elif isinstance(node, yaml.SequenceNode):
        for position, value in enumerate(node.value):
            lines[(*key, position)] = value.start_mark.line + 1
            _collect_lines(value, (*key, position), lines, path, refusal)
