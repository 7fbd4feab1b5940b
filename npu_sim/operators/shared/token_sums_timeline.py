"""Steps of the operators that sum the rows of every token: what their tiles read, hold and write.

Source: specification pages ``moe_token_permute_grad``, "Kernel and order", and
``moe_token_unpermute``, "Instructions and copies of a tile".
"""

from npu_sim.language import Text, joined
from npu_sim.timelines.steps import Step, StepTable, View

ENTRIES = ("indices", "probs", "probs in fp32")
SUMMING = ("token rows", "result row", "sum in fp32", "row in fp32", *ENTRIES)
TOKENS = {"tokens": 1, "token": 1}


def token_sums(
    source: tuple[str, int], result: tuple[str, int], columns: int, top_k: int, weighted: bool
) -> StepTable:
    """Return the steps of a sum over the experts of every token.

    - ``source``, ``result``: name and number of rows of the tensor that is read, and of the sum.
    - ``columns``, ``top_k``: columns of a row, and experts of a token.
    - ``weighted``: true if every row is multiplied by its entry of ``probs``.
    """
    (rows, count), (out, tokens) = source, result
    views = [
        View(rows, count, columns, by_column={"columns": 1}),
        View(
            "sorted_indices", tokens * top_k, by_row={"tokens": top_k, "token": top_k, "expert": 1}
        ),
        View(out, tokens, columns, TOKENS, {"columns": 1}),
    ]
    if weighted:
        views.insert(2, View("probs", tokens, top_k, TOKENS, {"expert": 1}))
    entries = ("sorted_indices", *(("probs",) if weighted else ()))
    row = "probs * row" if weighted else "row"
    where = "token {token} of tokens {tokens}, columns {columns}"
    come = Text("tokens {{tokens}}: their {come} are copied in", come=joined(entries, " and "))
    first = Text("{where}: sum = {row} of its first expert, in fp32", where=where, row=row)
    no_row = Text("{where}: all its rows were dropped, sum = 0", where=where)
    other = Text("{where}: sum += {row} of expert {{expert}}, in fp32", where=where, row=row)
    rounded = Text("{where}: the sum is rounded once and copied out", where=where)
    table = {
        "indices": Step("tokens {tokens}: where their rows are", entries, live=ENTRIES),
        "indices and probs": Step(come, entries, live=ENTRIES),
        "first row": Step(first, (rows,), (), entries, SUMMING, (rows,)),
        "no row": Step(no_row, (), (), entries, SUMMING),
        "row": Step(other, (rows,), (), entries, SUMMING, (rows,)),
        "result": Step(rounded, (), (out,), entries, SUMMING),
    }
    return StepTable(tuple(views), {("tokens", note): step for note, step in table.items()})
