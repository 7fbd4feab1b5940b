"""Give mutated configurations of models to ``npu_sim.model``; every one is answered or refused.

    PYTHONPATH=. python ci/model_faults.py --configurations 100000 --minutes 60
    PYTHONPATH=. python ci/model_faults.py --seed 0 --only 4711

The first line prints how many were answered and refused, and every failure: an error that is no
:class:`npu_sim.UsageError`, more than ``--limit`` seconds of a processor, more than
``MOST_MEMORY``, or the end of the process. The second line repeats a single configuration of a seed
and prints its file.

A configuration is a ``config.json`` with small sizes, of one of ``KINDS``, in which keys are left
out, renamed, repeated or exchanged and values are replaced, or whose text is damaged. Models that
cannot differ in their calls are recorded and checked once; ``--all`` records them all.
"""

import argparse
import copy
import faulthandler
import gzip
import importlib
import json
import multiprocessing
import os
import random
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

KINDS = (
    *("llama", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "mistral", "mixtral", "gemma", "gemma2"),
    *("gemma3_text", "phi", "phi3", "phimoe", "glm", "glm4", "glm4_moe", "gpt_oss", "deepseek_v2"),
    *("deepseek_v3", "olmo2", "olmoe", "cohere2", "granite", "granitemoe", "ernie4_5_moe"),
    *("minimax", "llama4_text", "gemma3", "qwen2_vl"),
)
"""Types of models, two of them with a text model inside."""
SMALL = {
    "num_hidden_layers": 1,
    "hidden_size": 32,
    "intermediate_size": 32,
    "vocab_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "pad_token_id": 0,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 0,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "sliding_window": 8,
    "max_position_embeddings": 64,
    "intermediate_size_mlp": 32,
}
"""Sizes with which a model is built and recorded within a tenth of a second."""
LATENT = {"deepseek_v2": {"num_key_value_heads": 4}, "deepseek_v3": {"num_key_value_heads": 4}}
"""Sizes of types that need others."""
DERIVED = ("layer_types", "mlp_layer_types", "no_rope_layers", "moe_layers", "vision_config")
"""Values that transformers derives from the number of layers, or that concern no text."""
ODD = (
    *(None, True, False, 0, 1, -1, 2, 3, 7, 0.5, -0.5, 1.5, 1e308, -1e-320, 10**12, -(10**12)),
    *(2**31 - 1, 2**31, 2**40, 2**63 - 1, 2**63, 2**64, 10**401, float("nan"), float("inf")),
    *(
        float("-inf"),
        "",
        " ",
        "0",
        "-1",
        "x",
        "NaN",
        "None",
        "\ud800",
        "\x00",
        "ﬀ注意力\u202e",
        "é" * 3000,
    ),
    *([], [[]], {}, [0], [1, 2], [None], ["x"], [-1] * 5, [float("nan")], [1, [2, [3, [4]]]]),
    *({"": None}, {"a": {"b": [1]}}, {"type": "linear", "factor": 2.0}, {"rope_type": "yarn"}),
    *({"rope_type": "default", "rope_theta": 0}, {"rope_type": "longrope", "factor": -1}),
    *({"rope_theta": 1e4, "factor": "x", "rope_type": "llama3"}, ["full_attention"], "silu"),
    *(["sliding_attention", "full_attention"], "swish", "gelu_pytorch_tanh", "__import__", "eager"),
    *("bfloat16", "float16", "int8", "torch.float32", "../../etc/passwd", "llama", "qwen3_moe"),
)
"""Values that stand nowhere, or elsewhere, in a configuration."""
KEYS = (
    *(
        "torch_dtype",
        "dtype",
        "rope_scaling",
        "rope_parameters",
        "quantization_config",
        "architectures",
    ),
    *(
        "text_config",
        "auto_map",
        "attn_implementation",
        "_attn_implementation",
        "tie_word_embeddings",
    ),
    *(
        "use_cache",
        "layer_types",
        "hidden_act",
        "hidden_activation",
        "_name_or_path",
        "self",
        "kwargs",
    ),
    *(
        "to_dict",
        "__class__",
        "__init__",
        "num_labels",
        "id2label",
        "is_encoder_decoder",
        "pruned_heads",
    ),
    *(
        "output_attentions",
        "return_dict",
        "chunk_size_feed_forward",
        "tp_plan",
        "gradient_checkpointing",
    ),
    *(
        "output_router_logits",
        "sub_configs",
        "attribute_map",
        "model_type",
        "problem_type",
        "per_layer",
    ),
)
"""Keys that may mean something to transformers where a configuration has none of the name."""
MOST_MEMORY = 1 << 30
"""Bytes that a configuration may add to what the process used before."""


class TooLongError(BaseException):
    """Time limit of a configuration; no handler of ordinary errors catches it."""


def _stop(*_: Any) -> None:
    raise TooLongError


def bases() -> list[dict[str, Any]]:
    """Return a small configuration of every type that the installed transformers has."""
    import transformers

    found = []
    for kind in KINDS:
        if kind not in transformers.CONFIG_MAPPING:
            continue
        values = transformers.AutoConfig.for_model(kind).to_dict()
        text = values.get("text_config")
        for part in (values, text if isinstance(text, dict) else {}):
            sizes = SMALL | LATENT.get(kind, {})
            part |= {name: size for name, size in sizes.items() if name in part}
            for name in DERIVED:
                part.pop(name, None)
        found.append(values | {"model_type": kind})
    return found


def places_in(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the keys and positions that lead to every value in a value."""
    keys = value if isinstance(value, dict) else range(len(value) if type(value) is list else 0)
    for key in keys:
        yield (*place, key)
        yield from places_in(value[key], (*place, key))


def nested(depth: int, value: Any) -> Any:
    """Return lists or objects in each other."""
    inner: Any = value
    for number in range(depth):
        inner = [inner] if isinstance(value, int) or number % 2 else {"a": inner}
    return inner


def odd_value(draw: random.Random) -> Any:
    """Return a value of `ODD`, which later changes do not change."""
    return copy.deepcopy(draw.choice(ODD))


def changed_value(value: Any, draw: random.Random) -> Any:
    """Return another value for a key: near to the old one, or an odd one."""
    kind = draw.random()
    if kind < 0.35 and isinstance(value, int | float):
        near = (-value, value + 1, value - 1, value * 2, value * 3, value * 1000, value // 2)
        return draw.choice((*near, str(value), [value], {"value": value}))
    if kind < 0.45 and isinstance(value, str):
        return draw.choice(
            (value.upper(), value + " ", value[1:], value * 50, [value], value[::-1])
        )
    if kind < 0.5:
        return nested(draw.choice((1, 5, 60, 300)), draw.choice((1, "x")))
    return odd_value(draw)


def mutate(values: dict[str, Any], draw: random.Random) -> None:
    """Change one key or value of a configuration."""
    *path, last = draw.choice(list(places_in(values)))
    holder: Any = values
    for key in path:
        holder = holder[key]
    how = draw.random()
    if how < 0.12:
        if last != "num_hidden_layers":  # the number without it is large, and nothing else
            del holder[last]
    elif how < 0.2 and isinstance(holder, dict):
        new = draw.choice(
            (str(last).upper(), f"{last}_", f" {last}", str(last)[:-1], "\u00e9", *KEYS)
        )
        holder[new] = holder.pop(last)
    elif how < 0.3 and isinstance(holder, dict):
        holder[draw.choice(KEYS)] = odd_value(draw)
    elif how < 0.36 and isinstance(holder, dict):
        other = draw.choice(list(holder))
        holder[last], holder[other] = holder[other], holder[last]
    else:
        value = changed_value(holder[last], draw)
        if last != "num_hidden_layers" or value not in range(4, 1 << 10):  # legal, and slow
            holder[last] = value


def damaged(text: str, draw: random.Random) -> bytes:
    """Return the text of a configuration that was truncated, changed or written otherwise."""
    begin = draw.randrange(len(text))
    end = begin + draw.choice((1, 1, 2, 30))
    how = draw.randrange(9)
    if how == 0:
        return text[:begin].encode("utf-8", "surrogatepass")
    if how == 1:
        return (text[:begin] + text[end:]).encode("utf-8", "surrogatepass")
    if how == 2:
        odd = draw.choice(
            ('"', "{", "}", "[", ",", ":", "\x00", "\\u", "1e999", "NaN", "//", "\ufeff")
        )
        return (text[:begin] + odd + text[begin:]).encode("utf-8", "surrogatepass")
    if how == 3:
        encoding = draw.choice(("utf-16", "utf-8-sig", "utf-32", "utf-7", "cp500"))
        return text.encode(encoding, "replace")
    if how == 4:
        changed = bytearray(text.encode("utf-8", "surrogatepass"))
        for _ in range(draw.choice((1, 3, 20))):
            changed[draw.randrange(len(changed))] = draw.randrange(256)
        return bytes(changed)
    if how == 5:
        depth = draw.choice((100, 1000, 100_000))
        opening, closing = draw.choice((("[", "]"), ('{"a":', "}")))
        inner = opening * depth + "1" + closing * draw.choice((depth, depth - 1))
        return ('{"x": ' + inner + ", " + text[1:]).encode("utf-8", "surrogatepass")
    if how == 6:
        return gzip.compress(text.encode("utf-8", "surrogatepass"))
    if how == 7:
        return draw.choice((b"", b" ", b"null", b"[]", b'"llama"', b"3", b"{}{}", b"{" * 99))
    first = json.dumps(draw.choice(ODD), ensure_ascii=True)  # a key that stands twice
    name = draw.choice(("hidden_size", "model_type", "num_hidden_layers", "vocab_size"))
    return (text[:-1] + f', "{name}": {first}}}').encode("utf-8", "surrogatepass")


def configuration(known: list[dict[str, Any]], seed: int, number: int) -> bytes:
    """Return the content of the configuration file of a number."""
    draw = random.Random(f"{seed}/{number}")
    values = copy.deepcopy(draw.choice(known))
    for _ in range(draw.choice((1, 1, 2, 2, 3, 4))):
        mutate(values, draw)
        if not values:
            break
    text = json.dumps(values, ensure_ascii=draw.random() < 0.5)
    if draw.random() < 0.12:
        return damaged(text, draw)
    return text.encode("utf-8", "surrogatepass")


def form_of(model: Any) -> str:
    """Return the modules of a model, their sizes and their other values as text."""
    left_out = ("_modules", "_parameters", "_buffers", "config")
    parts = [
        (path, {name: value for name, value in vars(module).items() if name not in left_out})
        for path, module in model.named_modules()
    ]
    sizes = [
        (name, tensor.shape, tensor.dtype, tensor.device.type, tensor.requires_grad)
        for name, tensor in (*model.named_parameters(), *model.named_buffers())
    ]
    return re.sub(" at 0x[0-9a-f]+", "", repr((str(model), parts, sizes)))


def recorded_once() -> None:
    """Let ``npu_sim.model`` record models that cannot differ in their calls once, and check once.

    The code of a model depends on its modules, and on the values of the configuration that it reads
    while it runs. Models of equal modules run alike until they read a value that differs.
    """
    from transformers import PreTrainedConfig

    from npu_sim import functions
    from npu_sim.torch import models

    record, preflight = models._recorded, functions.preflight
    read_value = PreTrainedConfig.__getattribute__
    recordings: dict[str, list[tuple[dict[str, str], Any]]] = {}
    answers: dict[str, Any] = {}
    values_read: dict[str, str] | None = None

    def observed(config: Any, name: str) -> Any:
        value = read_value(config, name)
        if values_read is not None and not callable(value):
            values_read[name] = repr(value)
        return value

    def values_of(config: Any, names: Iterable[str]) -> dict[str, str]:
        return {name: repr(getattr(config, name, ...)) for name in names}

    def recorded(model: Any, repeats: Any, *options: Any) -> Any:
        nonlocal values_read
        known = recordings.setdefault(form_of(model) + repr([*repeats.values(), options]), [])
        equal = (found for values, found in known if values == values_of(model.config, values))
        recording = next(equal, None)
        if recording is None:
            values_read = {}
            try:
                recording = record(model, repeats, *options)
            except models.UsageError as error:
                recording = error
            finally:
                values, values_read = values_read, None
            known.append((values, recording))
        if isinstance(recording, Exception):
            raise recording
        return recording

    def checked(recording: Any, **options: Any) -> Any:
        key = json.dumps([recording.as_dict()["calls"], options])
        if key not in answers:
            matrix = preflight(recording, **options)
            str(matrix), json.dumps(matrix.as_dict())
            answers[key] = matrix
        return answers[key]

    PreTrainedConfig.__getattribute__ = observed
    models._recorded, functions.preflight = recorded, checked


def outcome_of(path: Path) -> tuple[str, str]:
    """Return the outcome of one configuration, and what a failure printed."""
    import npu_sim

    try:
        npu_sim.model(path, sequence=4)
    except npu_sim.UsageError as error:
        if not error.message or "Traceback" in str(error) or len(str(error)) > 2000:
            return "unclear", str(error)
        json.dumps(error.as_dict())
        return "refused", str(error.message)
    except TooLongError:
        return "too long", "".join(traceback.format_exc()[-3000:])
    except BaseException:
        return "traceback", "".join(traceback.format_exc()[-3000:])
    return "answered", ""


def work(
    connection: Connection, numbers: range, seed: int, limit: float, end: float, every: bool
) -> None:
    """Send number, outcome, text, seconds of every configuration of ``numbers`` until ``end``."""
    os.nice(10)
    warnings.simplefilter("ignore")
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115  (open as long as the process)
    import torch
    import transformers

    torch.set_num_threads(1)
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    known = bases()
    if not every:
        recorded_once()
    signal.signal(signal.SIGPROF, _stop)
    with tempfile.TemporaryDirectory() as folder, Path(folder, "log").open("w+") as log:
        path = Path(folder, "config.json")
        for number in numbers:
            if time.monotonic() > end:
                break
            path.write_bytes(configuration(known, seed, number))
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            begin = time.process_time()
            first = number == numbers.start  # with imports and compilation
            signal.setitimer(signal.ITIMER_PROF, limit + 60 * first)
            faulthandler.dump_traceback_later(5 * limit + 300, exit=True, file=log)
            try:
                outcome, text = outcome_of(path)
                signal.setitimer(signal.ITIMER_PROF, 0)
            except TooLongError:
                outcome, text = "too long", "at the end"
            faulthandler.cancel_dump_traceback_later()
            grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
            if grown * 1024 > MOST_MEMORY and not first:
                outcome, text = "memory", f"{grown >> 10} MiB more"
            connection.send((number, outcome, text, time.process_time() - begin))
    connection.close()


def campaign(options: argparse.Namespace) -> Counter[str]:
    """Run configurations in processes, print failures as they happen, and return the outcomes."""
    importlib.import_module("transformers")  # missing: fails here, not in worker after worker
    end, count = time.monotonic() + 60 * options.minutes, options.processes
    context = multiprocessing.get_context("spawn")
    outcomes: Counter[str] = Counter()
    seconds: list[tuple[float, int]] = []
    running: dict[Connection, tuple[Any, range]] = {}

    def start(numbers: range) -> None:
        here, there = context.Pipe(duplex=False)
        process = context.Process(
            target=work, args=(there, numbers, options.seed, options.limit, end, options.all)
        )
        process.start()
        there.close()
        running[here] = process, numbers

    for first in range(count):
        start(range(options.start + first, options.start + options.configurations, count))
    while running:
        for connection in wait(list(running)):
            process, numbers = running.pop(connection)
            try:
                number, outcome, text, took = connection.recv()
            except EOFError:
                process.join()
                if process.exitcode:
                    number, outcome, text, took = numbers.start, "ended", f"{process.exitcode}", 0.0
                    start(numbers[1:])
                else:
                    continue
            else:
                running[connection] = process, numbers[1:]
            outcomes[outcome] += 1
            seconds.append((took, number))
            if outcome not in ("answered", "refused"):
                print(f"{number}: {outcome} after {took:.1f} s\n{text}", flush=True)
            elif options.verbose:
                print(f"{number}: {outcome} after {took:.3f} s: {text}", flush=True)
            if outcomes.total() % 1000 == 0:
                print(f"{outcomes.total()}: {dict(outcomes)}", flush=True)
    slowest = sorted(seconds, reverse=True)[:10]
    mean = sum(took for took, _ in seconds) / max(1, len(seconds))
    print(f"{mean * 1000:.0f} ms on average; slowest (s, number): {slowest}")
    return outcomes


def main() -> int:
    """Run a campaign, or one configuration; return 1 after a failure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--configurations", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=int, default=0, help="number of the first configuration")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--limit", type=float, default=20, help="CPU seconds for a configuration")
    parser.add_argument("--all", action="store_true", help="record equal models again")
    parser.add_argument("--only", type=int, help="run one configuration and print it")
    parser.add_argument("--verbose", action="store_true", help="print every outcome")
    options = parser.parse_args()
    if options.only is not None:
        content = configuration(bases(), options.seed, options.only)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "config.json")
            path.write_bytes(content)
            print(content[:20_000], *outcome_of(path), sep="\n")
        return 0
    outcomes = campaign(options)
    failures = outcomes.total() - outcomes["answered"] - outcomes["refused"]
    print(f"{outcomes.total()} configurations, seed {options.seed}: {dict(outcomes)}")
    return min(1, failures)


if __name__ == "__main__":
    sys.exit(main())
