"""Everything that turns an answer into text, tables, HTML or pictures.

:mod:`npu_sim.plans.answers` calls :func:`text_of` and :func:`html_of` when an answer is printed.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

Makers = Mapping[type, Callable[[Any], Any]]
"""Types of answers, and the functions that make something of them: their text as a rich renderable,
or their report."""


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
    from npu_sim.show.reports import embedded, view_report

    document = _made(answer, DOCUMENTS)
    if document is None:
        view = view_of(answer)
        if view is None:
            return None
        document = view_report(view)
    return embedded(document)


def figure_of(answer: Any, name: str) -> Any:
    """Return a picture of an answer as a :class:`~npu_sim.show.figures.Figure`."""
    from npu_sim.show.figures import named_figure

    return named_figure(answer, _made(answer, PICTURES) or {}, name)


def _made(answer: Any, groups: Iterable[Callable[[], Makers]]) -> Any:
    """Return what the function of the answer's type makes of it; None without a function."""
    for group in groups:
        makers = group()
        for kind in type(answer).__mro__:
            if kind in makers:
                return makers[kind](answer)
    return None


def _plan_views() -> Makers:
    from npu_sim.framework.execution import OrderMask, Prepared, Result
    from npu_sim.plans.model import Plan, Workspace
    from npu_sim.show.text import order_mask_text, plan_view, result_view
    from npu_sim.show.timelines import timeline_view
    from npu_sim.show.workspace import workspace_view
    from npu_sim.timelines.model import Timeline

    return {
        Plan: plan_view,
        Workspace: workspace_view,
        Prepared: lambda prepared: plan_view(prepared.plan),
        OrderMask: order_mask_text,
        Result: result_view,
        Timeline: timeline_view,
    }


def _question_views() -> Makers:
    from npu_sim.questions.calibrate import CalibrationAnswer
    from npu_sim.questions.compare import Comparison
    from npu_sim.questions.explain import Explanation
    from npu_sim.questions.limits import LimitTable
    from npu_sim.questions.measured_profile import MeasuredProfile
    from npu_sim.questions.preflight import Matrix
    from npu_sim.questions.profile_comparison import ProfileComparison
    from npu_sim.questions.upgrades import Upgrade
    from npu_sim.show.calibration import calibration_view
    from npu_sim.show.call_times import preflight_view
    from npu_sim.show.compare import comparison_view, upgrade_view
    from npu_sim.show.explain import explanation_view
    from npu_sim.show.limits import limits_view
    from npu_sim.show.measured_profile import measured_profile_view
    from npu_sim.show.profile_comparison import profile_comparison_view

    return {
        Comparison: comparison_view,
        Upgrade: upgrade_view,
        Explanation: explanation_view,
        LimitTable: limits_view,
        CalibrationAnswer: calibration_view,
        MeasuredProfile: lambda profile: measured_profile_view(profile, "all"),
        Matrix: preflight_view,
        ProfileComparison: profile_comparison_view,
    }


def _study_views() -> Makers:
    from npu_sim.show.studies import certificate_view, study_view
    from npu_sim.studies.certificate import Certificate
    from npu_sim.studies.determinism import DeterminismStudy
    from npu_sim.studies.invariance import InvarianceStudy
    from npu_sim.studies.precision import PrecisionStudy

    studies = dict.fromkeys((DeterminismStudy, InvarianceStudy, PrecisionStudy), study_view)
    return {Certificate: certificate_view, **studies}


def _failure_views() -> Makers:
    from npu_sim.dumps.reading import DumpReading
    from npu_sim.failures.diagnosis import Diagnosis
    from npu_sim.show.dumps import dump_view
    from npu_sim.show.failures import diagnosis_view

    return {DumpReading: dump_view, Diagnosis: diagnosis_view}


def _verdict_views() -> Makers:
    from npu_sim.show.verdicts import output_verdict_view, verification_view
    from npu_sim.verdicts.answers import OutputVerdict, Verification

    return {Verification: verification_view, OutputVerdict: output_verdict_view}


def _plan_documents() -> Makers:
    from npu_sim.framework.execution import Prepared, Result
    from npu_sim.operators.timelines import work_over_time
    from npu_sim.plans.model import Plan
    from npu_sim.show.reports.plans import plan_report, result_report, timeline_report
    from npu_sim.timelines.model import Timeline

    return {
        Plan: lambda plan: plan_report(plan, work=work_over_time(plan)),
        Prepared: lambda prepared: plan_report(prepared.plan, work=work_over_time(prepared.plan)),
        Result: lambda result: result_report(result, work=work_over_time(result.plan)),
        Timeline: lambda timeline: timeline_report([("as given", timeline)]),
    }


def _question_documents() -> Makers:
    from npu_sim.language import say
    from npu_sim.questions.compare import Comparison
    from npu_sim.questions.limits import LimitTable
    from npu_sim.questions.measured_profile import MeasuredProfile
    from npu_sim.questions.preflight import Matrix
    from npu_sim.show.reports.comparisons import diff_report, limits_report
    from npu_sim.show.reports.measured_profile import measured_report
    from npu_sim.show.reports.preflight import preflight_report

    return {
        Comparison: diff_report,
        LimitTable: limits_report,
        MeasuredProfile: measured_report,
        Matrix: lambda matrix: preflight_report(matrix, say("calls"), ""),
    }


def _study_documents() -> Makers:
    from npu_sim.show.reports.studies import certificate_document, study_document
    from npu_sim.studies.certificate import Certificate
    from npu_sim.studies.determinism import DeterminismStudy
    from npu_sim.studies.invariance import InvarianceStudy
    from npu_sim.studies.precision import PrecisionStudy

    studies = dict.fromkeys((DeterminismStudy, InvarianceStudy, PrecisionStudy), study_document)
    return {Certificate: certificate_document, **studies}


def _measured_documents() -> Makers:
    from npu_sim.dumps.reading import DumpReading
    from npu_sim.show.reports.dumps import dump_report
    from npu_sim.show.reports.verdicts import verification_report
    from npu_sim.verdicts.answers import Verification

    return {DumpReading: dump_report, Verification: verification_report}


def _pictures() -> Makers:
    from npu_sim.framework.execution import Prepared, Result
    from npu_sim.plans.model import Plan, Workspace
    from npu_sim.questions.explain import Explanation
    from npu_sim.questions.limits import LimitTable
    from npu_sim.show import figures
    from npu_sim.timelines.model import Timeline

    planned = dict.fromkeys(
        (Prepared, Explanation, Timeline), lambda answer: figures.plan_pictures(answer.plan)
    )
    return {
        **planned,
        Plan: figures.plan_pictures,
        Result: figures.result_pictures,
        Workspace: figures.workspace_pictures,
        LimitTable: figures.limits_pictures,
    }


VIEWS = (_plan_views, _question_views, _study_views, _failure_views, _verdict_views)
"""Texts, tried in this order: printing a plan imports neither questions nor studies."""
DOCUMENTS = (_plan_documents, _question_documents, _study_documents, _measured_documents)
"""Reports."""
PICTURES = (_pictures,)
"""Single pictures by name."""
