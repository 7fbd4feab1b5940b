"""The plan of a checked call, put together from what the operator says of it."""

from functools import partial
from typing import Any

from npu_sim.framework.case import Case
from npu_sim.framework.profile_keys import keys_without_effect
from npu_sim.plans.answers import Evidence
from npu_sim.plans.model import Caveat, Plan
from npu_sim.plans.workspace_model import Workspace
from npu_sim.registry import OPERATOR_NAMES
from npu_sim.releases import release_assumption
from npu_sim.status import SUCCESS, AclnnError

_SURE = (Evidence.EXACT, Evidence.MODEL, Evidence.UNKNOWN)
"""From the surest on."""


def empty_fields(path: str) -> dict[str, Any]:
    """Return the plan fields of a call that runs no kernel; ``path`` says why and what the outputs are."""
    return {
        "kernel": "",
        "path": path,
        "block_dim": 0,
        "workspace": Workspace(total_bytes=0, kernel_bytes=0, parts=()),
    }


def plan_of(case: Case) -> Plan:
    """Plan a checked call; it is remembered as long as the call is."""
    return case.once(_plan)


def _plan(case: Case) -> Plan:
    plan = Plan.promise(partial(plan_fields, case))
    # What is wrong with somebody else's declaration shows at once.
    return plan if case.operator.name in OPERATOR_NAMES else plan.kept()


def plan_fields(case: Case) -> dict[str, Any]:
    """Return the fields of a plan, as :meth:`Plan.promise` takes them."""
    operator, profile = case.operator, case.profile
    fields: dict[str, Any] = {}
    if case.empty:
        fields = empty_fields(operator.empty)
    if not case.empty or operator.describe_empty is not None:
        fields |= operator.hook("describe_empty" if case.empty else "describe")(case)
    assumption = "" if case.empty else release_assumption(profile.release, operator.name)
    if assumption:
        caveat = Caveat(code="release_assumed", message=f"release {profile.release}: {assumption}")
        fields["caveats"] = (*fields.get("caveats", ()), caveat)
    most = Evidence.MODEL if assumption else operator.evidence
    fields["evidence"] = max(
        operator.evidence, most, fields.get("evidence", operator.evidence), key=_SURE.index
    )
    if "launches" not in fields and not case.empty:
        fields["launches"] = partial(
            case.launches, fields["kernel"], fields["block_dim"], fields["evidence"]
        )
    fields["profile_keys"] = partial(keys_without_effect, case)
    return dict(
        operator=operator.name,
        title=operator.title,
        product=profile.name,
        product_title=profile.product.title,
        soc=profile.soc,
        release=profile.release,
        deterministic=case.deterministic,
        limits=case.limits,
        arguments=case.arguments.as_dict(),
        cores_available=case.device.cube_cores if operator.on_cube else case.device.vector_cores,
        core_kind=profile.cube_core_kind if operator.on_cube else profile.vector_core_kind,
        **fields,
    )


def overflow_of(case: Case) -> AclnnError | None:
    """Return why a call that the product accepts does not fit the chip; None when it does. Its status is that of success."""
    operator, device = case.operator, case.device
    if case.empty or operator.used_bytes is None:
        return None
    used = operator.used_bytes(case.row, case.tiling, device, case.rules)
    if used <= device.ub_bytes:
        return None
    message = f"overflows: the buffers take {used} bytes, the Unified Buffer of {case.profile.soc} has {device.ub_bytes}"
    return AclnnError(SUCCESS, "product", message, "the product does not check it")
