"""The terms whose sum one output element is, in float64: what a worst element is made of."""

from typing import NamedTuple

from npu_sim.operators.shared.study import StudyCall


class Term(NamedTuple):
    """One term of a sum."""

    name: str
    value: float


def terms_of(call: StudyCall, output: str, index: tuple[int, ...]) -> tuple[Term, ...]:
    """Return the terms of an output element, largest magnitude first."""
    found: list[tuple[str, float]] = call.operator.hook("terms")(call, output, index)
    return tuple(
        Term(name, float(value)) for name, value in sorted(found, key=lambda term: -abs(term[1]))
    )
