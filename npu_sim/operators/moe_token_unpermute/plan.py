"""Plan of MoeTokenUnpermute.

Source: specification page ``moe_token_unpermute``.
"""

from collections.abc import Iterator

from npu_sim.framework.vocabulary import Case, Caveat, Description, caveat
from npu_sim.operators.moe_token_unpermute.declaration import entry_name
from npu_sim.operators.shared.routed_tokens.declaration import probs_code
from npu_sim.operators.shared.routed_tokens.plan import (
    Entries,
    describe_sums,
    dropped_tokens,
    memory,
)
from npu_sim.tiling import moe_token_unpermute as tiler


def describe(case: Case) -> Description:
    """Return what the operator states of a plan."""
    probs = probs_code(case)
    entries = Entries(
        name=entry_name(case),
        bytes=tiler.bytes_of_entry(probs),
        buffers=tiler.entry_buffers(case.tiling, probs),
        rows="permuted_tokens",
        most=tiler.MOST_TOPK if case.row.has_probs else 1,
    )
    beyond = -memory(case, entries).free_bytes
    return describe_sums(case, entries, _caveats(case, beyond))


def _caveats(case: Case, beyond: int) -> Iterator[Caveat]:
    """Yield the warnings of a plan (page, "Warnings a plan or run gives")."""
    if beyond > 0:
        yield caveat(
            "buffers_beyond_usable_ub",
            "probs",
            "every buffer rounded up to 32 bytes, they exceed the usable Unified Buffer by "
            "{beyond} bytes, which the planner does not count; whether anything else lies there "
            "is not published: the simulator computes as if not",
            beyond=beyond,
            not_modelled="*",
        )
    yield from dropped_tokens(case.row)
