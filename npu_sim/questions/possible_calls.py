"""Possible calls of a measured launch.

A profile records shapes and dtypes of a kernel, but neither attributes nor switches of the call.
"""

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
from npu_sim.language import Text
from npu_sim.numbers.formats import TensorSpec
from npu_sim.plans.model import Launch, Plan
from npu_sim.status import AclnnError, UsageError


@dataclass(frozen=True)
class PossibleCall:
    """One call that a measured launch may belong to."""

    arguments: dict[str, Any]
    """Arguments of :func:`npu_sim.plan`."""
    plan: Plan
    """Plan of the call."""
    place: int
    """Index of the launch in the plan."""

    @property
    def launch(self) -> Launch:
        """The planned launch that corresponds to the measured one."""
        return self.plan.launches[self.place]


def possible_calls(
    operator: Operator, launch: MeasuredLaunch, profile: Profile
) -> tuple[list[PossibleCall], AclnnError | None]:
    """Return the calls of an operator that include such a launch, and the refusal if there is none.

    Of calls with equal `_facts` one is returned. dtypes of the kernel are tried first, then dtypes
    that a cast converts to them.
    """
    calls: dict[tuple[Any, ...], PossibleCall] = {}
    refusal: AclnnError | None = None
    for arguments, deterministic in _trials(operator, launch):
        try:
            built = operator.build(arguments, infer=True)
            planned = plan_of(operator.check(built, Target(profile, deterministic)))
        except AclnnError as error:
            refusal = refusal or error
            continue
        except UsageError:  # the launch lacks an input or has an illegal value
            continue
        for position, candidate in enumerate(planned.launches):
            if candidate.kernel == launch.kernel and _same_tensors(candidate, launch):
                calls.setdefault(_facts(planned), PossibleCall(arguments, planned, position))
    return list(calls.values()), None if calls else refusal


def unknown_argument(operator: Operator, launch: MeasuredLaunch) -> str:
    """Return why no call follows from a launch: shapes that the file lacks; empty if it has them.

    Required integers, such as the number of experts of a token, follow from the output shapes.
    """
    if launch.inputs is None:
        return Text("{name} unknown: input shapes are not in the file", name="tensors")
    if launch.outputs is not None:
        return ""
    names = [
        attribute.name
        for attribute in operator.attributes
        if attribute.required and not isinstance(_axis(operator, attribute), Word | Switch)
    ]
    if names:
        return Text("{name} unknown: output shapes are not in the file", name=", ".join(names))
    return ""


def _facts(planned: Plan) -> tuple[Any, ...]:
    """Return what distinguishes calls: path, tiling key, cores, and kernels with their dtypes."""
    launches = tuple(
        (launch.kernel, *(tensor.dtype for tensor in (*launch.inputs, *launch.outputs)))
        for launch in planned.launches
    )
    return planned.path, planned.tiling_key, planned.block_dim, launches


def _same_tensors(planned: Launch, measured: MeasuredLaunch) -> bool:
    """Return whether dtypes and element counts of all recorded tensors agree."""
    for tensors, specs in ((planned.inputs, measured.inputs), (planned.outputs, measured.outputs)):
        for tensor, spec in zip(tensors, specs or (), strict=False):
            if spec is not None and (tensor.dtype, prod(tensor.shape)) != (spec.dtype, spec.numel):
                return False
    return True


def _trials(operator: Operator, launch: MeasuredLaunch) -> Iterator[tuple[dict[str, Any], bool]]:
    given = {
        tensor.name: spec
        for tensor, spec in zip(operator.inputs, launch.inputs or (), strict=False)
        if spec is not None
    }
    dtypes = [_dtype_choices(operator, name, spec) for name, spec in given.items()]
    attributes = [_choices(operator, attribute, launch) for attribute in operator.attributes]
    names = [attribute.name for attribute in operator.attributes]
    for chosen in itertools.product(*dtypes):
        tensors = dict(zip(given, chosen, strict=True))
        for values in itertools.product(*attributes):
            given_attributes = {
                name: value for name, value in zip(names, values, strict=True) if value is not None
            }
            for deterministic in (False, True):
                yield {**tensors, **given_attributes}, deterministic


def _dtype_choices(operator: Operator, name: str, spec: TensorSpec) -> list[TensorSpec]:
    """Return the tensor with the kernel's dtype, then with dtypes the call may cast from."""
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
    """Return the values of an attribute to try; None stands for its default."""
    axis = _axis(operator, attribute)
    if isinstance(axis, Word):
        return list(axis.words)
    if isinstance(axis, Switch):
        return [False, True]
    return [None] if not attribute.required else _numbers(launch)


def _axis(operator: Operator, attribute: Attribute) -> object:
    return next((axis for axis in operator.axes if axis.name == attribute.name), None)


def _numbers(launch: MeasuredLaunch) -> list[int]:
    """Return integers suggested by shapes: output sizes, and ratios of element counts."""
    tensors = [
        spec for spec in (*(launch.inputs or ()), *(launch.outputs or ())) if spec is not None
    ]
    sizes = [size for spec in (launch.outputs or ()) if spec is not None for size in spec.shape]
    counts = [spec.numel for spec in tensors if spec.numel]
    ratios = [
        count // other
        for count in counts
        for other in counts
        if count > other and count % other == 0
    ]
    return list(dict.fromkeys([*sizes, *ratios, 1]))
