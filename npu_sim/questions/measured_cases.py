"""The calls that one measured launch can be: a profile says shapes and dtypes of a kernel, and nothing of attributes and switches."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

from npu_sim.cores import Profile
from npu_sim.files.measured_launch import MeasuredLaunch
from npu_sim.framework.arguments import Attribute
from npu_sim.framework.axes import Switch, Word
from npu_sim.framework.operator import Operator
from npu_sim.framework.planning import plan_of
from npu_sim.framework.target import Target
from npu_sim.numbers.formats import TensorSpec
from npu_sim.plans.model import Launch, Plan
from npu_sim.status import AclnnError, UsageError


@dataclass(frozen=True)
class PossibleCall:
    """One call that a launch can be.

    Attributes
    ----------
    arguments
        The call, as :func:`npu_sim.plan` takes it.
    plan
        Its plan.
    place
        Position of the launch among those of the plan.
    """

    arguments: dict[str, Any]
    plan: Plan
    place: int

    @property
    def launch(self) -> Launch:
        """The launch that was measured, as it is planned."""
        return self.plan.launches[self.place]


def possible_calls(
    operator: Operator, launch: MeasuredLaunch, profile: Profile
) -> tuple[list[PossibleCall], AclnnError | None]:
    """Return the calls of an operator that start such a launch, those that plan alike once; and the refusal when there is none.

    Dtypes are those of the kernel first, then every other one whose cast makes them.
    """
    found: dict[tuple[Any, ...], PossibleCall] = {}
    refusal: AclnnError | None = None
    for arguments, deterministic in _trials(operator, launch):
        try:
            built = operator.build(arguments, infer=True)
            planned = plan_of(operator.check(built, Target(profile, deterministic)))
        except AclnnError as error:
            refusal = refusal or error
            continue
        except (
            UsageError
        ):  # a launch that lacks what the operator needs, or has what is no value of it
            continue
        for place, one in enumerate(planned.launches):
            if one.kernel == launch.kernel and _sees(one, launch):
                found.setdefault(_facts(planned), PossibleCall(arguments, planned, place))
    return list(found.values()), None if found else refusal


def _facts(planned: Plan) -> tuple[Any, ...]:
    launches = tuple(
        (one.kernel, *(tensor.dtype for tensor in (*one.inputs, *one.outputs)))
        for one in planned.launches
    )
    return planned.path, planned.tiling_key, planned.block_dim, launches


def _sees(planned: Launch, measured: MeasuredLaunch) -> bool:
    """Whether a planned launch reads and writes what the measured one did: dtypes, and elements of every tensor of the call."""
    for ours, theirs in ((planned.inputs, measured.inputs), (planned.outputs, measured.outputs)):
        for tensor, spec in zip(ours, theirs or (), strict=False):
            if spec is not None and (tensor.dtype, prod(tensor.shape)) != (spec.dtype, spec.numel):
                return False
    return True


def _trials(operator: Operator, launch: MeasuredLaunch) -> Iterator[tuple[dict[str, Any], bool]]:
    given = {
        one.name: spec
        for one, spec in zip(operator.inputs, launch.inputs or (), strict=False)
        if spec is not None
    }
    dtypes = [_dtype_choices(operator, name, spec) for name, spec in given.items()]
    attributes = [_choices(operator, one, launch) for one in operator.attributes]
    names = [one.name for one in operator.attributes]
    for chosen in itertools.product(*dtypes):
        tensors = dict(zip(given, chosen, strict=True))
        for values in itertools.product(*attributes):
            said = {
                name: value for name, value in zip(names, values, strict=True) if value is not None
            }
            for deterministic in (False, True):
                yield {**tensors, **said}, deterministic


def _dtype_choices(operator: Operator, name: str, spec: TensorSpec) -> list[TensorSpec]:
    """Return the tensor with the kernel's own dtype, then with those that the call may have had before a cast."""
    axis = next(
        (axis for axis in operator.dtype_axes if axis.name == operator.argument(name).dtype), None
    )
    words = () if axis is None else axis.words
    return [
        spec,
        *(
            TensorSpec(spec.shape, word, spec.contiguous, spec.storage_format)
            for word in words
            if word != spec.dtype
        ),
    ]


def _choices(operator: Operator, attribute: Attribute, launch: MeasuredLaunch) -> list[Any]:
    """Return the values to try of an attribute; None leaves it at its default."""
    axis = next((axis for axis in operator.axes if axis.name == attribute.name), None)
    if isinstance(axis, Word):
        return list(axis.words)
    if isinstance(axis, Switch):
        return [False, True]
    return [None] if not attribute.required else _numbers(launch)


def _numbers(launch: MeasuredLaunch) -> list[int]:
    """Return the whole numbers that shapes suggest: sizes of the outputs, and how many times a tensor is as large as another one."""
    tensors = [
        spec for spec in (*(launch.inputs or ()), *(launch.outputs or ())) if spec is not None
    ]
    sizes = [size for spec in (launch.outputs or ()) if spec is not None for size in spec.shape]
    counts = [spec.numel for spec in tensors if spec.numel]
    ratios = [
        one // other for one in counts for other in counts if one > other and one % other == 0
    ]
    return list(dict.fromkeys([*sizes, *ratios])) or [1]
