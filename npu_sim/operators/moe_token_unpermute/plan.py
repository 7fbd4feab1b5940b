"""The plan of MoeTokenUnpermute: entries and warnings; the rest is in ``token_sums``.

Source: specification page ``moe_token_unpermute``.
"""

from collections.abc import Iterator
from typing import Any

from npu_sim.framework.case import Case
from npu_sim.framework.describing import Description
from npu_sim.operators.shared import token_sums
from npu_sim.operators.shared.unpermuted_tokens import dropped_tokens
from npu_sim.plans.model import Caveat, caveat
from npu_sim.tiling import moe_token_unpermute as tiler
from npu_sim.tiling.token_sums import MOST_TOPK

BUFFER_NAMES = {"indices": "indices", "probs": "probs", "probs_fp32": "probs in fp32"}


def describe(case: Case) -> Description:
    """Return what the operator states of a plan."""
    probs = probs_code(case)
    buffers = tiler.entry_buffers(case.tiling, probs)._asdict()
    entries = token_sums.Entries(
        name=entry_name(case),
        bytes=tiler.bytes_of_entry(probs),
        buffers={BUFFER_NAMES[name]: size for name, size in buffers.items() if size},
        rows="permuted_tokens",
        most=MOST_TOPK if case.row.has_probs else 1,
    )
    beyond = -token_sums.memory(case, entries).free_bytes
    return token_sums.describe(case, entries, _caveats(case, beyond))


def probs_code(call: Any) -> int:
    """Return the dtype code of probs, or ``NO_PROBS``."""
    return call.row.probs_dtype if call.row.has_probs else tiler.NO_PROBS


def entry_name(case: Case) -> str:
    """Return the name of the entries of a token."""
    return "indices and probs" if case.row.has_probs else "indices"


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
