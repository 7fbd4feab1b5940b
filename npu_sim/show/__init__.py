"""Everything that turns an answer into text, tables, HTML or pictures.

Faces enter; an answer that is printed reaches this room through :mod:`npu_sim.plans.printing`, and
finds here which function does it.
"""

from importlib import import_module
from types import MappingProxyType
from typing import Any, NamedTuple


class Ways(NamedTuple):
    """The functions that print one type of answer, as ``module:function`` of this room; empty where there is none."""

    text: str = ""
    html: str = ""


WAYS = MappingProxyType(
    {
        "npu_sim.plans.model.Plan": Ways("text:plan_text", "reports.plans:plan_html"),
        "npu_sim.plans.model.Workspace": Ways("workspace:workspace_text"),
        "npu_sim.framework.execution.Prepared": Ways(
            "text:prepared_text", "reports.plans:prepared_html"
        ),
        "npu_sim.framework.results.OrderMask": Ways("text:order_mask_text"),
        "npu_sim.framework.results.Result": Ways("text:result_text", "reports.plans:result_html"),
        "npu_sim.timelines.model.Timeline": Ways(
            "timelines:timeline_text", "reports.plans:timeline_html"
        ),
        "npu_sim.questions.compare.Comparison": Ways(
            "compare:comparison_text", "reports.comparisons:diff_html"
        ),
        "npu_sim.questions.upgrades.Upgrade": Ways("compare:upgrade_text"),
        "npu_sim.questions.explain.Explanation": Ways("explain:explanation_text"),
        "npu_sim.questions.limits.LimitTable": Ways("limits:limits_text"),
        "npu_sim.questions.calibrate.CalibrationAnswer": Ways("calibration:calibration_text"),
        "npu_sim.questions.measured_profile.MeasuredProfile": Ways(
            "measured_profile:measured_profile_text", "reports.measured_profile:measured_html"
        ),
        "npu_sim.studies.certificate.Certificate": Ways("studies:certificate_text"),
        "npu_sim.studies.determinism.DeterminismStudy": Ways("studies:determinism_text"),
        "npu_sim.studies.invariance.InvarianceStudy": Ways("studies:invariance_text"),
        "npu_sim.studies.precision.PrecisionStudy": Ways("studies:precision_text"),
    }
)
"""By the full name of the type, so that neither the types nor the modules that print them are
loaded for one plan."""


def text_of(answer: Any) -> str | None:
    """Return an answer as text; None when there is no text for its type."""
    return _printed(_ways(answer).text, answer)


def html_of(answer: Any) -> str | None:
    """Return an answer as HTML for notebooks; None when there is none for its type."""
    return _printed(_ways(answer).html, answer)


def _ways(answer: Any) -> Ways:
    names = (f"{kind.__module__}.{kind.__qualname__}" for kind in type(answer).__mro__)
    return next((WAYS[name] for name in names if name in WAYS), Ways())


def _printed(way: str, answer: Any) -> str | None:
    if not way:
        return None
    module, _, function = way.partition(":")
    printed: str = getattr(import_module(f"{__name__}.{module}"), function)(answer)
    return printed
