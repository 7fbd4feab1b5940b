"""An operator as everything above it sees it: it reads calls, checks them, and says them in whole numbers."""

import itertools
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from npu_sim.cores import Device, Profile
from npu_sim.framework import patterns
from npu_sim.framework.arguments import Arguments
from npu_sim.framework.axes import Number, Switch, Word
from npu_sim.framework.case import Case, Form, Inspection
from npu_sim.framework.checks import Check, DtypeCheck, NothingToDo
from npu_sim.framework.memory import Memory, Signature, signature_of
from npu_sim.framework.reading import Reader
from npu_sim.framework.rows import PASSES, RowPlanner, row_planner
from npu_sim.framework.target import Limits
from npu_sim.numbers.formats import TensorSpec
from npu_sim.status import AclnnError

FORMS = 1024
"""So many forms of calls are remembered."""


class Operator(Reader):
    """A declared operator; its fields are those of a declaration."""

    @cached_property
    def planner(self) -> RowPlanner:
        """The contract and the planner in whole numbers."""
        return row_planner(self)

    def supported_by(self, profile: Profile) -> bool:
        """Whether a product has the operator."""
        return self.name in profile.product.operators or profile.name in self.products

    def check(
        self, arguments: Arguments, profile: Profile, deterministic: bool, limits: Limits
    ) -> Case:
        """Run the contract's checks in the product's order, and see that there is a tiling; calls that passed are remembered.

        Raises
        ------
        AclnnError
            With the status of the first check that fails.
        """
        signature = signature_of(arguments, self.input_names, profile, deterministic, limits)
        return self.remembered(
            signature, lambda: self.checked(arguments, profile, deterministic, limits)
        )

    def remembered(self, signature: Signature | None, make: Callable[[], Case]) -> Case:
        """Return the call of a signature, made anew when there is none or it was not made twice; None stands for no signature."""
        return make() if signature is None else self._memory.get(signature, make)

    @cached_property
    def _memory(self) -> Memory[Case]:
        return Memory(256, Case.keep)

    def checked(
        self, arguments: Arguments, profile: Profile, deterministic: bool, limits: Limits
    ) -> Case:
        """Do what :meth:`check` does, remembering nothing."""
        known = _known(self, profile)
        call = self._inspection(arguments, profile, deterministic, limits, known)
        form = call.form
        if form in known.passed:
            case = self._passed_at_once(call)
            if case is not None:
                return case
            call = self._inspection(arguments, profile, deterministic, limits, known)
        for check in self._checks_beyond_form if form in known.passed else self.checks:
            if isinstance(check, NothingToDo) and check.holds(call):
                return call.case(empty=True)
            check(call)
        if len(known.passed) < FORMS:
            known.passed.add(form)
        case = call.case(empty=False)
        if not case.is_tiled:
            raise AclnnError(self.planner_failure, *self._failure_words(case))
        return case

    def _inspection(
        self,
        arguments: Arguments,
        profile: Profile,
        deterministic: bool,
        limits: Limits,
        known: "_Known",
    ) -> Inspection:
        specs = arguments.given(self.tensor_names)
        return Inspection(
            self,
            arguments,
            profile,
            limits,
            deterministic,
            specs,
            patterns.Sizes(),
            known.device,
            known.rules,
        )

    def _passed_at_once(self, call: Inspection) -> Case | None:
        """Return the checked call if it passes every check, asked of its row together; None when one is to say what it finds.

        For calls whose form passed before: what asks for nothing else is not asked again.
        """
        try:
            for check in self._checks_beyond_row:
                check(call)
            if self.planner.refused(call.row, call.device, call.rules) != PASSES:
                return None
            case = call.case(empty=False)
            return case if case.is_tiled else None
        except Exception:  # whatever a check makes of a call that another one refuses
            return None

    @cached_property
    def _checks_beyond_form(self) -> tuple[Callable[[Any], None], ...]:
        return tuple(
            check
            for check in self.checks
            if not (isinstance(check, Check) and check.asks_form_alone(self))
        )

    @cached_property
    def _checks_beyond_row(self) -> tuple[Callable[[Any], None], ...]:
        return tuple(
            check
            for check in self._checks_beyond_form
            if not (isinstance(check, Check) and check.is_whole_row)
        )

    def _failure_words(self, case: Case) -> tuple[str, str, str]:
        if self.planner_words is not None:
            return self.planner_words(case)
        return (
            self.inputs[0].name,
            f"{self.title} has no tiling for this call on {case.profile.title}",
            "try smaller sizes",
        )

    def row_of(self, call: Inspection) -> Any:
        """Return a call in whole numbers, as :mod:`npu_sim.framework.rows` says."""
        values = [
            call.size(axis.name) if isinstance(axis, Number) else self._code(axis, call)
            for axis in self.axes
        ]
        common = [int(call.limits == "hardware"), int(call.deterministic)]
        return self.planner.row(*values, *common, *(call.size(one.name) for one in self.derived))

    def _code(self, axis: Word | Switch, call: Inspection) -> int:
        try:
            value = self._value(axis, call.sizes, call.arguments)
        except KeyError:  # the dtype of an optional tensor that was left out
            value = axis.default
        return int(value) if isinstance(axis, Switch) else axis.words.index(str(value))

    def rules(self, profile: Profile) -> Any:
        """Return what planners need of a profile, as a NamedTuple of whole numbers; -1 for a limit that is not documented."""
        return _known(self, profile).rules

    def dtype_mask(self, profile: Profile) -> int:
        """Return one bit for every combination of dtypes that the contract takes, the last axis fastest."""
        steps = [check for check in self.checks if isinstance(check, DtypeCheck)]
        mask = 0
        for code, words in enumerate(itertools.product(*(axis.words for axis in self.dtype_axes))):
            chosen = dict(zip((axis.name for axis in self.dtype_axes), words, strict=True))
            specs = {
                one.name: TensorSpec((), chosen.get(one.dtype, one.dtype))
                for one in self.inputs
                if not one.optional
            }
            call = Inspection(
                self,
                Arguments({}),
                profile,
                "documented",
                False,
                specs,
                patterns.Sizes(),
                profile.device,
                None,
            )
            mask |= int(all(_passes(check, call) for check in steps)) << code
        return mask


class _Known(NamedTuple):
    """What does not change from call to call of an operator on a product: its integers, and the forms of calls that passed every check."""

    device: Device
    rules: Any
    passed: set[Form]


@lru_cache(maxsize=256)
def _known(operator: Operator, profile: Profile) -> _Known:
    facts = {**profile.documented_limits(operator.name), **profile.release_switches(operator.name)}
    own = operator.rules_of
    stated = [
        facts.get(name, -1) if name not in own else own[name](profile)
        for name in operator.rule_names
    ]
    rules = operator.planner.rules(
        int(operator.supported_by(profile)), operator.dtype_mask(profile), *stated
    )
    return _Known(profile.device, rules, set())


def _passes(check: Check, call: Inspection) -> bool:
    try:
        check(call)
    except AclnnError:
        return False
    return True
