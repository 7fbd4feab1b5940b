"""What was recorded: calls merged when they are equal, what was seen and is not modelled, and what could not be recognised."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from npu_sim.files.schemas import schema
from npu_sim.files.writing import write_text
from npu_sim.language import Text
from npu_sim.registry import find_operator

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)|^\d+(?=\.|$)")
"""A whole part of a module path: the place of a layer."""


@dataclass(frozen=True)
class Place:
    """Where a call comes from.

    Attributes
    ----------
    name
        Path of the module; a ``*`` stands for the number of a layer. Empty outside of modules.
    parameter
        Path of the parameter, likewise; empty when there is none.
    file, line
        Line of the program that makes the call.
    """

    name: str
    parameter: str
    file: str
    line: int

    def as_dict(self) -> dict[str, Any]:
        """Return the place as plain data, without what is not known."""
        found = {
            "name": self.name,
            "parameter": self.parameter,
            "file": self.file,
            "line": self.line,
        }
        return {key: value for key, value in found.items() if value}

    @property
    def text(self) -> str:
        """The place as people read it."""
        return self.name or (f"{self.file}:{self.line}" if self.file else "")


def layers_alike(path: str) -> str:
    """Return a module path with the numbers of layers replaced: ``model.layers.*.input_layernorm``."""
    return _NUMBER.sub("*", path)


@dataclass
class Recording:
    """The calls of a block, as :func:`npu_sim.torch.record` gives them.

    Attributes
    ----------
    calls
        How often every call was made at which place, by operator, arguments as JSON, and determinism switch.
    not_modelled
        What was seen besides, by name: operators of the product, and kernels of PyTorch.
    not_recognised
        What looks like an operator of this package and could not be read as a call: what, why and where, with the count.
    running
        Whether the block is still running: gradients that arrive later are not part of it.
    """

    calls: dict[tuple[str, str, bool], Counter[Place]] = field(default_factory=dict)
    not_modelled: Counter[str] = field(default_factory=Counter)
    not_recognised: Counter[tuple[str, str, Place]] = field(default_factory=Counter)
    running: bool = False

    def add(
        self, operator: str, inputs: Mapping[str, Any], deterministic: bool, place: Place
    ) -> bool:
        """Add a call; return whether the operator is modelled: what is not is only counted."""
        if find_operator(operator) is None:
            self.not_modelled[operator] += 1
            return False
        key = operator, json.dumps(inputs), deterministic
        self.calls.setdefault(key, Counter())[place] += 1
        return True

    def count(self, operator: str) -> int:
        """Return how many calls of an operator there are."""
        return sum(
            places.total() for (name, _, _), places in self.calls.items() if name == operator
        )

    def __len__(self) -> int:
        """Return the number of calls."""
        return sum(places.total() for places in self.calls.values())

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Go through the calls as ``preflight`` reads them; equal ones are one with their ``count``."""
        for (operator, inputs, deterministic), places in self.calls.items():
            first, *others = places
            name = (
                Text("{text} and {others_count} more", text=first.text, others_count=len(others))
                if others
                else first.text
            )
            line: dict[str, Any] = {"op": operator, "inputs": json.loads(inputs)}
            line |= {"deterministic": True} if deterministic else {}
            line |= {"name": name} if name else {}
            yield line | {
                "count": places.total(),
                "places": [{**place.as_dict(), "count": places[place]} for place in places],
            }

    def seen_besides(self) -> dict[str, Any]:
        """Return what the calls do not cover as plain data."""
        lost = [
            {"what": what, "why": why, **place.as_dict(), "count": n}
            for (what, why, place), n in self.not_recognised.items()
        ]
        return {"not_recognised": lost, "not_modelled": dict(self.not_modelled.most_common())}

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain data, the form ``--json`` prints."""
        return {"calls": list(self), **self.seen_besides()}

    def write(self, path: str | Path) -> None:
        """Write the calls, one JSON object a line; the first line says what they do not cover."""
        lines: list[dict[str, Any]] = [
            {"schema": schema("calls"), "recorded": self.seen_besides()},
            *self,
        ]
        write_text(
            Path(path), "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        )
