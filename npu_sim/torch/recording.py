"""Recorded calls, and the places in the program that make them."""

import contextlib
import json
import multiprocessing
import os
import re
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import torch

from npu_sim.files.writing import schema, write_text
from npu_sim.registry import find_operator

_LAYER_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)|^\d+(?=\.|$)")
"""Integer component of a module path: the index of a layer."""
_LIBRARIES = (str(Path(torch.__file__).parent), str(Path(__file__).parents[1]), "<")
"""File name prefixes of PyTorch, of this package, and of code without a file."""


@dataclass(frozen=True)
class Place:
    """Origin of a call in the program."""

    name: str
    """Path of the module, with ``*`` for the index of a layer. Empty outside of modules."""
    parameter: str
    """Path of the parameter, with ``*`` likewise; empty if there is none."""
    file: str
    """File of the program that makes the call."""
    line: int
    """Line of the call in this file."""

    def as_dict(self) -> dict[str, Any]:
        """Return the place as plain data, without empty fields."""
        return {key: value for key, value in vars(self).items() if value}

    @property
    def text(self) -> str:
        """Path of the module, or file and line outside of modules, or path of the parameter."""
        return self.name or (f"{self.file}:{self.line}" if self.file else self.parameter)


class Names:
    """Paths of the modules and parameters of every model that was called."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._models: list[torch.nn.Module] = []  # keeps objects alive, so that ids stay unique

    def add(self, model: torch.nn.Module) -> None:
        """Add the modules and parameters of a model; the model itself is named by its class."""
        if id(model) in self._names:
            return
        self._models.append(model)
        named = (*model.named_modules(remove_duplicate=True), *model.named_parameters())
        for path, member in named:
            name = _LAYER_NUMBER.sub("*", path) or type(member).__name__
            self._names.setdefault(id(member), name)

    def of(self, member: object) -> str:
        """Return the path of a module or parameter; empty if it belongs to no model."""
        return self._names.get(id(member), "")


def program_frame() -> FrameType | None:
    """Return the innermost frame outside PyTorch and this package; None if there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_LIBRARIES):
        frame = frame.f_back
    return frame


def place_of(name: str, parameter: str = "", directory: Path | None = None) -> Place:
    """Return the place of :func:`program_frame`.

    Its file is relative to ``directory`` if it is below it.
    """
    frame = program_frame()
    if frame is None:
        return Place(name, parameter, "", 0)
    file = Path(frame.f_code.co_filename)
    below = directory is not None and file.is_relative_to(directory)
    shown = file.relative_to(directory) if directory is not None and below else file
    return Place(name, parameter, str(shown), frame.f_lineno)


class Call(NamedTuple):
    """Key of a recorded call: operator, arguments as JSON text, and determinism switch."""

    operator: str
    inputs: str
    deterministic: bool
    group: str = ""
    """Pass of the model that makes the call, such as ``decode``; empty where there is only one."""


class Forks:
    """Names of the forked processes that made calls, sent through a pipe.

    The calls themselves are not recorded: the memory of a fork is a copy.
    """

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._ends = os.pipe()
        self._sent = False
        for end in self._ends:
            os.set_blocking(end, False)

    @property
    def here(self) -> bool:
        """Whether this process is a fork of the one that records."""
        return os.getpid() != self._owner

    def send(self) -> None:
        """Send the name of this process, once."""
        if not self._sent:
            self._sent = True
            line = f"{multiprocessing.current_process().name} (pid {os.getpid()})\n"
            with contextlib.suppress(OSError):  # the recording process has ended
                os.write(self._ends[1], line.encode())

    def close(self) -> list[str]:
        """Return the names that arrived, and close the pipe; a fork leaves it unread."""
        text = b""
        with contextlib.suppress(BlockingIOError):
            while not self.here and (part := os.read(self._ends[0], 1 << 16)):
                text += part
        for end in self._ends:
            os.close(end)
        return text.decode().splitlines()


@dataclass
class Recording:
    """The calls of a block, as :func:`npu_sim.torch.record` yields them."""

    calls: dict[Call, Counter[Place]] = field(default_factory=dict)
    """Number of calls at every place, by call."""
    not_modelled: Counter[str] = field(default_factory=Counter)
    """Number of calls of other operators of the product and other kernels of PyTorch, by name."""
    not_recognised: Counter[tuple[str, str, Place]] = field(default_factory=Counter)
    """Number of times that code resembled an operator of this package but could not be read as a
    call, by name of the code, reason and place."""
    remarks: Counter[tuple[str, str, Place]] = field(default_factory=Counter)
    """Number of calls that a reader of the record should know more about, by operator, remark and
    place."""
    processes: list[str] = field(default_factory=list)
    """Forked processes that made calls, which are not recorded: name and process id."""
    spawned: list[str] = field(default_factory=list)
    """Spawned processes, which are not recorded: name and process id."""
    deterministic: bool | None = None
    """The determinism switch of all calls; None: that of PyTorch when the call is made."""
    running: bool = False
    """True while the block runs; gradients that arrive later are not recorded."""
    forks: Forks | None = field(default=None, repr=False, compare=False)
    """Connection to forked processes."""
    _lock: Any = field(default_factory=threading.Lock, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy has: all but the lock, and the connection to forked processes."""
        return {**vars(self), "forks": None, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.Lock())

    def add(self, operator: str, inputs: Mapping[str, Any], place: Place, times: int = 1) -> bool:
        """Add a call under the determinism switch; return whether its operator is modelled.

        A call of another operator is only counted.
        """
        if find_operator(operator) is None:
            self.not_modelled[operator] += times
            return False
        switch = self.deterministic
        if switch is None:
            switch = torch.are_deterministic_algorithms_enabled()
        call = Call(operator, json.dumps(inputs), switch)
        if self.forks is not None and self.forks.here:
            self.forks.send()
            return True
        with self._lock:
            self.calls.setdefault(call, Counter())[place] += times
        return True

    def add_pass(self, other: "Recording", group: str) -> None:
        """Add what another recording has, its calls as those of a pass."""
        for call, places in other.calls.items():
            self.calls[call._replace(group=group)] = places
        self.not_modelled += other.not_modelled
        self.not_recognised += other.not_recognised
        self.remarks += other.remarks

    @property
    def forked(self) -> bool:
        """Whether this process is a fork of the one that records."""
        return self.forks is not None and self.forks.here

    def count(self, operator: str) -> int:
        """Return the number of calls of an operator."""
        return sum(
            places.total() for call, places in self.calls.items() if call.operator == operator
        )

    def __len__(self) -> int:
        """Return the number of calls."""
        return sum(places.total() for places in self.calls.values())

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the calls in the form ``preflight`` reads; equal calls are merged, with a count."""
        for call, places in self.calls.items():
            first, *others = places
            # A name is data, the same in every language.
            name = f"{first.text} (+{len(others)})" if others else first.text
            line = {"op": call.operator, "inputs": json.loads(call.inputs)}
            if call.deterministic:
                line["deterministic"] = True
            if name:
                line["name"] = name
            if call.group:
                line["group"] = call.group
            line["count"] = places.total()
            line["places"] = [{**place.as_dict(), "count": places[place]} for place in places]
            yield line

    def not_covered(self) -> dict[str, Any]:
        """Return the code that the calls do not cover, as plain data."""
        optional = {
            "remarks": counted(self.remarks),
            "processes": self.processes,
            "spawned": self.spawned,
        }
        return {
            "not_recognised": counted(self.not_recognised),
            "not_modelled": dict(self.not_modelled.most_common()),
            **{name: listed for name, listed in optional.items() if listed},
        }

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain data, the form ``--json`` prints."""
        return {"calls": list(self), **self.not_covered()}

    def write(self, path: str | Path) -> None:
        """Write one JSON object per line: the code not covered first, then the calls."""
        head = {"schema": schema("calls"), "recorded": self.not_covered()}
        lines = (json.dumps(line, ensure_ascii=False) + "\n" for line in (head, *self))
        write_text(Path(path), "".join(lines))


def counted(entries: Counter[tuple[str, str, Place]]) -> list[dict[str, Any]]:
    """Return code with its reason, place and count as plain data."""
    return [
        {"what": what, "why": why, **place.as_dict(), "count": count}
        for (what, why, place), count in entries.items()
    ]
