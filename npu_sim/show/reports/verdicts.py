"""Report of verdicts on measured outputs: a map of the elements, and the worst ones."""

import numpy as np
from markupsafe import Markup

from npu_sim.language import say
from npu_sim.show.reports import svg
from npu_sim.show.reports.document import Block, Document, Picture, Section, Table, labelled
from npu_sim.show.verdicts import HEADINGS, element_rows, place_lines, sentence, verdict_lines
from npu_sim.verdicts.answers import STATUSES, OutputVerdict, Verification

BINS = 200
"""Bars of a strip."""
ROW = svg.BAR_HEIGHT + 24
LEAST_OPACITY = 0.25


def verification_report(answer: Verification, call: str = "") -> Document:
    """Return the report of an answer; ``call`` is the command that reproduces it."""
    sections = []
    for verdict in answer.outputs.values():
        blocks: list[Block] = [labelled(verdict_lines(verdict))]
        if verdict.elements.size:
            note = "Elements in the order of memory; darker bars hold more of that verdict."
            blocks.append(Picture(element_map(verdict), note))
        if verdict.worst:
            blocks.append(Table(HEADINGS, tuple(element_rows(verdict)), "Worst elements"))
        sections.append(Section(sentence(verdict), tuple(blocks)))
    sections.append(Section("Device", (labelled(place_lines(answer)),)))
    headline = say("{operator}: {status}", operator=answer.operator, status=say(answer.status))
    outcome = "bad" if answer.status == "unreachable" else "good"
    return Document(headline, headline, tuple(sections), call, outcome)


def element_map(verdict: OutputVerdict) -> Markup:
    """Draw a strip for every verdict that occurs: bars of adjacent elements."""
    codes = verdict.elements.reshape(-1)
    edges = np.unique(np.linspace(0, codes.size, BINS + 1).astype(np.int64))
    parts, y = [], 0.0
    for code, status in enumerate(STATUSES):
        total = verdict.counts[status]
        if not total:
            continue
        parts.append(svg.caption(say("{status}: {count}", status=say(status), count=total), y + 12))
        counts = np.add.reduceat((codes == code).astype(np.int64), edges[:-1])
        for first, last, count in zip(edges[:-1].tolist(), edges[1:].tolist(), counts, strict=True):
            x, width = first * svg.WIDTH / codes.size, (last - first) * svg.WIDTH / codes.size
            parts.append(svg.bar(x, y + 20, width, "fixed"))
            if count:
                title = say(
                    "elements {first}..{last}: {count}", first=first, last=last - 1, count=count
                )
                opacity = max(float(count) / (last - first), LEAST_OPACITY)
                parts.append(svg.bar(x, y + 20, width, f"c{code}", title, fill_opacity=opacity))
        y += ROW
    return svg.picture(y, parts, say("verdicts of {output}", output=verdict.output))
