"""The answers of :mod:`npu_sim.torch` as text; their reports are made of the same tables."""

from collections.abc import Iterator
from math import inf
from typing import Any

from rich.console import RenderableType

from npu_sim.language import Text, Verbatim, joined, percent_text, say
from npu_sim.show import document_of, view_of
from npu_sim.show.forms.curves import Axis, curve, curve_chart
from npu_sim.show.forms.layout import (
    Column,
    Document,
    Drawing,
    Paragraph,
    Table,
    after_gap,
    stack,
    table_report,
)
from npu_sim.show.preflight import called_from, listed_code
from npu_sim.torch.ablation import Ablation, Variant
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


SHOWN_STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
"""Steps whose loss the text shows, with the last one."""
NAMES = {
    "gradient": Text("first gradient"),
    "logits": Verbatim("logits"),
    "log_probabilities": Text("log-probabilities"),
    "loss": Text("losses"),
}
"""Names of the quantities that are compared with the control."""
OPERATOR = Column(Text("operator"), lambda row: row.name, key=True)
CONTROL_MEANING = Text(
    "control: the program as it is, with one weight moved by one unit in the last place. A "
    "difference stands out where it is more than twice that of the control; one that does not says "
    "nothing about the operator."
)


@view_of.register
def ablation_view(study: Ablation) -> RenderableType:
    """Return an ablation as a rich renderable."""
    tables = (*_ablation_tables(study, _shown_steps(study)), *_left_tables(study.emulation))
    return stack(
        Paragraph(_ablation_headline(study), "bold"),
        Paragraph(CONTROL_MEANING, "dim"),
        *(part for sentence in study.missing for part in after_gap(sentence)),
        *(part for table in tables for part in after_gap(table, table.caption)),
    )


@document_of.register
def ablation_report(study: Ablation, command: str = "") -> Document:
    """Return the report of an ablation; ``command`` is the command that reproduces it."""
    steps = tuple(range(1, len(study.losses) + 1))
    return table_report(
        say("ablation on {product}", product=study.target.profile.title),
        _ablation_headline(study),
        (*_ablation_tables(study, steps), *_left_tables(study.emulation)),
        [_loss_chart(study)],
        notes=[CONTROL_MEANING, *study.missing, MEANING],
        command=command,
    )


def _ablation_headline(study: Ablation) -> str:
    return say(
        "{product}: {steps} steps with each operator alone, seed {seed}",
        product=study.target.profile.title,
        steps=len(study.losses),
        seed=study.seed,
    )


def _ablation_tables(study: Ablation, steps: tuple[int, ...]) -> tuple[Table, ...]:
    return (
        _verdicts(study),
        _differences(study),
        _first_calls(study),
        _worst_gradients(study),
        _losses(study, steps),
    )


def _differences(study: Ablation) -> Table:
    """Return the differences of every run, the control first."""
    columns = (OPERATOR, *(_quantity(field, name) for field, name in NAMES.items()))
    rows = [study.control, *study.rows]
    return Table(columns, rows, Text("Differences from the program as it is"))


def _quantity(field: str, name: str) -> Column:
    return Column(name, lambda row: _number(getattr(row, field)), right=True)


def _first_calls(study: Ablation) -> Table:
    columns = (
        OPERATOR,
        Column(Text("calls"), lambda row: row.calls, right=True),
        Column(Text("elements differ"), _first_call_share, right=True),
        Column(Text("relative RMS"), lambda row: _number(row.relative_rms), right=True),
    )
    return Table(columns, study.rows, Text("Results of the first call"))


def _worst_gradients(study: Ablation) -> Table:
    columns = (
        OPERATOR,
        Column(Text("difference"), lambda row: _number(row.worst_gradient), right=True),
        Column(Text("worst parameter"), lambda row: row.worst_parameter, wraps=True),
    )
    rows = [row for row in (study.control, *study.rows) if row.worst_gradient]
    return Table(columns, rows, Text("Parameter whose first gradient differs most"))


def _first_call_share(row: Variant) -> str:
    return "" if row.differing_share is None else percent_text(row.differing_share)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2g}"


def _shown_steps(study: Ablation) -> tuple[int, ...]:
    last = len(study.losses)
    return (*(step for step in SHOWN_STEPS if step < last), last)


def _losses(study: Ablation, steps: tuple[int, ...]) -> Table:
    """Return the differences of the loss at some steps, the control first."""

    def at(step: int) -> Column:
        return Column(
            Verbatim(str(step)),
            lambda row: _number(row.losses[step - 1]) if step <= len(row.losses) else "",
            right=True,
        )

    rows = [row for row in (study.control, *study.rows) if row.loss is not None]
    return Table((OPERATOR, *map(at, steps)), rows, Text("Difference of the loss at step"))


def _verdicts(study: Ablation) -> Table:
    """Return the quantities in which every row stands out from the control."""
    columns = (
        OPERATOR,
        Column(Text("stands out from the control"), lambda row: _verdict(study, row), wraps=True),
    )
    return Table(columns, study.rows, Text("Which operators stand out"))


def _verdict(study: Ablation, row: Variant) -> str:
    found = study.stands_out(row)
    return joined((NAMES[name] for name in found), ", ") if found else Text("no")


def _loss_chart(study: Ablation) -> Drawing:
    """Draw the differences of the loss at each step; the control is grey."""
    curves = []
    for row in (*study.rows, study.control):
        points = [
            (step, value)
            for step, value in enumerate(row.losses, 1)
            if value is not None and 0 < value < inf
        ]
        if points:
            places, values = zip(*points, strict=True)
            curves.append(curve(row.name, places, values, control=row is study.control))
    caption = say(
        "Difference of the loss from the program as it is; steps without one are left out"
    )
    axes = Axis(say("step of training")), Axis(say("difference of the loss"), is_log=True)
    return curve_chart(*axes, curves, caption=caption)
