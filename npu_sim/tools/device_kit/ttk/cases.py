"""Calls as cases of the vendor's operator test kit, which runs one kernel at a time.

A case has the inputs of the kernel, so earlier launches of the call are computed here: the
rows of EmbeddingDenseGradV2 are sorted.

Source: specification page ``ttk``, "cases.csv".
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from npu_sim.cores import Profile
from npu_sim.framework.execution import Result
from npu_sim.language import Text
from npu_sim.numbers.arrays import Array, Arrays
from npu_sim.numbers.formats import TensorSpec, numpy_dtype
from npu_sim.operators import run
from npu_sim.operators.shared.study import study_call
from npu_sim.orders.claims import OpenRule
from npu_sim.plans.model import Plan
from npu_sim.tools.device_kit.choice import KitCall
from npu_sim.tools.device_kit.lines import arguments_of_line, kind_of_values, plan_or_error, planned
from npu_sim.tools.device_kit.results import Line
from npu_sim.tools.device_kit.run_on_device import CALLS, make_input
from npu_sim.verdicts.judging import open_rules_of

MOST_BYTES = 8 << 20
"""Most bytes of a case: the simulator takes minutes for large shapes. Chosen ones have at most
2 MiB, but for the paths that begin at larger calls."""


@dataclass(frozen=True)
class Kernel:
    """How a case names inputs, outputs and attributes of an operator, in the kernel's order.

    Attributes
    ----------
    inputs, outputs
        Names of npu_sim.
    attributes
        Those of the operator that the kernel takes.
    fixed
        Attributes of the kernel that the operator does not have.
    values
        Kinds of values of inputs that a device would compute, see ``run_on_device.Call``.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: tuple[str, ...] = ()
    fixed: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)


KERNELS = {
    "rms_norm": Kernel(("x", "gamma"), ("y", "rstd"), ("epsilon",)),
    "rms_norm_grad": Kernel(
        ("dy", "x", "rstd", "gamma"),
        ("dx", "dgamma"),
        fixed={"epsilon": 1e-6},
        values={"rstd": "positive"},
    ),
    "swi_glu": Kernel(("x",), ("y",), ("dim",)),
    "swi_glu_grad": Kernel(("y_grad", "x"), ("x_grad",), ("dim",)),
    "cross_entropy_loss_grad": Kernel(
        ("grad_loss", "log_prob", "target", "weight", "grad_zloss", "lse_for_zloss"),
        ("x_grad",),
        ("reduction", "ignore_index", "label_smoothing"),
        values={"log_prob": "negative"},
    ),
    "embedding_dense_backward": Kernel(
        ("grad", "indices"), ("grad_weight",), ("num_weights", "padding_idx", "scale_grad_by_freq")
    ),
    "apply_adam_w_v2": Kernel(
        ("var", "m", "v", "grad", "step", "max_grad_norm"),
        ("var_out", "m_out", "v_out", "max_grad_norm_out"),
        ("lr", "beta1", "beta2", "weight_decay", "eps", "amsgrad", "maximize"),
    ),
}
"""Operators of Ascend 950 whose kernel the kit runs."""
SORTED_ROWS = "EmbeddingDenseGradV2"
"""Kernel that takes sorted indices and their positions, and writes only the rows they name."""
DONE_HERE = ("Sort", "ZerosLike")
"""Launches beside the kernel whose work the case contains."""


def line_of_case(number: int, call: KitCall, profile: Profile) -> dict[str, Any]:
    """Return the line of a call in ``calls.jsonl``, with all inputs of the operator."""
    operator, kinds = call.operator, KERNELS[call.operator.name].values
    values = {**CALLS[operator.name].values, **kinds}
    specs = {name: call.arguments.get(name) for name in operator.input_names}
    inputs = {
        name: {
            "shape": list(spec.shape),
            "dtype": spec.dtype,
            "seed": number << 8 | place,
            **kind_of_values(values.get(name), call.values, special=False),
        }
        for place, (name, spec) in enumerate(specs.items())
        if isinstance(spec, TensorSpec)
    }
    attributes = {
        attribute.name: call.arguments.get(attribute.name, attribute.default)
        for attribute in operator.attributes
    }
    return {
        "number": number,
        "operator": operator.name,
        "inputs": inputs,
        "attributes": attributes,
        "planned": [planned(call, profile, deterministic=False)],
    }


@dataclass(frozen=True)
class Case:
    """A call of a kit as the kernel that runs, with its inputs and its bits.

    Attributes
    ----------
    line, profile
        The call and its device.
    """

    line: Line
    profile: Profile

    @cached_property
    def plan(self) -> Plan | None:
        """The plan; None for a call that is refused or launches no kernel."""
        made = plan_or_error(self.line, self.profile, deterministic=False)
        return made if isinstance(made, Plan) and made.kernel else None

    @cached_property
    def tensors(self) -> Arrays:
        """The inputs of the operator."""
        return {
            name: make_input(tensor.model_dump()).view(numpy_dtype(tensor.dtype))
            for name, tensor in self.line.inputs.items()
        }

    @property
    def kernel(self) -> str:
        """Name of the kernel as the kit spells it, such as ``rms_norm``."""
        assert self.plan is not None
        return re.sub(r"(?<!^)(?=[A-Z])", "_", self.plan.kernel).lower()

    @property
    def is_sorted(self) -> bool:
        """Whether the kernel takes sorted rows."""
        return self.plan is not None and self.plan.kernel == SORTED_ROWS

    @cached_property
    def inputs(self) -> list[Array | None]:
        """The inputs of the kernel in its order; None for an optional one that is not given."""
        given: list[Array | None] = [
            self.tensors.get(name) for name in KERNELS[self.line.operator].inputs
        ]
        if self.is_sorted:
            grad, indices = self.tensors["grad"], self.tensors["indices"].reshape(-1)
            order = np.argsort(indices, kind="stable")
            return [grad, indices[order], order.astype(np.int32)]
        # The kernel takes a scalar loss as one element.
        return [None if array is None else np.atleast_1d(array) for array in given]

    @cached_property
    def attributes(self) -> dict[str, Any]:
        """The attributes of the kernel."""
        kernel = KERNELS[self.line.operator]
        return {name: self.line.attributes[name] for name in kernel.attributes} | {**kernel.fixed}

    @cached_property
    def _result(self) -> Result:
        arguments: dict[str, Any] = {**self.tensors, **self.line.attributes}
        return run(self.line.operator, product=self.profile, **arguments)

    @cached_property
    def outputs(self) -> dict[str, Array | None]:
        """What npu_sim computes, in the order of the kernel; None for an output that is absent."""
        made = self._result.outputs
        return {name: made.get(name) for name in KERNELS[self.line.operator].outputs}

    @cached_property
    def _rules(self) -> list[OpenRule]:
        """The parts of the call's rule that are a model; the kit decides what is inferred."""
        call = {**self.tensors, **self.line.attributes, "product": self.profile}
        rules = open_rules_of(study_call(self.line.operator, call, draws=False), self._result)
        return [rule for rule in rules if not rule.is_inferred]

    @cached_property
    def models(self) -> tuple[str, ...]:
        """Outputs whose last bits are a model: they are judged by ``verify``, not by equality."""
        ruled = {rule.output for rule in self._rules}
        return tuple(name for name in self.compared if name in ruled)

    @cached_property
    def compared(self) -> Arrays:
        """Outputs that the kit compares bit for bit.

        Left out are those that depend on the order of arrival or on a race, that are not modelled,
        that have nan, which has many bit patterns, or no elements.
        """
        assert self.plan is not None
        fixed = {order.output for order in self.plan.order if order.fixed and not order.race}
        unknown = {rule.output for rule in self._rules if np.isneginf(rule.lowest).all()}
        return {
            name: array
            for name, array in self.outputs.items()
            if array is not None
            and array.size
            and name in fixed - unknown
            and not np.isnan(array.astype(np.float32)).any()
        }

    @property
    def bytes(self) -> int:
        """Bytes of the inputs, and of the outputs that are compared."""
        inputs = sum(array.nbytes for array in self.inputs if array is not None)
        return inputs + sum(array.nbytes for array in self.compared.values())

    @property
    def arguments(self) -> str:
        """The arguments of the call as text."""
        given = arguments_of_line(self.line).items()
        return ", ".join(f"{name} {value}" for name, value in given)

    @property
    def remark(self) -> str:
        """The call, and which outputs are a model."""
        call = Text(
            "npu_sim {operator}: {arguments}", operator=self.line.operator, arguments=self.arguments
        )
        if not self.models:
            return str(call)
        text = "{call}; the last bits of {outputs} are a model"
        return str(Text(text, call=call, outputs=", ".join(self.models)))

    def left_out(self) -> str:
        """Return why the call is no case; empty for one that is."""
        made = plan_or_error(self.line, self.profile, deterministic=False)
        if not isinstance(made, Plan):
            return made.message
        others = {launch.kernel for launch in made.launches} - {made.kernel, *DONE_HERE}
        if not made.kernel:
            return Text("no kernel runs")
        if others:
            return Text("the call also launches {kernels}", kernels=", ".join(sorted(others)))
        sizes = [TensorSpec(given.shape, given.dtype).nbytes for given in self.line.inputs.values()]
        if sum(sizes) > MOST_BYTES or self.bytes > MOST_BYTES:
            return Text("its data has more than {mib} MiB", mib=MOST_BYTES >> 20)
        if self.is_sorted and not self._names_every_row:
            return Text("the kernel does not write the rows of grad_weight that no index names")
        return "" if self.compared else Text("no output has bits that can be compared")

    @property
    def _names_every_row(self) -> bool:
        """Whether the indices name every row of the result, the row of padding_idx left out."""
        named = np.setdiff1d(self.tensors["indices"], [self.line.attributes["padding_idx"]])
        return bool(named.size == self.line.attributes["num_weights"])
