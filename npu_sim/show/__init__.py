"""Everything that turns an answer into text, tables, HTML or pictures.

:mod:`npu_sim.plans.answers` calls :func:`text_of` and :func:`html_of` when an answer is printed.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

Printers = Mapping[type, Callable[[Any], str]]
"""Types of answers, and the functions that print them."""


def text_of(answer: Any) -> str | None:
    """Return an answer as text, or None if its type has no text."""
    return _printed(answer, TEXTS)


def html_of(answer: Any) -> str | None:
    """Return an answer as HTML for notebooks, or None if its type has no HTML."""
    return _printed(answer, HTMLS)


def _printed(answer: Any, groups: Iterable[Callable[[], Printers]]) -> str | None:
    for group in groups:
        printers = group()
        for kind in type(answer).__mro__:
            if kind in printers:
                return printers[kind](answer)
    return None


def _plan_texts() -> Printers:
    from npu_sim.framework.execution import OrderMask, Prepared, Result
    from npu_sim.plans.model import Plan, Workspace
    from npu_sim.show.text import order_mask_text, plan_text, prepared_text, result_text
    from npu_sim.show.timelines import timeline_text
    from npu_sim.show.workspace import workspace_text
    from npu_sim.timelines.model import Timeline

    return {
        Plan: plan_text,
        Workspace: workspace_text,
        Prepared: prepared_text,
        OrderMask: order_mask_text,
        Result: result_text,
        Timeline: timeline_text,
    }


def _question_texts() -> Printers:
    from npu_sim.questions.calibrate import CalibrationAnswer
    from npu_sim.questions.compare import Comparison
    from npu_sim.questions.explain import Explanation
    from npu_sim.questions.limits import LimitTable
    from npu_sim.questions.measured_profile import MeasuredProfile
    from npu_sim.questions.preflight import Matrix
    from npu_sim.questions.upgrades import Upgrade
    from npu_sim.show.calibration import calibration_text
    from npu_sim.show.call_times import matrix_text
    from npu_sim.show.compare import comparison_text, upgrade_text
    from npu_sim.show.explain import explanation_text
    from npu_sim.show.limits import limits_text
    from npu_sim.show.measured_profile import measured_profile_text

    return {
        Comparison: comparison_text,
        Upgrade: upgrade_text,
        Explanation: explanation_text,
        LimitTable: limits_text,
        CalibrationAnswer: calibration_text,
        MeasuredProfile: measured_profile_text,
        Matrix: matrix_text,
    }


def _study_texts() -> Printers:
    from npu_sim.show import studies
    from npu_sim.studies.certificate import Certificate
    from npu_sim.studies.determinism import DeterminismStudy
    from npu_sim.studies.invariance import InvarianceStudy
    from npu_sim.studies.precision import PrecisionStudy

    return {
        Certificate: studies.certificate_text,
        DeterminismStudy: studies.determinism_text,
        InvarianceStudy: studies.invariance_text,
        PrecisionStudy: studies.precision_text,
    }


def _dump_texts() -> Printers:
    from npu_sim.dumps.reading import DumpReading
    from npu_sim.show.dumps import dump_text

    return {DumpReading: dump_text}


def _verdict_texts() -> Printers:
    from npu_sim.show.verdicts import output_verdict_text, verification_text
    from npu_sim.verdicts.answers import OutputVerdict, Verification

    return {Verification: verification_text, OutputVerdict: output_verdict_text}


def _plan_htmls() -> Printers:
    from npu_sim.framework.execution import Prepared, Result
    from npu_sim.plans.model import Plan
    from npu_sim.show.reports.plans import plan_html, prepared_html, result_html, timeline_html
    from npu_sim.timelines.model import Timeline

    return {Plan: plan_html, Prepared: prepared_html, Result: result_html, Timeline: timeline_html}


def _question_htmls() -> Printers:
    from npu_sim.questions.compare import Comparison
    from npu_sim.questions.measured_profile import MeasuredProfile
    from npu_sim.questions.preflight import Matrix
    from npu_sim.show.reports.comparisons import diff_html
    from npu_sim.show.reports.measured_profile import measured_html
    from npu_sim.show.reports.preflight import preflight_html

    return {Comparison: diff_html, MeasuredProfile: measured_html, Matrix: preflight_html}


def _verdict_htmls() -> Printers:
    from npu_sim.show.reports.verdicts import verification_html
    from npu_sim.verdicts.answers import Verification

    return {Verification: verification_html}


TEXTS = (_plan_texts, _question_texts, _study_texts, _dump_texts, _verdict_texts)
"""Tried in this order: printing a plan imports neither questions nor studies."""
HTMLS = (_plan_htmls, _question_htmls, _verdict_htmls)
