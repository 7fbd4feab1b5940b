"""How an answer is printed: the one place that names the room above, :mod:`npu_sim.show`.

A plan, a comparison or a timeline is data and knows neither its text nor its report. When one is printed, or shown by a notebook, it
asks ``show`` for them; the room is loaded then, so that reading numbers costs no import.
"""

from importlib import import_module

SHOW = "npu_sim.show"


class Printed:
    """Base of answers: ``print`` gives their text, notebooks show their report."""

    __slots__ = ()

    def __str__(self) -> str:
        text: str | None = import_module(SHOW).text_of(self)
        return repr(self) if text is None else text

    def _repr_html_(self) -> str | None:
        """Return the report as notebooks show it; None when there is none, they take the text then."""
        html: str | None = import_module(SHOW).html_of(self)
        return html
