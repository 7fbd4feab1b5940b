"""Which operator changes a training, and by how much: one run for each, beside a control.

Two runs of a training differ whatever changed a bit. So every difference is shown beside that of a
control: the program as it is, with one weight moved by one unit in the last place.

Source: specification page ``emulate``.
"""

import random
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from math import inf, isnan, nan
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.overrides import TorchFunctionMode

from npu_sim.cores import Profile
from npu_sim.framework.target import CoreOrder, Limits, Target
from npu_sim.language import Text
from npu_sim.plans.answers import Printed, Progress
from npu_sim.status import UsageError
from npu_sim.torch.emulation import (
    INTEGERS,
    Emulation,
    NoCallWarning,
    differences,
    emulate,
    operators_of_models,
)

STANDS_OUT = 2.0
"""Times the difference of the control from which a difference stands out."""
CONTROL, ALL = "control", "all"
"""Names of the run with one weight moved, and of that with all operators."""
QUANTITIES = ("gradient", "logits", "log_probabilities", "loss")


@dataclass(frozen=True)
class Variant:
    """A run and its differences from the run of the program as it is."""

    name: str
    """An operator; ``all`` of them; or ``control``."""
    calls: int = 0
    """Calls of the operator, forward; backward where the product has no forward."""
    differing_share: float | None = None
    """Fraction of the elements of the first call that differ; None where it is not compared."""
    relative_rms: float | None = None
    """Root mean square of that difference over that of the values."""
    gradient: float = 0.0
    """Norm of the difference of the first gradient of all parameters over that of the gradient."""
    worst_gradient: float = 0.0
    """The same of the parameter that differs most."""
    worst_parameter: str = ""
    """Name of this parameter."""
    logits: float | None = None
    """Norm of the difference of the first logits over theirs; None without ``cross_entropy``."""
    log_probabilities: float | None = None
    """Mean absolute difference of the log-probabilities of the first labels."""
    losses: tuple[float | None, ...] = ()
    """Difference of the loss at each step; infinity where one is NaN, NaN where both are, None
    where no loss was seen."""

    @property
    def loss(self) -> float | None:
        """Root mean square of the differences of the loss; NaN where both losses always are.

        None where no loss was seen.
        """
        seen = [difference for difference in self.losses if difference is not None]
        known = [difference for difference in seen if not isnan(difference)]
        if not known:
            return nan if seen else None
        return float(np.sqrt(np.mean(np.square(known))))

    def as_dict(self) -> dict[str, Any]:
        """Return the row as plain data."""
        return {**vars(self), "losses": list(self.losses), "loss": self.loss}


@dataclass(frozen=True, repr=False)
class Ablation(Printed):
    """Differences of a training by operator, from :func:`npu_sim.study.ablation`."""

    target: Target
    """Product, SoC, release and switches."""
    seed: int
    """Seed of all random numbers."""
    losses: tuple[float | None, ...]
    """Losses of the program as it is; None at a step without one."""
    control: Variant
    """The program with one weight moved by one unit in the last place."""
    rows: tuple[Variant, ...]
    """Every operator alone, and all of them."""
    emulation: Emulation
    """Report of the run with all operators: what was replaced and what was left."""

    @property
    def missing(self) -> list[str]:
        """Sentences on what was not seen of the program, so that it is not compared."""
        found: list[str] = []
        without = self.losses.count(None)
        if without:
            found.append(
                Text(
                    "no loss at {count} of {steps} steps: backward is called on no tensor of one "
                    "element",
                    count=without,
                    steps=len(self.losses),
                )
            )
        if self.control.logits is None:
            found.append(
                Text("no logits: torch.nn.functional.cross_entropy is not called with labels")
            )
        return found

    def stands_out(self, row: Variant) -> list[str]:
        """Return the quantities of a row that stand out from the control."""
        return [
            name
            for name in QUANTITIES
            if (getattr(row, name) or 0.0) > STANDS_OUT * (getattr(self.control, name) or 0.0)
        ]

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain data, the form ``--json`` prints."""
        return {
            "product": self.target.profile.name,
            "soc": self.target.profile.soc,
            "release": self.target.profile.release,
            "deterministic": self.target.deterministic,
            "core_order": self.target.order.core_order,
            "seed": self.seed,
            "steps": len(self.losses),
            "losses": list(self.losses),
            "missing": self.missing,
            "control": self.control.as_dict(),
            "rows": [{**row.as_dict(), "stands_out": self.stands_out(row)} for row in self.rows],
            "emulation": self.emulation.as_dict(),
        }


class EnoughStepsError(BaseException):
    """Ends a program after its last step that counts; no Exception, which programs may catch."""


@dataclass
class Seen:
    """What one run showed."""

    steps: int
    """Steps after which the run ends."""
    losses: list[float | None] = field(default_factory=list)
    """Mean of the losses of every step; None without one."""
    gradients: dict[str, Tensor] = field(default_factory=dict)
    """Gradients of the first step, by parameter."""
    logits: Tensor | None = None
    """First logits of ``cross_entropy``, as rows of classes."""
    labels: Tensor | None = None
    """Their labels."""
    waiting: list[float] = field(default_factory=list)
    """Losses since the last step."""
    names: dict[int, str] = field(default_factory=dict)
    """Names of parameters by identity."""

    def log_probabilities(self) -> Tensor | None:
        """Return the log-probabilities of the labels, without ignored rows; None without logits."""
        if self.logits is None or self.labels is None:
            return None
        counted = self.labels >= 0
        rows = self.logits[counted].double().log_softmax(-1)
        return rows.gather(-1, self.labels[counted][:, None])

    def before_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """Keep the loss of a step, and the first gradient; end the run after the last step."""
        if not self.losses:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        name = self.names.get(id(parameter), f"parameter {len(self.gradients)}")
                        self.gradients[name] = parameter.grad.detach().clone()
        self.losses.append(float(np.mean(self.waiting)) if self.waiting else None)
        self.waiting.clear()
        if len(self.losses) >= self.steps:
            raise EnoughStepsError

    def see_logits(self, input: Tensor, target: Tensor, *_: Any, **__: Any) -> None:
        """Keep the first logits and labels; not targets that are probabilities."""
        if self.logits is None and not target.is_floating_point() and input.dim() > 1:
            rows = input.detach().movedim(1, -1)
            self.logits = rows.reshape(-1, rows.shape[-1]).clone()
            self.labels = target.detach().reshape(-1).clone()


class _Logits(TorchFunctionMode):  # type: ignore[misc]
    """Function mode that shows logits."""

    def __init__(self, seen: Seen) -> None:
        super().__init__()
        self.seen = seen

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is functional.cross_entropy:
            self.seen.see_logits(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


@contextmanager
def _watched(seen: Seen, moves_weight: bool) -> Iterator[None]:
    """See a run; move one weight when its model is first called."""
    run = torch.autograd._engine_run_backward
    is_moved = not moves_weight

    def observed_run(tensors: Sequence[Tensor], *rest: Any, **options: Any) -> Any:
        if len(tensors) == 1 and tensors[0].numel() == 1:
            seen.waiting.append(float(tensors[0].detach()))
        return run(tensors, *rest, **options)

    def before_module(module: torch.nn.Module, _: Any) -> None:
        nonlocal is_moved
        if not seen.names:
            seen.names.update({id(p): name for name, p in module.named_parameters()})
        if not is_moved:
            is_moved = move_weight(module)

    with ExitStack() as stack:
        for hook in (
            register_optimizer_step_pre_hook(seen.before_step),
            register_module_forward_pre_hook(before_module),
        ):
            stack.callback(hook.remove)
        stack.enter_context(patch.object(torch.autograd, "_engine_run_backward", observed_run))
        stack.enter_context(_Logits(seen))
        yield


MATRIX_AXES = 2


def move_weight(model: torch.nn.Module) -> bool:
    """Move the largest element of the first matrix by one unit in the last place, away from zero.

    An embedding is no such matrix: its largest element may belong to a word that does not occur.
    Returns whether the model has one.
    """
    words = {module.weight for module in model.modules() if isinstance(module, torch.nn.Embedding)}
    for weight in model.parameters():
        if weight.dim() == MATRIX_AXES and weight.dtype in INTEGERS and weight not in words:
            place = int(weight.detach().abs().argmax())
            weight.detach().reshape(-1)[place : place + 1].view(INTEGERS[weight.dtype]).add_(1)
            return True
    return False


def relative(other: Iterable[Tensor], base: Iterable[Tensor]) -> float:
    """Return the norm of the difference of tensors over the norm of the second ones.

    Infinity where one element of two is infinite or NaN.
    """
    difference = scale = 0.0
    for first, second in zip(other, base, strict=True):
        difference += float(differences(first, second).square().sum())
        scale += float(second[second.isfinite()].double().square().sum())
    if scale == 0.0:
        return 0.0 if difference == 0.0 else float("inf")
    return float(np.sqrt(difference / scale))


def _variant(name: str, seen: Seen, base: Seen, emulation: Emulation | None = None) -> Variant:
    """Return the differences of a run from the run of the program as it is."""
    shared = [parameter for parameter in base.gradients if parameter in seen.gradients]
    by_parameter = {
        parameter: relative([seen.gradients[parameter]], [base.gradients[parameter]])
        for parameter in shared
    }
    worst = max(by_parameter, key=lambda parameter: by_parameter[parameter], default="")
    logits = log_probabilities = None
    if seen.logits is not None and base.logits is not None:
        logits = relative([seen.logits], [base.logits])
        own, expected = seen.log_probabilities(), base.log_probabilities()
        if own is not None and expected is not None and own.numel():
            log_probabilities = float(differences(own, expected).abs().mean())
    changes = None
    if emulation is not None:
        first = (found for (operator, _), found in emulation.changes.items() if operator == name)
        changes = next(first, None)
    return Variant(
        name,
        calls=0 if emulation is None else _calls(name, emulation),
        differing_share=None if changes is None else changes.differing_share,
        relative_rms=None if changes is None else changes.relative_rms,
        gradient=relative(
            [seen.gradients[parameter] for parameter in shared],
            [base.gradients[parameter] for parameter in shared],
        ),
        worst_gradient=by_parameter.get(worst, 0.0),
        worst_parameter=worst,
        logits=logits,
        log_probabilities=log_probabilities,
        losses=tuple(
            _distance(own, expected)
            for own, expected in zip(seen.losses, base.losses, strict=False)
        ),
    )


def _distance(own: float | None, expected: float | None) -> float | None:
    """Return the difference of two losses; infinity where one is NaN, None without two."""
    if own is None or expected is None:
        return None
    if own == expected:
        return 0.0
    return inf if isnan(own) is not isnan(expected) else abs(own - expected)


def _calls(name: str, emulation: Emulation) -> int:
    counts = emulation.counts()
    return sum(counts.values()) if name == ALL else counts.get(name, 0)


def ablation(
    run: Callable[[], Any],
    product: str | Path | Profile | None = None,
    *,
    steps: int = 20,
    soc: str | None = None,
    release: str | None = None,
    deterministic: bool = False,
    core_order: CoreOrder = "sequential",
    limits: Limits = "documented",
    seed: int = 0,
    fused: Iterable[str] | None = None,
    progress: Progress | None = None,
) -> Ablation:
    """Train with every operator of a product alone, with all of them, and with a control.

    Parameters
    ----------
    run
        Function without arguments that builds the model and trains it; it is called once for each
        row, with the same seed. A call ends after its last step, by an exception that is not an
        Exception.
    steps
        Steps of the optimizer.
    seed
        Seed of random, of NumPy, of PyTorch and of a random core order.
    fused
        Operators to compare; all that the model uses when left out.
    progress
        Function that is called with the name of a run and the fraction of runs that are done.
    product, soc, release, deterministic, core_order, limits
        As for :func:`npu_sim.torch.use`.

    Raises
    ------
    UsageError
        For a program that makes no step of an optimizer, or in which no call is replaced, and for
        fewer than one step.
    """
    if steps < 1:
        raise UsageError("steps", "steps = {steps} is less than 1", "1 or more", steps=steps)
    emulated = partial(
        emulate,
        product,
        soc=soc,
        release=release,
        deterministic=deterministic,
        core_order=core_order,
        seed=seed,
        limits=limits,
    )
    named = None if fused is None else list(fused)
    return _Program(run, steps, seed, emulated, progress).ablation(named)


@dataclass(frozen=True)
class _Program:
    """A program that trains, and how it is run."""

    run: Callable[[], Any]
    steps: int
    seed: int
    emulated: Callable[..., AbstractContextManager[Emulation]]
    """Returns the block in which operators (``fused``) are emulated."""
    progress: Progress | None

    def trained(
        self, name: str, done: float, block: AbstractContextManager[Any]
    ) -> tuple[Seen, Any]:
        """Run the program in a block; return what it showed, and what the block yields."""
        if self.progress is not None:
            self.progress(name, done)
        _seed(self.seed)
        seen = Seen(self.steps)
        watched = _watched(seen, moves_weight=name == CONTROL)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoCallWarning)  # an error, which says more
            with block as report, watched, suppress(EnoughStepsError):
                self.run()
        if not seen.losses:
            raise UsageError(
                "run",
                "the program makes no step of an optimizer of PyTorch",
                "a program that trains: backward(), then the step of an optimizer",
            )
        return seen, report

    def ablation(self, fused: list[str] | None) -> Ablation:
        """Run the program as it is, with all operators, as control, and with every operator."""
        base, _ = self.trained("as written", 0.0, nullcontext())
        every, emulation = self.trained(ALL, 0.0, self.emulated(fused=fused))
        if not emulation.counts():
            raise UsageError(
                "run",
                "no call of the program is replaced: there is no operator to compare",
                "npu-sim emulate, without --ablate, lists what was not recognised, and what "
                "{product} refuses",
                product=emulation.target.profile.name,
            )
        operators = [name for name in operators_of_models() if name in emulation.counts()]
        count = len(operators) + 3
        control, _ = self.trained(CONTROL, 2 / count, nullcontext())
        rows = []
        for position, name in enumerate(operators, 3):
            seen, report = self.trained(name, position / count, self.emulated(fused=[name]))
            rows.append(_variant(name, seen, base, report))
        rows.append(_variant(ALL, every, base, emulation))
        return Ablation(
            emulation.target,
            self.seed,
            tuple(base.losses),
            _variant(CONTROL, control, base),
            tuple(rows),
            emulation,
        )


def _seed(seed: int) -> None:
    """Seed the random numbers that a program may draw."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
