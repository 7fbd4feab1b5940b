"""The files that ``--report`` and ``--trace`` ask for."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from npu_sim.cores import Profile
    from npu_sim.framework.results import Result
    from npu_sim.plans.model import Plan
    from npu_sim.studies.open_rows import OpenRows


def write_pictures(
    outcome: "Plan | Result",
    profile: "Profile",
    report: Path | None,
    trace: Path | None,
    call: str,
    rows: "Sequence[OpenRows]" = (),
) -> dict[str, Any]:
    """Write the report and the trace of a plan or a run, whichever is asked for; return what they show besides the outcome.

    ``call`` is the command that makes it again, ``rows`` what is listed of a run.
    """
    from npu_sim.plans.model import Plan

    plan = outcome if isinstance(outcome, Plan) else outcome.plan
    shown: dict[str, Any] = {}
    if report is not None:
        from npu_sim.files.writing import write_text
        from npu_sim.show.reports import order_strips, plan_report, render, result_report
        from npu_sim.timelines import is_timed, timeline
        from npu_sim.timelines.tracks import tracks

        if not isinstance(outcome, Plan):
            shown["order_strips"] = order_strips(outcome)

        work = tracks(plan, profile, timeline(plan, profile)) if is_timed(plan) else None
        document = (
            plan_report(outcome, call, work)
            if isinstance(outcome, Plan)
            else result_report(outcome, call, rows, work)
        )
        write_text(report, render(document))
    if trace is not None:
        from npu_sim.questions.faster_calls import with_changes
        from npu_sim.timelines import timeline
        from npu_sim.timelines.trace import write_trace

        write_trace(trace, [(plan, profile)])
        shown["timeline"] = with_changes(timeline(plan, profile), plan, profile).as_dict()
    return shown
