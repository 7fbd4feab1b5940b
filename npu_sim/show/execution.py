"""Runs and prepared calls as text; their reports and pictures."""

from typing import Any

from rich.console import Group

from npu_sim.framework.execution import OrderMask, Prepared, Result
from npu_sim.show import document_of, pictures_of, view_of
from npu_sim.show.plans import plan_view
from npu_sim.show.text import order_mask_text, result_lines


@view_of.register
def result_view(result: Result) -> Group:
    """Return a run as a rich renderable: its plan and its results."""
    return plan_view(result.plan, result_lines(result))


@document_of.register
def _result_document(result: Result) -> Any:
    from npu_sim.show.plan_report import result_report  # reports load studies and pictures

    return result_report(result)


@pictures_of.register
def _result_pictures(result: Result) -> Any:
    from npu_sim.show.pictures import result_pictures

    return result_pictures(result)


@view_of.register
def order_mask_view(mask: OrderMask) -> str:
    """Return how much of an output depends on the order."""
    return order_mask_text(mask)


@view_of.register
def prepared_view(prepared: Prepared) -> Any:
    """Return the plan of a prepared call as a rich renderable."""
    return view_of(prepared.plan)


@document_of.register
def _prepared_document(prepared: Prepared) -> Any:
    return document_of(prepared.plan)


@pictures_of.register
def _prepared_pictures(prepared: Prepared) -> Any:
    return pictures_of(prepared.plan)
