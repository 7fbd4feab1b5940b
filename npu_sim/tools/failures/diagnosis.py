"""Diagnosis of a failure from its text: code, stage, operator, argument, plan, device exception.

Source: specification pages ``error_texts`` (sections 4 to 6) and ``plog``.
"""

import os
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import Field

from npu_sim.cores import default_release, release_names
from npu_sim.framework.arguments import Tensor
from npu_sim.framework.operator import Operator
from npu_sim.language import Joined, Text, bytes_text, grouped, joined
from npu_sim.operators.loading import load_operator
from npu_sim.plans.answers import Frozen, FrozenDict, Printed, ReadOnlyDict, TextField
from npu_sim.plans.model import Plan
from npu_sim.registry import OPERATORS, find_operator, operator_of_launch
from npu_sim.status import (
    NO_PLAN,
    Unplanned,
    UsageError,
    plain_name,
    shown,
    without_internal_frames,
)
from npu_sim.tiling import decode_tiling, find_structure, flattened
from npu_sim.tools.failures.device_exceptions import (
    ExceptionDump,
    is_exception_dump,
    parts_of_name,
    read_exception_dump,
)
from npu_sim.tools.failures.reader import (
    ARGUMENT,
    BEFORE,
    CODES,
    COLLECTIVE,
    COMPILE,
    DEVICE,
    DISPATCH,
    ERROR_BITS,
    HARDWARE,
    INNER,
    INNER_NULLPTR,
    LAUNCH,
    NOT_OPERATORS,
    OUT_OF_MEMORY,
    PACKAGE,
    PARAMETER,
    QUEUE,
    SELECTION,
    SHAPE,
    SHORTENED_NAME,
    STAGES,
    START,
    TILING,
    Finding,
    Proof,
    Reading,
    is_own_code,
    lines_of_file,
    lines_of_text,
    read_lines,
)
from npu_sim.tools.failures.statements import dtypes_of, listed_lines, statement

MOST_ROWS = 8
"""Most rows of a list of dtypes that the answer repeats."""
NEXT_OF_UNKNOWN = Text(
    "give the lines before the first Traceback, or the plog of that process (ascend/log/debug/plog)"
)
"""What to do about a text of which nothing is known."""
CALL = Text("give the call with --call: it is checked, and the nearest legal value named")
CHECKED = (PARAMETER, TILING, SHAPE)
"""Stages that the plan of a call covers, where npu_sim has the operator."""
CHANGE = Text("change the argument that the cause names")
BLOCK = Text("give the block below the code: its first sentence states what is wrong")
NEXT = {
    SELECTION: Text("change the dtypes to those that the SoC takes, or run on another product"),
    PACKAGE: Text("check ASCEND_OPP_PATH, and install the kernel package of this SoC"),
    LAUNCH: Text("run again with ASCEND_LAUNCH_BLOCKING=1: the call that fails is then named"),
    QUEUE: Text("run again with ASCEND_LAUNCH_BLOCKING=1: the call that fails is then named"),
    COLLECTIVE: Text("read the first error of every other rank, in the order of their times"),
    ARGUMENT: CHANGE,
    BEFORE: Text("change the call as the check of torch_npu says"),
    COMPILE: Text("give the lines before it: the first error of the compiler states the reason"),
    START: Text("load the environment of the toolkit (set_env.sh), and see npu-smi info"),
    HARDWARE: Text("check the device with npu-smi info -t health, and run on another one"),
    DISPATCH: Text("move the tensors to the device of the operator: x.npu()"),
}
"""What to do next, by stage."""
INSTANCE = re.compile(r"(?<=^aclnn)(\w{1,200}?)(?:GetWorkspaceSize|_\d{1,20}(?:_\w{1,200})?)$")
"""An operator of aclnn with its first phase, or with the number of the call and its kernel."""
VERSION = re.compile(r"v\d$")
"""Version at the end of an operator's plain name."""
BLAMING_STAGES = (PARAMETER, TILING, SHAPE, DISPATCH, BEFORE)
"""Stages in which a synchronous call states its own failure."""


class Diagnosis(Printed, Frozen):
    """Reading of a failure."""

    operator: str | None = None
    """Operator that the text names: npu_sim's name, or the product's for other operators."""
    blamed: bool = False
    """Whether the text proves that this operator failed; False for asynchronous victims."""
    kernel: str | None = None
    """Kernel that a device exception or an inner line names."""
    code: str | None = None
    """The code that decides: a number of aclnn or of the runtime, or that of a product block."""
    codes: tuple[str, ...] = ()
    """All codes of the text."""
    stage: str | None = None
    """Stage in which the failure arose, one of ``npu_sim.tools.failures.reader.STAGES``."""
    argument: str | None = None
    """Argument as the text names it, or the operator's own name for it."""
    cause: str | None = None
    """Sentence of the product that states the cause, without prefixes and place in the source."""
    ranks: tuple[FrozenDict[Any], ...] = ()
    """Processes and ranks whose lines the text has."""
    release: TextField = ""
    """Releases that write such a message; empty if the message does not determine them."""
    exception: FrozenDict[Any] | None = None
    """Facts of a device exception: core, kernel, words of the tiling structure."""
    tiling: FrozenDict[Any] = Field(default_factory=ReadOnlyDict)
    """Named fields of the tiling structure of one of our kernels."""
    impossible: tuple[TextField, ...] = ()
    """Contradictions in the exception, or between it and the plan of the call."""
    refusal: FrozenDict[Any] | None = None
    """Refusal of the given call by its plan: status, argument, message and hint."""
    runs_on: tuple[str, ...] = ()
    """Products and releases on which the given call runs."""
    lines: tuple[tuple[TextField, TextField], ...] = ()
    """Label and text of every line of the answer."""

    @property
    def known(self) -> bool:
        """Whether anything in the text is known: a code, a stage, an operator or a cause."""
        facts = (self.operator, self.kernel, self.code, self.stage, self.argument, self.cause)
        return any((*facts, self.exception, self.codes, self.release))

    @property
    def answer(self) -> str:
        """The answer as one text."""
        return joined((text for _, text in self.lines), "\n")

    def as_dict(self) -> dict[str, Any]:
        """Return the diagnosis as plain data, the form ``--json`` prints."""
        return {**self.model_dump(mode="json", exclude={"lines"}), "answer": str(self.answer)}


@without_internal_frames
def diagnose(
    text: str | Iterable[str] | os.PathLike[str],
    *,
    operator: str | None = None,
    product: Any = None,
    soc: str | None = None,
    release: str | None = None,
    deterministic: bool = False,
    **arguments: Any,
) -> Diagnosis:
    """Return the diagnosis of a pasted error text, a log or an exception dump.

    Parameters
    ----------
    text
        The text, or its lines, such as an open text file; read line by line. Or the path of a file:
        a text, or an exception dump (``exception_info.*``, adump), whose tiling is decoded.
    operator
        Operator of the call, when the text does not name one of ours.
    product, soc, release, deterministic, **arguments
        As for :func:`npu_sim.plan`: the call that failed; without arguments nothing is planned.

    Raises
    ------
    UsageError
        When ``text`` is neither a str nor lines, the file cannot be read or is a damaged dump, or
        the call cannot be read.
    """
    reading, facts = _read(text)
    plan: Plan | None = None
    refusal: Unplanned | None = None
    if arguments:
        from npu_sim import operators

        name = _operator_of_call(operator, facts)
        call = {"product": product, "soc": soc, "release": release, "deterministic": deterministic}
        try:
            plan = operators.plan(name, **call, **arguments)
        except NO_PLAN as error:
            refusal = error
    stated_release = facts["release"] if facts["release"] in release_names() else None
    tiling, impossible = _tiling_of_exception(
        facts["exception"] or {}, release or stated_release, plan
    )
    diagnosis = Diagnosis(
        **facts,
        tiling=tiling,
        impossible=tuple(impossible),
        refusal=refusal.as_dict() if refusal else None,
        runs_on=_runs_on(name, deterministic, arguments) if refusal else (),
    )
    return diagnosis.model_copy(update={"lines": tuple(_lines(diagnosis, plan, refusal, reading))})


def _read(text: str | Iterable[str] | os.PathLike[str]) -> tuple[Reading, dict[str, Any]]:
    """Return the findings of a text, of lines or of a file, and the fields that they prove."""
    dump = None
    if isinstance(text, str):
        text = lines_of_text(text)
    elif isinstance(text, os.PathLike):
        path = Path(text)
        if is_exception_dump(path):
            dump = read_exception_dump(path)
        text = lines_of_file(path) if dump is None else dump.message.splitlines()
    elif isinstance(text, bytes | Mapping) or not isinstance(text, Iterable):
        raise UsageError(
            "text",
            "text = {text} is neither a text nor lines",
            "give a str, a path, or a file opened as text",
            text=shown(text),
        )
    reading = _of_one_failure(read_lines(text))
    facts = _facts(reading)
    return reading, facts if dump is None else facts | _facts_of_dump(dump, facts)


def _of_one_failure(reading: Reading) -> Reading:
    """Return a text without the findings of processes in which only another call failed.

    Ranks that fail in different calls would else lend their codes, stages and arguments to the call
    that is named. Of an asynchronous failure, every rank may hold a part.
    """
    name, proof = _operator(reading, next((one.value for one in reading.values("kernel")), None))
    calls = grouped(
        (process, operator)
        for process, operator, kind in _named_operators(reading)
        if kind == Proof.CALL
    )
    others = [process for process, operators in calls.items() if name not in operators]
    if proof != Proof.CALL or not others:
        return reading
    kept = (finding for finding in reading.findings if finding.process not in others)
    other_calls = dict.fromkeys(call for process in others for call in calls[process])
    one = replace(reading, findings=dict.fromkeys(kept), other_calls=tuple(other_calls))
    return one if _facts(one)["blamed"] else reading


def _operator_of_call(given: str | None, facts: Mapping[str, Any]) -> str:
    """Return the operator of the given call; raise UsageError if it is not the one that failed."""
    named = facts["operator"]
    name = given or named
    if name is None or find_operator(name) is None:
        raise UsageError(
            "operator",
            "operator: the text names none that npu_sim has",
            "name the operator of the call",
        )
    if facts["blamed"] and find_operator(name) != find_operator(named):
        raise UsageError(
            "operator",
            "operator = {given}, but the text says that {blamed} failed",
            "the call that failed, or no call",
            given=name,
            blamed=named,
        )
    return name


def _facts(reading: Reading) -> dict[str, Any]:
    """Return the fields of a diagnosis that the text alone proves."""
    numbers = [finding.value for finding in reading.values("code")]
    code = _code(reading, numbers)
    stage = _stage(code, reading)
    kernel = next((finding.value for finding in reading.values("kernel")), None)
    name, proof = _operator(reading, kernel)
    entry = find_operator(name) if name else None
    named = (finding.value.strip(".").split(".")[-1] for finding in reading.values("argument"))
    inner = (
        finding.value
        for finding in reading.values("operator")
        if finding.form.proof == Proof.KERNEL and finding.value != name and not _is_piece(finding)
    )
    exceptions = (log.as_dict() for log in reading.exceptions.values())
    return {
        "operator": entry.name if entry else name,
        "blamed": stage != HARDWARE and _is_blamed(proof, stage, reading),
        "kernel": kernel or next(inner, None),
        "code": code,
        "codes": tuple(dict.fromkeys([*numbers, *reading.codes])),
        "stage": stage,
        "argument": _own_argument(entry.name if entry else None, next(named, None)),
        "cause": next((finding.value.strip("\"' ") for finding in reading.values("cause")), None),
        "ranks": tuple(reading.ranks.values()),
        "release": _release(reading),
        "exception": next(filter(None, exceptions), None),
    }


def _is_blamed(proof: Proof, stage: str | None, reading: Reading) -> bool:
    """Return whether the text proves that the operator it names failed."""
    states_call = stage in BLAMING_STAGES or bool(reading.values("given"))
    return proof == Proof.EXCEPTION or (proof <= Proof.FILE and states_call)


def _facts_of_dump(dump: ExceptionDump, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a diagnosis that an exception dump adds to those of its log lines."""
    exception = dict(facts["exception"] or {})
    kernel = next(filter(find_structure, dump.kernel_types), None)
    if kernel is not None:
        exception.setdefault("kernel_name_parts", {"op": kernel})
    if dump.tiling:
        words = struct.iter_unpack("<Q", dump.tiling)
        exception["tiling_words_hex"] = [hex(word) for (word,) in words]
    exception["dump"] = dump.as_dict()
    changed: dict[str, Any] = {"exception": exception, "stage": facts["stage"] or DEVICE}
    if facts["operator"] is None and kernel is not None:
        changed |= {"operator": _own_name(kernel), "kernel": kernel, "blamed": True}
    return changed


def _code(reading: Reading, numbers: list[str]) -> str | None:
    """Return the code of a failure: the most specific one that the text states or proves."""
    exact = [number for number in numbers if len(number) == 6 and number.isdigit()]
    others = (number for number in numbers if number not in exact)
    stated = next(iter(exact), None)
    implied = [finding.form.code for finding in reading.findings if finding.form.code]
    proven = INNER_NULLPTR if INNER_NULLPTR in implied else None
    block = next((code for code in reading.codes if not code.startswith("ERR")), None)
    own_codes = (code for code in reading.codes if code.startswith("ERR") and is_own_code(code))
    tiling = any(finding.form.stage == TILING for finding in reading.findings)
    of_tiling = "EZ9999" if tiling else None
    # A number of aclnn is exact, the code of a block only names its module, others are inner codes.
    choices = (stated, proven, block, next(own_codes, None), *implied[:1], of_tiling, *others)
    return next(filter(None, choices), None)


def _meaning(code: str | None) -> tuple[str, str]:
    """Return stage and meaning of a code; empty for an unknown one."""
    meanings = ((stage, text) for start, stage, text in CODES if (code or "").startswith(start))
    return next(meanings, ("", ""))


def _stage(code: str | None, reading: Reading) -> str | None:
    """Return the stage in which a failure arose, by its code and by what other lines prove."""
    proved = {finding.form.stage for finding in reading.findings if finding.form.stage}
    by_code = _meaning(code)[0]
    if HARDWARE in proved:
        return HARDWARE
    if by_code in (COMPILE, COLLECTIVE, START) and DEVICE not in proved:
        return by_code
    # A launch that fails with the number of a device exception: the exception's own block, which
    # has EZ9999 or names the kernel, or the report of an earlier task's failure.
    if LAUNCH in proved and DEVICE in proved | {by_code}:
        own_block = reading.values("kernel") or any(
            text.startswith("EZ9999") for text in reading.codes
        )
        return DEVICE if own_block else LAUNCH
    if COLLECTIVE in proved:
        return COLLECTIVE
    in_order = [stage for stage in STAGES if stage in proved]
    surest = next((stage for stage in in_order if stage not in (QUEUE, LAUNCH)), None)
    return surest or by_code or next(iter(in_order), None)


def _operator(reading: Reading, kernel: str | None) -> tuple[str | None, Proof]:
    """Return the operator that the text names, with the kind of evidence."""
    if kernel and (launched := parts_of_name(kernel).get("op") or _shortened_launch(kernel)):
        entry = operator_of_launch(launched)
        return (entry.name if entry else launched), Proof.EXCEPTION
    named = ((name, proof) for _, name, proof in _named_operators(reading))
    return min(named, key=lambda found: found[1], default=(None, Proof.NONE))


def _shortened_launch(kernel: str) -> str | None:
    """Return the operator of a kernel's name whose hash was shortened; None for other names."""
    found = SHORTENED_NAME.match(kernel)
    return found["op"] if found and operator_of_launch(found["op"]) else None


def _named_operators(reading: Reading) -> Iterator[tuple[str, str, Proof]]:
    """Yield the operators that the text names, with their process and the kind of evidence."""
    for finding in reading.values("operator"):
        proof, name = finding.form.proof, _own_name(finding.value)
        if proof == Proof.FILE:
            launched = "".join(word.capitalize() for word in finding.value.split("_"))
            titles = (entry.title for entry in OPERATORS if finding.value in entry.planner_files)
            launched = next(titles, launched)
            name = next(filter(find_operator, map(_own_name, (launched, f"aclnn{launched}"))), "")
        elif _is_piece(finding) or (
            proof == Proof.FUNCTION and NOT_OPERATORS.search(finding.value)
        ):
            name = ""
        if name:
            yield finding.process, name, proof


def _is_piece(finding: Finding) -> bool:
    """Return whether a name may be a piece of one that an end of the text cuts."""
    if finding.begins and not finding.value.startswith(("aclnn", "npu_")):
        return True
    if not finding.ends or find_operator(_own_name(finding.value)):
        return False
    start = plain_name(finding.value.removeprefix("aclnn").removeprefix("npu_"))
    return any(plain_name(operator.title).startswith(start) for operator in OPERATORS)


def _own_name(name: str) -> str:
    """Return npu_sim's name of an operator or kernel; the name without instance for others."""
    name = INSTANCE.sub(r"\1", name)
    bare = name.removeprefix("aclnnInner").removeprefix("npu_")
    entry = operator_of_launch(bare)
    if entry is None and name.startswith(("aclnn", "npu_")):
        title = plain_name(bare.removeprefix("aclnn"))
        titles = {plain_name(operator.title): operator for operator in OPERATORS}
        entry = titles.get(title) or titles.get(VERSION.sub("", title))
    return entry.name if entry else name


def _own_argument(operator: str | None, name: str | None) -> str | None:
    """Return the operator's own name of an argument, or the name in the text."""
    if operator is None or name is None:
        return name
    wanted = plain_name(name.split("/")[0].split(" and ")[0].split(",")[0])
    declared = load_operator(operator)
    known = (
        argument
        for argument in declared.by_name
        if wanted in (plain_name(argument), plain_name(argument) + "optional")
    )
    return next(known, name)


def _release(reading: Reading) -> str:
    stated = (finding.value for finding in reading.values("release"))
    implied = (finding.form.release for finding in reading.findings if finding.form.release)
    return next(stated, None) or next(implied, "")


def _runs_on(operator: str, deterministic: bool, arguments: dict[str, Any]) -> tuple[str, ...]:
    """Return the products and releases on which a call runs."""
    from npu_sim.questions.diff import diff

    places = diff(operator, release="all", deterministic=deterministic, **arguments)
    return tuple(
        f"{row.profile.product.title} {row.profile.soc} {row.profile.release}"
        for row in places.rows
        if row.plan is not None
    )


def _tiling_of_exception(
    exception: dict[str, Any], release: str | None, plan: Plan | None
) -> tuple[dict[str, Any], list[str]]:
    """Return the named tiling fields of a device exception, and what in them is impossible."""
    parts, words = exception.get("kernel_name_parts", {}), exception.get("tiling_words_hex", [])
    structure, key = find_structure(parts.get("op", "")), parts.get("key")
    impossible: list[str] = []
    if key and exception.get("tiling_key") not in (None, int(key)):
        impossible.append(
            Text(
                "the kernel's name has key {name_key}, the launch tiling key {key}",
                name_key=key,
                key=str(exception["tiling_key"]),
            )
        )
    if structure is None or not words:
        return {}, impossible
    if not any(int(word, 16) for word in words):
        return {}, [
            *impossible,
            Text("all words of the tiling structure are 0: the arguments did not arrive"),
        ]
    chosen = plan.release if plan else release
    try:
        tiling = decode_tiling(structure.kernel, words, release=chosen or default_release())
    except UsageError as error:
        return {}, [*impossible, error.message]
    impossible += _contradictions(tiling, exception)
    impossible += _differences(tiling, exception, plan) if plan else ()
    return tiling, impossible


CORE_FIELDS = ("block_dim", "usedCoreNum", "params.coreNum")
"""Fields that equal the block dim of the launch."""
NOT_BELOW = (("num_col_align", "num_col"), ("colsAlign", "cols"))
"""Pairs of fields whose first is a padded size of the second."""


def _contradictions(tiling: dict[str, Any], exception: dict[str, Any]) -> Iterator[str]:
    block_dim = exception.get("block_dim")
    for name in CORE_FIELDS:
        if block_dim is not None and tiling.get(name, block_dim) != block_dim:
            yield Text(
                "{name} = {value}, but the kernel was launched on {block_dim} cores",
                name=name,
                value=tiling[name],
                block_dim=block_dim,
            )
    for padded, size in NOT_BELOW:
        if tiling.get(padded, 0) < tiling.get(size, 0):
            yield Text(
                "{padded} = {value} is smaller than {size} = {least}",
                padded=padded,
                value=tiling[padded],
                size=size,
                least=tiling[size],
            )


def _differences(tiling: dict[str, Any], exception: dict[str, Any], plan: Plan) -> Iterator[str]:
    """Yield where the exception differs from the plan of the call."""
    launch = {"tiling key": exception.get("tiling_key"), "block dim": exception.get("block_dim")}
    given = launch | tiling
    planned = {"tiling key": plan.tiling_key, "block dim": plan.block_dim}
    for name, value in (planned | dict(flattened(plan.tiling))).items():
        if given.get(name) is not None and given[name] != value:
            yield Text(
                "{name} is {value}, the plan of the call has {planned}",
                name=name,
                value=given[name],
                planned=value,
            )


def _lines(
    found: Diagnosis, plan: Plan | None, refusal: Unplanned | None, reading: Reading
) -> Iterator[tuple[str, str]]:
    """Yield label and text of every line of the answer."""
    if not found.known:
        yield "text", Text("nothing in it is known: no code, operator or sentence of the product")
        yield "next", NEXT_OF_UNKNOWN
    elif found.code is None:
        yield "code", Text("the text states no code")
    else:
        meaning = _meaning(found.code)[1] or "a code without a meaning here"
        yield "code", Text("{code}: {words}", code=found.code, words=meaning)
    if found.known:
        stage = STAGES[found.stage] if found.stage else Text("the text does not show the stage")
        yield "stage", stage
        yield "operator", _operator_text(found)
    others = {name for _, name, proof in _named_operators(reading) if proof == Proof.CALL}
    others.discard(found.operator or "")
    if others:
        yield (
            "also named",
            Text(
                "{operators}: code, stage and argument may be those of another failure in the text",
                operators=joined(sorted(others), ", "),
            ),
        )
    if reading.other_calls:
        yield (
            "also named",
            Text(
                "{operators}: in another process, whose lines are left out",
                operators=joined(reading.other_calls, ", "),
            ),
        )
    if found.kernel:
        yield "kernel", Text("{kernel}", kernel=found.kernel)
    yield from _cause_lines(found, reading)
    if found.argument:
        about_dtype = reading.values("argument")[0].form.about_dtype
        yield "argument", _argument_text(found.operator, found.argument, about_dtype)
    if len(found.ranks) > 1:
        yield "ranks", Text("{count} processes in the text", count=len(found.ranks))
    if found.release:
        yield "release", Text("such a message is of release {release}", release=found.release)
    if found.exception is not None:
        yield from _exception_lines(found, found.exception)
    if plan:
        yield (
            "call",
            Text(
                "the call passes all documented checks on {product}, release {release}: {path}",
                product=plan.product_title,
                release=plan.release,
                path=plan.path,
            ),
        )
    if refusal:
        yield "call", Text("the call is refused: {error}", error=refusal.message)
        hint = refusal.hint
        for part in hint.fields["parts"] if isinstance(hint, Joined) else (hint,):
            if part:
                yield "legal", part
        where = joined(found.runs_on, ", ") if found.runs_on else "nowhere"
        yield "accepted", Text("{where}", where=where)
    if plan is None and refusal is None and (step := _next(found)):
        yield "next", step
    if reading.dropped:
        yield "left out", Text("{count} further findings", count=reading.dropped)


def _next(found: Diagnosis) -> str:
    """Return what to do next; empty where nothing helps."""
    is_ours = found.operator is None or find_operator(found.operator) is not None
    if found.stage in CHECKED and is_ours:
        return CALL
    if found.stage in CHECKED or found.stage == INNER:
        return CHANGE if found.cause or found.argument else BLOCK
    if found.stage == DEVICE:
        if not found.blamed:
            return Text(
                "run again with ASCEND_LAUNCH_BLOCKING=1, or give the plog of that process: it "
                "names the kernel"
            )
        text = "check sizes and values of indices of {operator}"
        return Text(
            "{check}; with --call its plan is compared with the launch" if is_ours else "{check}",
            check=Text(text, operator=found.operator),
        )
    if found.cause == OUT_OF_MEMORY:
        return Text("use smaller tensors: fewer samples, shorter sequences, or recomputation")
    return NEXT.get(found.stage or "", "")


def _cause_lines(found: Diagnosis, reading: Reading) -> Iterator[tuple[str, str]]:
    """Yield the sentence of the cause, the facts in it, and its meaning."""
    if found.cause is None:
        return
    yield "cause", Text("{cause}", cause=found.cause)
    said = (said for entry in OPERATORS for said in entry.refusals)
    key = reading.values("cause")[0].form.key
    yield from (("meaning", refusal.meaning) for refusal in said if refusal.key == key)
    if stated := statement(found.cause):
        yield "values", stated
    for finding in reading.values("given")[:1]:
        rows = [dtypes_of(row.value) for row in reading.values("supported")]
        given = dtypes_of(finding.value)
        yield from (("values", line) for line in listed_lines(given, rows[:MOST_ROWS]))
        if products := _refused_on(found.operator, given):
            yield (
                "products",
                Text("dtypes are refused on {products}", products=joined(products, ", ")),
            )


def _refused_on(operator: str | None, dtypes: Mapping[str, str]) -> list[str]:
    """Return the products that have an operator of ours and refuse the dtypes of a call."""
    if operator is None or find_operator(operator) is None:
        return []
    from npu_sim.questions.limits import limits

    declared = load_operator(operator)
    arguments = {_own_argument(operator, name): dtype for name, dtype in dtypes.items()}
    axes = {axis.name for axis in declared.axes}
    stated: dict[str, Any] = {
        argument.dtype: dtype
        for name, dtype in arguments.items()
        if name is not None
        and isinstance(argument := declared.by_name.get(name), Tensor)
        and argument.dtype in axes
    }
    sizes = [axis.name for axis in declared.axes if not hasattr(axis, "words")]
    try:
        rows = limits(operator, sizes[0], **stated).rows
    except (UsageError, *NO_PLAN):  # a dtype that no product has
        return []
    return list(
        dict.fromkeys(
            row.product
            for row in rows
            if not row.documented.ranges
            and getattr(row.documented.above, "argument", "product") not in ("product", "release")
        )
    )


def _operator_text(found: Diagnosis) -> str:
    first_phase = found.stage in (SELECTION, PACKAGE, COMPILE, INNER, ARGUMENT)
    texts = (
        (found.stage == HARDWARE, Text("no operator is the cause: the hardware reports a fault")),
        (found.operator is None, Text("the text does not name the operator that failed")),
        (found.blamed, Text("{operator} failed", operator=found.operator)),
        (
            first_phase,
            Text(
                "{operator} was called; the text does not prove that its arguments are the cause",
                operator=found.operator,
            ),
        ),
        (
            True,
            Text(
                "{operator} is named, but the text does not prove that it failed: an earlier "
                "asynchronous task may be the cause (ASCEND_LAUNCH_BLOCKING=1, or the kernel name "
                "in plog)",
                operator=found.operator,
            ),
        ),
    )
    return next(text for holds, text in texts if holds)


def _argument_text(operator: str | None, name: str, about_dtype: bool) -> str:
    """Return an argument with its documented shape or dtypes where npu_sim has the operator."""
    entry = find_operator(operator) if operator else None
    declared: Operator | None = load_operator(entry.name) if entry else None
    argument = declared.by_name.get(name) if declared else None
    if declared is None or not isinstance(argument, Tensor) or not isinstance(argument.shape, str):
        return Text("{argument}", argument=name)
    if about_dtype:
        axis = next((axis for axis in declared.axes if axis.name == argument.dtype), None)
        return Text(
            "{argument} ({help}): documented dtypes {dtypes}",
            argument=name,
            help=argument.help,
            dtypes=joined(getattr(axis, "words", (argument.dtype,)), ", "),
        )
    return Text(
        "{argument} ({help}): documented shape ({shape})",
        argument=name,
        help=argument.help,
        shape=argument.shape,
    )


def _memory_text(tensor: Mapping[str, Any]) -> str:
    """Return an input, output or tiling structure of an exception dump."""
    shape = "x".join(map(str, tensor["shape"]))
    return Text(
        "{role} {described}: {bytes}",
        role=Text(tensor["role"]),
        described=joined((part for part in (tensor["dtype"], shape) if part), " "),
        bytes=bytes_text(tensor["bytes"]),
    )


def _exception_lines(found: Diagnosis, exception: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    error = exception.get("error_code", "")
    if "exception" in exception:
        yield (
            "device",
            Text(
                "{exception} on core {core}, error code {code}",
                exception=exception["exception"],
                core=exception["core_id"],
                code=error or "-",
            ),
        )
    if dump := exception.get("dump"):
        yield (
            "dump",
            Text(
                "{op_name}, version {version}, {time}",
                op_name=dump["op_name"],
                version=dump["version"],
                time=dump["time"],
            ),
        )
        for tensor in dump["tensors"]:
            yield "dump", _memory_text(tensor)
    if "error_string" in exception:
        yield "device", Text("{text}", text=exception["error_string"])
    bits = int(error, 16) if error.startswith("0x") else 0
    for bit, meaning in ERROR_BITS.items():
        if bits >> bit & 1:
            yield "device", Text("bit {bit}: {words}", bit=bit, words=meaning)
    if exception.get("tiling_key") is not None:
        key, dim = exception["tiling_key"], exception["block_dim"]
        yield "launch", Text("tiling key {key}, block dim {block_dim}", key=str(key), block_dim=dim)
    for name, value in found.tiling.items():
        yield "tiling", Text("{name} = {value}", name=name, value=value)
    for text in found.impossible:
        yield "impossible", text
