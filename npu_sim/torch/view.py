"""The answers of :mod:`npu_sim.torch` as text; their reports are made of the same tables."""

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType

from npu_sim.language import Text, joined, percent_text, say
from npu_sim.show import document_of, view_of
from npu_sim.show.forms.layout import (
    Column,
    Document,
    Paragraph,
    Table,
    after_gap,
    stack,
    table_report,
)
from npu_sim.show.preflight import called_from, listed_code
from npu_sim.torch.emulation import Emulation

SHOWN_KERNELS = 6
KINDS = {
    "matmul": ("mm", "bmm", "addmm", "baddbmm", "mv", "dot", "grouped_mm"),
    "attention": ("scaled_dot_product",),
    "softmax": ("softmax", "safe_softmax"),
    "log_softmax": ("log_softmax",),
    "convolution": ("convolution", "slow_conv"),
}
"""Names of kernels by what people call them: those that a model is made of."""
MOVES = frozenset(
    {
        "arange",
        "cat",
        "clone",
        "constant_pad_nd",
        "copy",
        "fill",
        "full",
        "lift_fresh",
        "local_scalar_dense",
        "new_empty",
        "new_empty_strided",
        "new_ones",
        "new_zeros",
        "normal",
        "ones",
        "ones_like",
        "rand",
        "randint",
        "randn",
        "random",
        "scalar_tensor",
        "slice",
        "to_copy",
        "uniform",
        "unsafe_view",
        "zero",
        "zeros",
        "zeros_like",
    }
)
"""Kernels that compute nothing of a model: they fill, move or convert."""
MEANING = Text(
    "Differences between two emulated runs are caused by these operators alone; the absolute loss "
    "is not that of a device."
)


def headline(emulation: Emulation) -> str:
    """Return what was computed as the product does, and what as this CPU does."""
    replaced, left = list(emulation.counts()), list(_kernel_names(emulation))
    more = len(left) - SHOWN_KERNELS
    shown = joined(left[:SHOWN_KERNELS], ", ") if left else say("nothing")
    cpu = say("{kernels} and {more} more", kernels=shown, more=more) if more > 0 else shown
    return say(
        "as {product}: {operators}; as this CPU: {kernels}",
        product=emulation.target.profile.name,
        operators=joined(replaced, ", ") if replaced else say("nothing"),
        kernels=cpu,
    )


def _kernel_names(emulation: Emulation) -> Iterator[str]:
    """Yield the kernels of PyTorch that ran, those that a model is made of first."""
    names: dict[str, None] = {}
    for name, _ in emulation.recording.not_modelled.most_common():
        names[_kind(name)] = None
    yield from (kind for kind in KINDS if kind in names)
    others = (name for name in names if name not in KINDS)
    yield from sorted(others, key=lambda name: name in MOVES)  # in their order otherwise


def _kind(kernel: str) -> str:
    name = kernel.removeprefix("aten::").lstrip("_").removesuffix("_")
    name = name.removesuffix("_data").removesuffix("_backward")
    for kind, starts in KINDS.items():
        if name in starts or name.startswith(starts[-1]):
            return kind
    return name


@view_of.register
def emulation_view(emulation: Emulation) -> RenderableType:
    """Return the report of an emulation as a rich renderable."""
    return stack(
        Paragraph(headline(emulation), "bold"),
        Paragraph(MEANING, "dim"),
        *after_gap(_replaced(emulation)),
        *(part for table in _left_tables(emulation) for part in after_gap(table, table.caption)),
        *(part for note in _notes(emulation) for part in after_gap(note)),
    )


@document_of.register
def emulation_report(emulation: Emulation, command: str = "") -> Document:
    """Return the report of an emulation; ``command`` is the command that reproduces it."""
    tables = (_replaced(emulation), _places(emulation), *_left_tables(emulation))
    return table_report(
        say("emulation on {product}", product=emulation.target.profile.title),
        headline(emulation),
        tables,
        notes=[MEANING, *_notes(emulation)],
        command=command,
    )


def _replaced(emulation: Emulation) -> Table:
    """Return the operators that were computed as the product does, with what they changed."""
    columns = (
        Column("calls", lambda row: f"{row[1]}x", right=True, key=True),
        Column("operator", lambda row: row[0], key=True),
        Column(Text("elements differ"), lambda row: _share(row[2]), right=True),
        Column(Text("relative RMS"), lambda row: _relative(row[2]), right=True),
        Column(Text("at most"), lambda row: _ulp(row[2]), right=True),
    )
    rows = [(name, count, emulation.changes_of(name)) for name, count in emulation.counts().items()]
    return Table(columns, rows, Text("Computed with the product's arithmetic"))


def _places(emulation: Emulation) -> Table:
    columns = (
        Column("operator", lambda row: row[0][0]),
        Column("called from", lambda row: called_from(row[0][1].as_dict())),
        Column(Text("calls compared"), lambda row: row[1].calls),
        Column(Text("elements differ"), lambda row: _share(row[1])),
        Column(Text("relative RMS"), lambda row: _relative(row[1])),
        Column(Text("at most"), lambda row: _ulp(row[1])),
    )
    caption = Text("Compared with what the program computes, by place")
    return Table(columns, list(emulation.changes.items()), caption)


def _share(changes: Any) -> str:
    return "" if changes is None else percent_text(changes.differing_share)


def _relative(changes: Any) -> str:
    return "" if changes is None else f"{changes.relative_rms:.2g}"


def _ulp(changes: Any) -> str:
    return "" if changes is None else Text("{ulp} ulp", ulp=changes.largest_ulp)


def _left_tables(emulation: Emulation) -> Iterator[Table]:
    """Yield what PyTorch computed although an operator of the product is like it."""
    answer = emulation.as_dict()
    yield listed_code("operator", answer["left"], Text("left to PyTorch"))
    yield listed_code("operator", answer["not_recognised"], "not recognised")
    yield listed_code("operator", answer["widened"], Text("cast to a wider dtype"))
    yield listed_code("operator", answer.get("remarks", ()), Text("remarks"))


def _notes(emulation: Emulation) -> Iterator[str]:
    answer = emulation.as_dict()
    if emulation.compilation:
        yield emulation.compilation
    texts = (
        (Text("forked processes made calls that are not replaced"), "processes"),
        (Text("started processes are not emulated"), "spawned"),
    )
    for text, name in texts:
        if answer.get(name):
            yield Text("{what}: {processes}", what=text, processes=", ".join(answer[name]))
