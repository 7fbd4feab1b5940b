"""How an answer is printed: the one place that names the room above, :mod:`npu_sim.show`.

A plan, a comparison or a timeline is data and knows neither its text nor its report. When one is printed, or shown by a notebook, it
asks ``show`` for them; the room is loaded then, so that reading numbers costs no import.
"""

from html import escape
from importlib import import_module

SHOW = "npu_sim.show"


class Printed:
    """Base of answers: a prompt and ``print`` give the text of the command line, notebooks show the report.

    A dataclass among them says ``repr=False``.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        text: str | None = import_module(SHOW).text_of(self)
        return super().__repr__() if text is None else text

    def __str__(self) -> str:
        return repr(self)

    def _repr_html_(self) -> str:
        """Return the report as notebooks show it; the text where there is none."""
        html: str | None = import_module(SHOW).html_of(self)
        return f"<pre>{escape(repr(self))}</pre>" if html is None else html
