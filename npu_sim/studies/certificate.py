"""Exact summation trees of output elements, declared by the operator and recovered from the kernel.

A probe sets one term to a huge value, another one to its negative, and all others to one. A one
that is added to a huge value before the two cancel is absorbed, so the result is the number of
terms outside the smallest subtree that contains both. The tree follows from these numbers
(numerical tree probing). The kernel runs unmodified.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from npu_sim.framework.operator import CLAIMS
from npu_sim.numbers.arrays import Array, Index
from npu_sim.operators.shared.study import study_call
from npu_sim.orders import trees
from npu_sim.orders.claims import Claim, Outside
from npu_sim.plans.answers import Printed
from npu_sim.status import without_internal_frames

MOST_RECOVERED_TERMS = 512
"""Recovery probes every pair of terms; above this number only sampled pairs are compared."""
MOST_SAMPLED_TERMS = 16384
"""Above this number of terms the tree is not probed."""
SAMPLED_PAIRS = 4096


@dataclass(frozen=True, repr=False)
class Certificate(Printed):
    """A declared summation tree, and the result of probing the kernel.

    ``probe`` is ``recovered`` (the whole tree from every pair of terms), ``sampled`` (some pairs),
    ``evaluated`` (the kernel's bits equal those of the declared tree) or ``none``; ``agrees`` is
    None without a probe.
    """

    output: str
    element: Index
    elements: int
    terms: tuple[str, ...]
    tree: trees.Tree | None
    hash: str
    probe: str
    agrees: bool | None

    @property
    def text(self) -> str:
        """The tree as a formula over t0, t1, ..."""
        return trees.text(self.tree, lambda term: f"t{term}")

    def as_dict(self) -> dict[str, Any]:
        """Return the certificate as plain data."""
        return {
            "output": self.output,
            "element": list(self.element),
            "elements_alike": self.elements,
            "terms": list(self.terms),
            "tree": trees.as_lists(self.tree),
            "text": self.text,
            "hash": self.hash,
            "probe": self.probe,
            "probe_agrees": self.agrees,
        }


def meeting_sizes(
    terms: int, firsts: Array, seconds: Array, outside: Outside, together: int = 4096
) -> Array:
    """Return, for pairs of terms, the number of terms of the smallest subtree with both.

    ``together`` probes are run at a time.
    """
    sizes = np.empty(firsts.size, np.int64)
    for begin in range(0, firsts.size, together):
        left, right = firsts[begin : begin + together], seconds[begin : begin + together]
        codes = np.zeros((left.size, terms), np.int8)
        codes[np.arange(left.size), left] = 1
        codes[np.arange(left.size), right] = -1
        sizes[begin : begin + together] = terms - outside(codes)
    return sizes


def probed_tree(terms: int, outside: Outside) -> trees.Tree:
    """Return the tree over ``terms`` terms, recovered from runs of the kernel.

    Raises ValueError when no tree has the measured sizes.
    """
    firsts, seconds = np.triu_indices(terms, 1)
    sizes = np.eye(terms, dtype=np.int64)
    sizes[firsts, seconds] = sizes[seconds, firsts] = meeting_sizes(terms, firsts, seconds, outside)
    return trees.from_meeting_sizes(sizes)


def sampled_pairs_agree(tree: trees.Tree, terms: int, outside: Outside) -> bool:
    """Return whether sampled pairs of terms meet where the declared tree joins them."""
    rng = np.random.default_rng(terms)
    firsts = rng.integers(0, terms, SAMPLED_PAIRS)
    seconds = (firsts + rng.integers(1, terms, SAMPLED_PAIRS)) % terms
    declared = trees.meeting_sizes(tree, terms)[firsts, seconds]
    return bool(
        np.array_equal(meeting_sizes(terms, firsts, seconds, outside, together=512), declared)
    )


@without_internal_frames
def certify(
    operator: str,
    *,
    probe: bool = True,
    deterministic: bool = False,
    progress: Callable[[str, float], None] | None = None,
    **call: Any,
) -> list[Certificate]:
    """Return the summation tree of every class of output elements of a call.

    Parameters
    ----------
    operator
        Name of the operator.
    probe
        Recover the trees from the kernel as well.
    progress
        Called with the output and the fraction of classes done, before each class.
    **call
        The call as for :func:`npu_sim.run`.

    Raises
    ------
    AclnnError
        As for :func:`npu_sim.run`.
    """
    certificates = []
    described = study_call(operator, {**call, "deterministic": deterministic})
    declared: list[Claim] = []  # an empty call has no sums
    if not described.case.empty:
        declared += described.operator.hook(CLAIMS)(described)
    for position, claim in enumerate(declared):
        if progress is not None:
            progress(claim.output, position / len(declared))
        tree = trees.canonical(claim.tree)
        assert tree is not None
        kind, agrees = _probe(claim, tree) if probe else ("none", None)
        certificates.append(
            Certificate(
                output=claim.output,
                element=claim.element,
                elements=claim.elements,
                terms=claim.terms,
                tree=claim.tree,
                hash=trees.shape_hash(tree),
                probe=kind,
                agrees=agrees,
            )
        )
    return certificates


def _probe(claim: Claim, tree: trees.Tree) -> tuple[str, bool | None]:
    if claim.outside is None:
        return ("evaluated", claim.evaluates()) if claim.evaluates is not None else ("none", None)
    terms = len(claim.terms)
    if terms <= MOST_RECOVERED_TERMS:
        try:
            return "recovered", probed_tree(terms, claim.outside) == tree
        except ValueError:
            return "recovered", False
    if terms <= MOST_SAMPLED_TERMS:
        return "sampled", sampled_pairs_agree(tree, terms, claim.outside)
    return "none", None
