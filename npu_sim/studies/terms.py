"""Terms of an output element in float64, for the explanation of the worst element."""

from typing import NamedTuple

from npu_sim.operators.shared.study import StudyCall


class Term(NamedTuple):
    """One term of a sum."""

    name: str
    value: float


def terms_of(call: StudyCall, output: str, index: tuple[int, ...]) -> tuple[Term, ...]:
    """Return the terms of an output element, largest magnitude first; none without the hook."""
    if not call.operator.has_hook("terms"):
        return ()
    terms: list[tuple[str, float]] = call.operator.hook("terms")(call, output, index)
    ordered = sorted(terms, key=lambda term: -abs(term[1]))
    return tuple(Term(name, float(value)) for name, value in ordered)
