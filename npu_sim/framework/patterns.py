"""Shape patterns: ``"row* col+"`` names the axes of a tensor, and so the sizes of a call.

Tokens of a pattern:

- a name is one axis; ``2*col`` and ``col//2`` are one axis of a multiple or a part of that size;
- ``row*`` is any number of axes, ``col+`` one or more, ``row{2}`` exactly two; their product is the
  size, and they are the same axes in every tensor;
- ``rows~`` is one or more axes with so many elements, in any shape; when implied, they are the axes
  that ``rows*`` has elsewhere;
- ``1col`` is as many axes of size 1 as ``col+`` has, ``1col?`` as many or fewer, ``1col*`` any
  number of them, and none unless they are given.

A pattern has at most two tokens of a variable number of axes. Sizes are named only here: arguments,
sweeps, limits and reports use these names.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import accumulate
from math import prod
from typing import NamedTuple

from npu_sim.language import Text
from npu_sim.numbers.arrays import Shape
from npu_sim.status import UsageError

_ONES = ("1", "1?", "1*")
_COUNTED = "{}"
_KINDS = ("", "*", "+", "~", *_ONES)
_TOKEN = re.compile(r"(1?)([A-Za-z_]\w*)([*+~?]?)")
_COUNTED_AXES = re.compile(r"([A-Za-z_]\w*)\{([0-9])\}")
_RELATED = re.compile(r"(?:([1-9]\d*)\*)?([A-Za-z_]\w*)(?://([1-9]\d*))?")


class Token(NamedTuple):
    """One axis or group of axes."""

    name: str
    kind: str
    """``""``, ``*``, ``+``, ``~`` or ``{}`` as in a pattern, ``1``, ``1?`` or ``1*`` for ones."""
    times: int = 1
    over: int = 1
    """A single axis has ``size * times // over`` elements; ``{}`` is ``times`` axes."""

    @property
    def text(self) -> str:
        """The axis as in a pattern, for a single one."""
        times = f"{self.times}*" if self.times != 1 else ""
        return times + self.name + (f"//{self.over}" if self.over != 1 else "")

    def axis(self, size: int) -> int:
        """Return the length of a single axis."""
        return size * self.times // self.over

    def size(self, axis: int, known: int | None) -> int | None:
        """Return the size that a single axis of this length has; None if there is none.

        Several sizes fit ``col//2``: the known one, or else the smallest.
        """
        size = axis * self.over // self.times if known is None else known
        return size if self.axis(size) == axis else None


class PatternError(ValueError):
    """A text that is not a pattern; the message says which part and what is allowed."""


@cache
def parse(pattern: str) -> tuple[Token, ...]:
    """Read a pattern.

    Raises PatternError for a part that is none.
    """
    tokens = []
    for text in pattern.split():
        if related := _RELATED.fullmatch(text):
            times, name, over = related.groups(default="1")
            tokens.append(Token(name, "", int(times), int(over)))
            continue
        if counted := _COUNTED_AXES.fullmatch(text):
            tokens.append(Token(counted[1], _COUNTED, int(counted[2])))
            continue
        match = _TOKEN.fullmatch(text)
        kind = match[1] + match[3] if match else "?"
        if match is None or kind not in _KINDS:
            raise PatternError(
                Text(
                    "{text} in {pattern} is not an axis; write name, name*, name+, name~, "
                    "{counted}, 1name, 1name?, 1name*, 2*name or name//2",
                    text=repr(text),
                    pattern=repr(pattern),
                    counted="name{2}",
                )
            )
        tokens.append(Token(match[2], kind))
    if sum(token.kind in ("*", "+", "~") for token in tokens) > 2:
        raise PatternError(
            Text("{pattern} has more than two groups of axes", pattern=repr(pattern))
        )
    return tuple(tokens)


@cache
def names(pattern: str) -> tuple[str, ...]:
    """Return the names of the sizes in a pattern."""
    return tuple(token.name for token in parse(pattern))


@cache
def openness(pattern: str) -> tuple[bool, int, bool]:
    """Return a sort key of patterns: those with fewer groups and no related sizes bind first."""
    tokens = parse(pattern)
    return (
        any(token.kind.startswith("1") for token in tokens),
        sum(token.kind in ("*", "+") for token in tokens),
        any(token.times != 1 or token.over != 1 for token in tokens),
    )


@dataclass
class Sizes:
    """What is known of the sizes of a call."""

    values: dict[str, int] = field(default_factory=dict)
    """Sizes by name."""
    groups: dict[str, Shape] = field(default_factory=dict)
    """The axes of every group of axes."""


def bind(pattern: str, shape: Shape, sizes: Sizes, guess: bool = True) -> bool:
    """Bind the sizes of a tensor; return False and bind none if its shape contradicts them.

    Of two groups of unknown length the last is the last axis alone, unless ``guess`` is off.
    """
    values, groups, lasting = sizes.values.copy(), sizes.groups.copy(), _lasting(pattern)
    known: tuple[int | None, ...] = ()
    if lasting:
        known = tuple([len(groups[name]) if name in groups else None for name in lasting])
    spans = _spans(pattern, len(shape), known, guess)
    if spans is None:
        return False
    for token, begin, end in spans:
        name, kind = token.name, token.kind
        if kind == "":
            size = token.size(shape[begin], values.get(name))
            if size is None:
                return False
        else:
            axes = shape[begin:end]
            if kind in _ONES:
                most = len(groups.get(name, axes))
                fits = {"1": len(axes) == most, "1?": len(axes) <= most, "1*": True}[kind]
                if not fits or axes.count(1) < len(axes):
                    return False
                continue
            if kind != "~" and groups.setdefault(name, axes) != axes:
                return False
            size = prod(axes)
        if values.setdefault(name, size) != size:
            return False
    sizes.values, sizes.groups = values, groups
    return True


@cache
def _lasting(pattern: str) -> tuple[str, ...]:
    """Return the groups that are the same axes in every tensor, ones that follow them too."""
    return tuple(token.name for token in parse(pattern) if token.kind in ("*", "+", "1"))


@lru_cache(maxsize=1024)
def _spans(
    pattern: str, rank: int, known: tuple[int | None, ...], guess: bool
) -> tuple[tuple[Token, int, int], ...] | None:
    """Return where the axes of every token are in a shape; None when the rank does not allow it.

    ``known`` are the lengths of the groups that last, as far as they are known.
    """
    tokens, lengths_known = parse(pattern), iter(known)
    lengths: list[int | None] = []
    for token in tokens:
        if token.kind in ("", _COUNTED):
            lengths.append(token.times if token.kind else 1)
        else:
            lengths.append(next(lengths_known) if token.kind in ("*", "+", "1") else None)
    open_places = [place for place, length in enumerate(lengths) if length is None]
    if len(open_places) > 1 and not guess:
        return None
    for place in open_places[1:]:
        lengths[place] = 1
    rest = rank - sum(length or 0 for length in lengths)
    if open_places:
        if rest < (1 if tokens[open_places[0]].kind in ("+", "~", "1") else 0):
            return None
        lengths[open_places[0]] = rest
    elif rest:
        return None
    ends = list(accumulate(length or 0 for length in lengths))
    return tuple(zip(tokens, [0, *ends], ends, strict=False))


def build(
    pattern: str, values: Mapping[str, int], groups: Mapping[str, Shape] | None = None
) -> Shape:
    """Return the shape that sizes give; a group has the axes it has in ``groups``, or one.

    - ``values``: sizes by name.
    - ``groups``: axes of groups; where their product is not the size, :func:`reshape` fits them.

    Raises
    ------
    KeyError
        For a size that is not known.
    UsageError
        For a size other than 1 that is to be the product of no axes.
    """
    shape: list[int] = []
    for token in parse(pattern):
        if token.kind == "":
            shape.append(token.axis(int(values[token.name])))
            continue
        known = (groups or {}).get(token.name)
        if token.kind == _COUNTED:
            axes = reshape(known or (1,) * token.times, values[token.name])
            if len(axes) != token.times:
                raise UsageError(
                    token.name,
                    "{name} = {size}: the call has no axis of it",
                    "{name} = 1",
                    name=token.name,
                    size=values[token.name],
                )
            shape += axes
            continue
        if token.kind in _ONES:
            ones = 1 if known is None else len(known)
            shape += [] if token.kind == "1*" else [1] * ones
        elif known is not None and (token.kind in ("*", "+") or (token.kind == "~" and known)):
            shape += reshape(known, values[token.name])
        else:
            shape.append(int(values[token.name]))
    return tuple(shape)


def reshape(axes: Shape, size: int) -> Shape:
    """Return as many axes whose product is ``size``.

    Only the first axis changes where that is possible; otherwise all axes but the last are 1. The
    product of no axes is 1, so that another size adds an axis.
    """
    if prod(axes) == size:
        return axes
    if not axes:
        return (size,)
    inner = prod(axes[1:])
    if inner and size % inner == 0:
        return (size // inner, *axes[1:])
    return (*(1 for _ in axes[1:]), size)


def text(pattern: str) -> str:
    """Return a pattern as help texts show it: ``(row ..., col ...)``."""
    words = {
        "*": "{} ...",
        "+": "{} ...",
        "~": "{} elements",
        "1": "1 ...",
        "1?": "1 ...",
        "1*": "1 ...",
        _COUNTED: "{} ...",
    }
    tokens = [token for token in parse(pattern) if token.kind != _COUNTED or token.times]
    if not tokens:
        return "scalar"
    axes = [words[token.kind].format(token.name) if token.kind else token.text for token in tokens]
    return f"({', '.join(axes)})"
