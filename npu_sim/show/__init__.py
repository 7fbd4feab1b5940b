"""Everything that turns an answer into text, tables, HTML or pictures.

:func:`view_of`, :func:`document_of` and :func:`pictures_of` are generic functions: a module
registers what it makes of its types. The module of an answer is found by name and imported when
such an answer is first shown, so that printing a plan imports neither questions nor studies:

- of types in ``npu_sim.questions.limits``, ``npu_sim.show.limits``;
- of types in a module with a general name, ``npu_sim.plans.model``, the module that is named like
  the package, ``npu_sim.show.plans``;
- of types in a package with a module ``view`` of its own, as the tools have, that module.

:mod:`npu_sim.plans.answers` calls :func:`text_of`, :func:`html_of` and :func:`figure_of` when an
answer is printed.
"""

from collections.abc import Callable
from functools import singledispatch
from importlib import import_module
from importlib.util import find_spec
from typing import Any


@singledispatch
def view_of(answer: Any) -> Any:
    """Return the text of an answer as a rich renderable, or None if its type has no text."""
    return _registered(view_of, answer)


@singledispatch
def document_of(answer: Any) -> Any:
    """Return the report of an answer, or None if its type has none."""
    return _registered(document_of, answer)


@singledispatch
def pictures_of(answer: Any) -> Any:
    """Return the pictures of an answer by name, or None if its type has none."""
    return _registered(pictures_of, answer)


def _registered(generic: Any, answer: Any) -> Any:
    """Import the module that shows an answer, and return what it has registered for its type."""
    _import_view(type(answer))
    function: Callable[[Any], Any] = generic.dispatch(type(answer))
    return None if function is generic.dispatch(object) else function(answer)


def _import_view(kind: type) -> None:
    """Import the module that shows a type, or the first of its bases that npu_sim defines."""
    for base in kind.__mro__:
        package, _, module = base.__module__.rpartition(".")
        if package.partition(".")[0] == "npu_sim":
            own, last = f"{package}.view", package.rpartition(".")[2]
            for name in (own, f"{__name__}.{module}", f"{__name__}.{last}"):
                if find_spec(name) is not None:
                    import_module(name)
                    return


def text_of(answer: Any) -> str | None:
    """Return an answer as text, or None if its type has no text."""
    from npu_sim.show.forms.layout import render, stack

    view = view_of(answer)
    return None if view is None else render(stack(view))


def html_of(answer: Any) -> str | None:
    """Return an answer as HTML for notebooks, or None if its type has no text.

    It is the report, or a page of the text's tables where the type has no report.
    """
    from npu_sim.show.forms.html import embedded
    from npu_sim.show.forms.layout import view_report

    document = document_of(answer)
    view = view_of(answer) if document is None else None
    if view is not None:
        document = view_report(view)
    return None if document is None else embedded(document)


def figure_of(answer: Any, name: str) -> Any:
    """Return a picture of an answer as a :class:`~npu_sim.show.forms.svg.Figure`."""
    from npu_sim.show.forms.svg import named_figure

    return named_figure(answer, pictures_of(answer) or {}, name)
