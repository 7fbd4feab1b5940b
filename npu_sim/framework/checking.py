"""Contract and planner of an operator, applied to a call.

:func:`check` runs the checks of a declaration on one call and tiles it;
:mod:`npu_sim.framework.row_planner` makes functions of the same checks for integers alone.
"""

import copyreg
import itertools
from collections import namedtuple
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any

from npu_sim.cores import Profile
from npu_sim.framework import checks
from npu_sim.framework.arguments import NOT_DOCUMENTED, Arguments, Signature, cache_key
from npu_sim.framework.case import Case, Inspection
from npu_sim.framework.inference import arguments_of
from npu_sim.framework.operator import Operator, PlannerMessage
from npu_sim.framework.target import Target
from npu_sim.language import Text
from npu_sim.numbers.formats import TensorSpec
from npu_sim.status import AclnnError
from npu_sim.tiling.common import SUCCESS

CACHED_CALLS = 256
"""Number of checked calls that are cached."""


def checked_call(
    operator: Operator, values: Mapping[str, Any], target: Target, *, infer: bool = False
) -> Case:
    """Return the checked call of a caller's arguments; ``infer`` as for :func:`arguments_of`."""
    return check(operator, arguments_of(operator, values, infer=infer), target)


def check(operator: Operator, arguments: Arguments, target: Target) -> Case:
    """Run the checks of the contract in the product's order and tile the call.

    Calls that pass are cached by signature.

    Raises
    ------
    AclnnError
        With the status of the first check that fails.
    NotModelledError
        See :meth:`Operator.on`.
    UncountableError
        For a tensor of more bytes than int64, the type of the product's shapes, counts.
    """
    signature = cache_key(arguments)
    if signature is None:
        return check_uncached(operator.on(target.profile), arguments, target)
    return _cached_case(operator, signature, target)


def check_uncached(operator: Operator, arguments: Arguments, target: Target) -> Case:
    """Like :func:`check`, by this declaration and without caching."""
    device, rules = target.profile.device, rules_on(operator, target.profile)
    specs = arguments.given(operator.tensor_names)
    checks.require_countable(specs)
    call = Inspection(operator, arguments, target, specs, device, rules)
    for listed in operator.checks:
        listed(call)
        if call.empty:
            break
    case = call.case()
    if not case.empty and case.tiling.status != SUCCESS:
        raise AclnnError(operator.planner_failure, *_failure_message(operator, case))
    checks.require_countable(case.specs)  # with the outputs that were left out
    return case


def _failure_message(operator: Operator, case: Case) -> PlannerMessage:
    if operator.planner_message is not None:
        return operator.planner_message(case)
    return (
        operator.inputs[0].name,
        Text(
            "{title} has no tiling for this call on {product_title}",
            title=operator.title,
            product_title=case.profile.title,
        ),
        "try smaller sizes",
    )


def _dtype_mask(operator: Operator, profile: Profile) -> int:
    """Return a mask with one bit per combination of dtypes, set if the contract accepts it.

    The last axis varies fastest. 0 where no combination is refused, and none is looked up.
    """
    dtype_checks = [listed for listed in operator.checks if isinstance(listed, checks.DtypeCheck)]
    if not dtype_checks:
        return 0
    mask = 0
    for code, words in enumerate(itertools.product(*(axis.words for axis in operator.dtype_axes))):
        chosen = dict(zip((axis.name for axis in operator.dtype_axes), words, strict=True))
        specs = {
            tensor.name: TensorSpec((), chosen.get(tensor.dtype, tensor.dtype))
            for tensor in operator.inputs
            if not tensor.optional
        }
        call = Inspection(operator, Arguments({}), Target(profile), specs, profile.device, None)
        mask |= int(all(_passes(listed, call) for listed in dtype_checks)) << code
    return mask


@lru_cache(maxsize=CACHED_CALLS)
def _cached_case(operator: Operator, signature: Signature, target: Target) -> Case:
    names_given, values, *_ = signature
    arguments = Arguments(zip(names_given, values, strict=True))
    return check_uncached(operator.on(target.profile), arguments, target)


@cache
def rules_type(operator: Operator) -> Any:
    """Return the NamedTuple of the rules of a product."""
    return namedtuple("Rules", ["supported", "dtypes", *operator.rule_names])


@lru_cache(maxsize=256)
def rules_on(operator: Operator, profile: Profile) -> Any:
    """Return the integers of a profile that planners need; ``NOT_DOCUMENTED`` for others."""
    limits = profile.documented_limits(operator.name)
    facts = {**limits, **profile.release_switches(operator.name)}
    given = operator.rules_of
    stated = [
        given[name](profile) if name in given else facts.get(name, NOT_DOCUMENTED)
        for name in operator.rule_names
    ]
    supported, mask = operator.supported_by(profile), _dtype_mask(operator, profile)
    return rules_type(operator)(int(supported), mask, *stated)


def _passes(dtype_check: checks.DtypeCheck, call: Inspection) -> bool:
    try:
        dtype_check(call)
    except AclnnError:
        return False
    return True


def _pickled(case: Case) -> tuple[Any, ...]:
    """Pickle a call by its arguments, to be checked again: rows are of classes made at run time."""
    return check, (case.operator, case.arguments, case.target)


copyreg.pickle(Case, _pickled)
