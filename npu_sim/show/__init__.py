"""Everything that turns an answer into text, tables, HTML or pictures.

:mod:`npu_sim.plans.answers` calls :func:`text_of` and :func:`html_of` when an answer is printed.
Types and functions stand here by name, so that printing a plan imports neither questions nor
studies.
"""

from dataclasses import replace
from importlib import import_module
from typing import Any

VIEWS = {
    "framework.execution:OrderMask": "text:order_mask_text",
    "framework.execution:Prepared": "plan",
    "framework.execution:Result": "text:result_view",
    "plans.model:Plan": "text:plan_view",
    "plans.model:Workspace": "text:workspace_view",
    "timelines.model:Timeline": "timelines:timeline_view",
    "tools.profiles.calibrate:CalibrationAnswer": "tools.profiles.view:calibration_view",
    "questions.compare:Comparison": "comparisons:comparison_view",
    "questions.compare:Upgrade": "comparisons:upgrade_view",
    "questions.explain:Explanation": "explain:explanation_view",
    "questions.limits:LimitTable": "comparisons:limits_view",
    "tools.profiles.measured_profile:MeasuredProfile": "tools.profiles.view:measured_profile_view",
    "questions.preflight:Matrix": "preflight:preflight_view",
    "tools.profiles.measured_profile:ProfileComparison": "tools.profiles.view:comparison_view",
    "tools.device_kit.check:KitCheck": "tools.device_kit.view:check_view",
    "tools.device_kit.folder:Kit": "tools.device_kit.view:kit_view",
    "studies.certificate:Certificate": "studies:certificate_view",
    "studies.determinism:DeterminismStudy": "studies:study_view",
    "studies.invariance:InvarianceStudy": "studies:study_view",
    "studies.precision:PrecisionStudy": "studies:study_view",
    "tools.dumps.reading:DumpReading": "tools.dumps.view:dump_view",
    "tools.failures.diagnosis:Diagnosis": "tools.failures.view:diagnosis_view",
    "verdicts.answers:OutputVerdict": "verdicts:output_verdict_view",
    "verdicts.answers:Verification": "verdicts:verification_view",
}
"""Functions of this package, or of a tool, that return the text of an answer as a rich renderable,
by its type; a name alone is the attribute that is shown in its place."""
DOCUMENTS = {
    "framework.execution:Prepared": "plan",
    "framework.execution:Result": "plans:result_report",
    "plans.model:Plan": "plans:plan_report",
    "timelines.model:Timeline": "plans:single_timeline_report",
    "questions.compare:Comparison": "comparisons:diff_report",
    "questions.limits:LimitTable": "comparisons:limits_report",
    "tools.profiles.measured_profile:MeasuredProfile": "tools.profiles.view:measured_report",
    "questions.preflight:Matrix": "preflight:preflight_report",
    "tools.device_kit.check:KitCheck": "tools.device_kit.view:check_document",
    "studies.certificate:Certificate": "studies:certificate_document",
    "studies.determinism:DeterminismStudy": "studies:study_document",
    "studies.invariance:InvarianceStudy": "studies:study_document",
    "studies.precision:PrecisionStudy": "studies:study_document",
    "tools.dumps.reading:DumpReading": "tools.dumps.view:dump_report",
    "verdicts.answers:Verification": "verdicts:verification_report",
}
"""Functions that return the report of an answer."""
PICTURES = {
    "framework.execution:Prepared": "plan",
    "questions.explain:Explanation": "plan",
    "timelines.model:Timeline": "plan",
    "plans.model:Plan": "pictures:plan_pictures",
    "framework.execution:Result": "pictures:result_pictures",
    "plans.model:Workspace": "pictures:workspace_pictures",
    "questions.limits:LimitTable": "comparisons:limits_pictures",
}
"""Functions that return the single pictures of an answer by name."""


def view_of(answer: Any) -> Any:
    """Return the text of an answer as a rich renderable, or None if its type has no text."""
    return _made(answer, VIEWS)


def text_of(answer: Any) -> str | None:
    """Return an answer as text, or None if its type has no text."""
    from npu_sim.show.layout import render, stack

    view = view_of(answer)
    return None if view is None else render(stack(view))


def html_of(answer: Any) -> str | None:
    """Return an answer as HTML for notebooks, or None if its type has no text.

    It is the report, or a page of the text's tables where the type has no report.
    """
    from npu_sim.show.html import embedded
    from npu_sim.show.layout import view_report

    document = document_of(answer)
    view = view_of(answer) if document is None else None
    if view is not None:
        document = view_report(view)
    return None if document is None else embedded(document)


def document_of(answer: Any, command: str = "") -> Any:
    """Return the report of an answer, or None if its type has none.

    ``command`` is the command that reproduces the report.
    """
    document = _made(answer, DOCUMENTS)
    return replace(document, command=command) if document is not None and command else document


def figure_of(answer: Any, name: str) -> Any:
    """Return a picture of an answer as a :class:`~npu_sim.show.svg.Figure`."""
    from npu_sim.show.svg import named_figure

    return named_figure(answer, _made(answer, PICTURES) or {}, name)


def _made(answer: Any, functions: dict[str, str]) -> Any:
    """Return what the function of the answer's type makes of it; None without a function."""
    for kind in type(answer).__mro__:
        place = functions.get(f"{kind.__module__.removeprefix('npu_sim.')}:{kind.__qualname__}")
        if place is not None:
            module, _, name = place.rpartition(":")
            if not module:
                return _made(getattr(answer, name), functions)
            package = "npu_sim" if module.startswith("tools.") else "npu_sim.show"
            return getattr(import_module(f"{package}.{module}"), name)(answer)
    return None
