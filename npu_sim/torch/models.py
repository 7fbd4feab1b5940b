"""Models that transformers builds from a configuration, recorded without weights or data."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from textwrap import shorten
from typing import Any
from unittest.mock import patch

import torch

from npu_sim.files.reading import CONFIG_BYTES, parse_json, read_limited
from npu_sim.status import UsageError, shown, tip
from npu_sim.torch.operators import apply_adam_w_v2 as adam_w
from npu_sim.torch.recorder import Recorder
from npu_sim.torch.recording import Names, Place, Recording

ADAMW = "adamw"
"""The optimizer whose calls can be added."""
MOST_LAYERS = 1024
"""Maximum number of layers, more than any model has."""
OF_POSITION = ("layer_idx", "layer_id", "layer_index", "layer_number")
"""Attributes of a layer that only say which one it is."""
PLAIN = (bool, int, float, str, type(None))
"""Types of values that are compared as they are."""
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


@dataclass(frozen=True)
class Step:
    """A step of a model, as :func:`npu_sim.model` takes it.

    Raises UsageError for a number, a dtype or an optimizer that cannot be.
    """

    batch: int
    """Number of sequences."""
    sequence: int
    """Tokens of a sequence."""
    dtype: str = "bf16"
    """Dtype of weights and activations, one of ``DTYPES``."""
    optimizer: str | None = None
    """``adamw`` or None."""
    inference: bool = False
    """Whether it is a prefill and a decode, in place of a forward and a backward pass."""
    deterministic: bool = False
    """The determinism switch."""

    def __post_init__(self) -> None:
        for name, number in (("batch", self.batch), ("sequence", self.sequence)):
            if number < 1:
                raise UsageError(
                    name, "{name} = {number} is less than 1", "1 or more", name=name, number=number
                )
        if self.dtype not in DTYPES:
            raise UsageError(
                "dtype",
                "dtype = {dtype} is not known",
                "one of: {names}",
                names=", ".join(DTYPES),
                dtype=repr(self.dtype),
            )
        if self.optimizer not in (None, ADAMW):
            raise UsageError(
                "optimizer",
                "optimizer = {optimizer} is not known",
                "one of: {names}",
                names=ADAMW,
                optimizer=shown(self.optimizer),
            )
        if self.inference and self.optimizer is not None:
            raise UsageError(
                "optimizer",
                "optimizer = {optimizer}: an inference updates no parameters",
                "leave out optimizer or inference",
                optimizer=shown(self.optimizer),
            )

    @property
    def passes(self) -> dict[str, int]:
        """Tokens of a sequence in every pass, by the group of its calls."""
        return {"prefill": self.sequence, "decode": 1} if self.inference else {"": self.sequence}

    def run(self, model: Any, tokens: int, is_masked: bool) -> None:
        """Run a pass of the step; ``is_masked``: whether a mask is given."""
        inputs = _inputs(self.batch, tokens, is_masked)
        if not self.inference:
            model(**inputs, labels=inputs["input_ids"]).loss.backward()
            return
        with torch.no_grad():
            model(**inputs)


def recorded_model(
    config: str | Path | Mapping[str, Any], step: Step, sizes: Mapping[str, Any]
) -> Recording:
    """Return the calls of a step of a model on the meta device.

    ``sizes`` replace values of the configuration.

    Raises UsageError as :func:`npu_sim.model` describes.
    """
    values = {**_content(config), **sizes}
    with _offline_transformers() as transformers:
        kind = _require_kind(transformers, values, sizes)
        values.pop("model_type")

        def build(values: Mapping[str, Any]) -> Any:
            return _model_of(transformers, kind, values, DTYPES[step.dtype])

        def record(model: Any, values: Mapping[str, Any]) -> Recording:
            repeats = _merge_equal_layers(model)
            try:
                return _recorded(model, step, repeats)
            except UsageError:  # also from code that takes layers by their numbers
                if max(repeats.values(), default=1) == 1:
                    raise
                return _recorded(build(values), step, {})

        model = None
        try:
            model = build(values)
            return record(model, values)
        except UsageError as error:
            attempt = build if model is None else lambda fewer: record(build(fewer), fewer)
            default = transformers.CONFIG_MAPPING[kind]
            name = _culprit(attempt, values, default) if error.__cause__ is not None else ""
            if not name:
                raise
            value = shown(values[name])
            raise UsageError(
                "config",
                "{name} = {value}: {message}",
                error.hint,
                name=name,
                value=value,
                message=error.message,
            ) from error.__cause__


def _culprit(
    attempt: Callable[[Mapping[str, Any]], Any], values: Mapping[str, Any], default: Any
) -> str:
    """Return the one value without which ``attempt`` succeeds, the last first; empty if none.

    ``default`` has the values that apply without one as attributes: those cannot be the cause.
    """
    for name in reversed(list(values)):
        value, without = values[name], getattr(default, str(name), ...)
        if isinstance(value, PLAIN) and type(value) is type(without) and value == without:
            continue
        try:
            attempt({other: value for other, value in values.items() if other != name})
        except UsageError:
            continue
        return name
    return ""


def _recorded(model: Any, step: Step, repeats: Mapping[torch.nn.Module, int]) -> Recording:
    """Return the calls of a model; ``repeats`` has layers that stand for several."""
    failure: Exception | None = None
    # Models read the values of masks of two dimensions, but not of this form, or make their own.
    for is_masked in (True, False):
        recording = Recording()
        try:
            for group, tokens in step.passes.items():
                recorder = Recorder(repeats, is_engine=step.inference)
                with _deterministic(step.deterministic), recorder.watching():
                    step.run(model, tokens, is_masked)
                recording.add_pass(recorder.recording, group)
            break
        except Exception as error:  # whatever the model's code raises without values
            failure = failure or error
    else:
        assert failure is not None
        raise UsageError(
            "config",
            "the model cannot run without values: {error}",
            "npu-sim record with a script that trains a small model on the CPU",
            error=_in_short(failure),
        ) from failure
    if step.optimizer is not None:
        _add_updates(recording, recorder.names, model, repeats)
    return recording


def _inputs(batch: int, sequence: int, is_masked: bool) -> dict[str, Any]:
    """Return tokens and mask of a forward pass on the meta device."""
    tokens = torch.zeros((batch, sequence), dtype=torch.int64, device="meta")
    shape = (batch, 1, sequence, sequence)
    mask = torch.ones(shape, dtype=torch.bool, device="meta") if is_masked else None
    return {"input_ids": tokens, "attention_mask": mask}


def _add_updates(
    recording: Recording,
    names: Names,
    model: torch.nn.Module,
    repeats: Mapping[torch.nn.Module, int],
) -> None:
    """Add the call that updates each parameter, as often as its layer counts."""
    times = {
        parameter: count for layer, count in repeats.items() for parameter in layer.parameters()
    }
    for name, parameter in model.named_parameters():
        recording.add(
            adam_w.OPERATOR,
            adam_w.inputs_of(parameter),
            Place("", names.of(parameter) or name, "", 0),
            times.get(parameter, 1),
        )


def _merge_equal_layers(model: Any) -> dict[torch.nn.Module, int]:
    """Replace equal layers in a row by the first; return how many each layer stands for.

    The first layer is left alone: its input is not the sum of a layer before it.
    """
    repeats: dict[torch.nn.Module, int] = {}
    count = getattr(model.config, "num_hidden_layers", None)
    lists = [
        (parent, name, layers)
        for parent in model.modules()
        for name, layers in parent.named_children()
        if isinstance(layers, torch.nn.ModuleList) and len(layers) == count
    ]
    for parent, name, layers in lists[:1]:  # later ones may be inside a layer
        groups = [list(group) for _, group in groupby(layers, _form)]
        if groups:
            groups[:1] = [part for part in (groups[0][:1], groups[0][1:]) if part]
        repeats |= {group[0]: len(group) for group in groups}
        setattr(parent, name, torch.nn.ModuleList(group[0] for group in groups))
    return repeats


def _form(layer: torch.nn.Module) -> str:
    """Return what a layer computes as text: its modules, and the plain values that they have."""
    plain = [
        (path, name, value)
        for path, module in layer.named_modules()
        for name, value in vars(module).items()
        if isinstance(value, PLAIN) and name not in OF_POSITION
    ]
    return f"{layer} {plain}"


@contextmanager
def _deterministic(switch: bool) -> Iterator[None]:
    """Set PyTorch's determinism switch in a block; recorded calls have it."""
    before = torch.are_deterministic_algorithms_enabled()
    only_warns = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(switch, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=only_warns)


@contextmanager
def _offline_transformers() -> Iterator[Any]:
    """Yield transformers for a block in which it downloads neither data nor code."""
    try:
        import transformers
        from huggingface_hub import constants
    except ImportError:
        raise UsageError(
            "model",
            "transformers is not installed; it builds the model",
            "pip install transformers",
        ) from None
    with (
        patch.dict(os.environ, HF_HUB_OFFLINE="1"),
        patch.object(constants, "HF_HUB_OFFLINE", True),
    ):
        yield transformers


def _chooses_code(name: str) -> bool:
    """Return whether a value of a configuration chooses code, which may come from the hub."""
    return name.endswith(("_implementation", "_implementation_internal")) or name == "auto_map"


def _safe(value: Any) -> Any:
    """Return a part of a configuration without values that choose code, and without labels.

    Raises UsageError for more layers than any model has, before transformers makes lists of them.
    """
    if isinstance(value, list):
        return [_safe(inner) for inner in value]
    if not isinstance(value, Mapping):
        return value
    for name, inner in value.items():
        if str(name).endswith(("layer", "layers")) and isinstance(inner, int):
            _require_layers(str(name), inner, least=inner)
    return {
        str(name): _safe(inner)
        for name, inner in value.items()
        if not _chooses_code(str(name)) and name not in ("num_labels", "id2label", "label2id")
    }


def _require_layers(name: str, count: int, least: int = 1) -> None:
    """Raise UsageError for a number of layers that no model has."""
    if not least <= count <= MOST_LAYERS:
        raise UsageError(
            "config",
            "{name} = {count} is not a number of layers",
            "1 to {most}",
            name=name,
            count=shown(count),
            most=MOST_LAYERS,
        )


def _require_kind(transformers: Any, values: Mapping[str, Any], sizes: Mapping[str, Any]) -> str:
    """Return the type of model of a configuration.

    Raises UsageError for an unknown type, and for sizes that it does not have.
    """
    kind = values.get("model_type")
    known = list(transformers.CONFIG_MAPPING)
    if kind not in known:
        raise UsageError(
            "config",
            "{kind} is not a model type of the installed transformers",
            "{tip}a configuration file with model_type, or a type such as llama",
            kind=shown(kind),
            tip=tip(str(kind), known),
        )
    if not sizes:
        return str(kind)
    default = transformers.AutoConfig.for_model(kind)
    for name in sizes:
        if not hasattr(default, name) or _chooses_code(name):
            names = list(default.to_dict())
            raise UsageError(
                "sizes",
                "{name} is not a value of the configuration of {kind}",
                "{tip}see the configuration file",
                name=name,
                kind=kind,
                tip=tip(name, names),
            )
    return str(kind)


def _model_of(transformers: Any, kind: str, values: Mapping[str, Any], dtype: torch.dtype) -> Any:
    """Return the model of a configuration, for causal language modelling."""
    try:
        full_config = transformers.AutoConfig.for_model(kind, **_safe(values))
        text_config = full_config.get_text_config(decoder=True)
        text_config.use_cache = False
        text_config.return_dict = True
        if type(text_config) not in transformers.AutoModelForCausalLM._model_mapping:
            raise UsageError(
                "config",
                "{kind} is not a causal language model",
                "npu-sim record with a script that runs the model",
                kind=kind,
            )
        _require_layers("num_hidden_layers", getattr(text_config, "num_hidden_layers", 1))
        with torch.device("meta"):
            return transformers.AutoModelForCausalLM.from_config(
                text_config,
                dtype=dtype,
                trust_remote_code=False,
                attn_implementation=None,  # None: the choice of transformers, never of the hub
                experts_implementation=None,
            )
    except UsageError:
        raise
    except Exception as error:  # whatever transformers raises for values that contradict each other
        raise UsageError(
            "config",
            "the model cannot be built: {error}",
            "values that transformers accepts, as in the config.json of a published model",
            error=_in_short(error),
        ) from error


def _in_short(error: Exception) -> str:
    """Return an error's message in one line, or its type without one."""
    return shorten(str(error), 300, placeholder=" ...") or type(error).__name__


def _content(config: str | Path | Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the values of a configuration file, or of a type of model."""
    if isinstance(config, Mapping):
        return config
    if not str(config).endswith(".json") and not Path(config).exists():
        return {"model_type": str(config)}
    hint = "config.json of a model, or a type such as llama"
    content = read_limited("config", Path(config), CONFIG_BYTES, hint)
    try:
        values = parse_json(content)
    except ValueError as error:
        raise UsageError("config", "{config}: {error}", hint, config=config, error=error) from None
    if not isinstance(values, dict):
        raise UsageError("config", "{config}: not a JSON object", hint, config=config)
    return values
