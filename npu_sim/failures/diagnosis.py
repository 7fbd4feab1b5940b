"""Diagnosis of a failure from its text: code, stage, operator, argument, plan, device exception.

Source: specification pages ``error_texts`` (sections 4 to 6) and ``plog``.
"""

from collections.abc import Iterable, Mapping
from io import StringIO
from typing import Any

from pydantic import Field

from npu_sim.failures.device_log import kernel_parts
from npu_sim.failures.forms import (
    BEFORE,
    COLLECTIVE,
    COMPILE,
    DEVICE,
    DISPATCH,
    ERROR_BITS,
    INNER,
    LAUNCH,
    NOT_OPERATORS,
    NUMBERS,
    PACKAGE,
    PARAMETER,
    QUEUE,
    SELECTION,
    SHAPE,
    STAGES,
    START,
    TILING,
    Proof,
)
from npu_sim.failures.reader import Reading, is_own_code, read_lines
from npu_sim.language import Text, joined
from npu_sim.plans.answers import Frozen, FrozenDict, ReadOnlyDict, TextField
from npu_sim.registry import OPERATORS, find_operator, load_operator, operator_of_launch
from npu_sim.releases import default_release, release_names
from npu_sim.status import (
    AclnnError,
    NotModelledError,
    UsageError,
    plain_name,
    shown,
    without_internal_frames,
)
from npu_sim.tiling.structures import decode_tiling, find_structure, flattened

BLAMING_STAGES = (PARAMETER, TILING, SHAPE, DISPATCH, BEFORE)
"""Stages in which a synchronous call states its own failure."""


class Diagnosis(Frozen):
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
    """Stage in which the failure arose, one of ``npu_sim.failures.forms.STAGES``."""
    argument: str | None = None
    """Argument as the text names it, or the operator's own name for it."""
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
    def answer(self) -> str:
        """The answer as one text."""
        return joined((text for _, text in self.lines), "\n")

    def as_dict(self) -> dict[str, Any]:
        """Return the diagnosis as plain data, the form ``--json`` prints."""
        data = self.model_dump(mode="json", exclude={"lines"})
        return {**data, "answer": str(self.answer)}


@without_internal_frames
def diagnose(
    text: str | Iterable[str],
    *,
    operator: str | None = None,
    product: Any = None,
    soc: str | None = None,
    release: str | None = None,
    deterministic: bool = False,
    **arguments: Any,
) -> Diagnosis:
    """Return the diagnosis of a pasted error text or log.

    Parameters
    ----------
    text
        The text, or its lines, such as an open text file; read line by line.
    operator
        Operator of the call, when the text does not name one of ours.
    product, soc, release, deterministic, **arguments
        The call that failed, as for :func:`npu_sim.plan`; without arguments nothing is planned.

    Raises
    ------
    UsageError
        When ``text`` is neither a str nor lines, or the call cannot be read.
    """
    if isinstance(text, str):
        text = StringIO(text)
    elif isinstance(text, bytes | Mapping) or not isinstance(text, Iterable):
        raise UsageError(
            "text",
            Text("text = {text} is neither a text nor lines", text=shown(text)),
            "give a str, or a file opened as text",
        )
    reading = read_lines(text)
    facts = _facts(reading)
    asked = operator or facts["operator"]
    call = {"product": product, "soc": soc, "release": release, "deterministic": deterministic}
    plan: dict[str, Any] = {}
    if arguments:
        if asked is None or find_operator(asked) is None:
            raise UsageError(
                "operator",
                Text("operator: the text names none that npu_sim has"),
                "name the operator of the call",
            )
        plan = _planned(asked, call, arguments)
    device = _device(facts, release, plan.get("plan"))
    planned = {key: plan[key] for key in ("refusal", "runs_on") if key in plan}
    fields: dict[str, Any] = facts | device | planned
    return Diagnosis(**fields, lines=tuple(_lines(fields, plan, reading)))


def _facts(reading: Reading) -> dict[str, Any]:
    """Return what the findings prove: operator, kernel, codes, stage, argument, release."""
    numbers = [one.value for one in reading.values("code")]
    proved = {one.form.stage for one in reading.findings if one.form.stage}
    code = _code(reading, numbers)
    stage = _stage(code, proved, reading)
    exception = next(
        (facts for one in reading.exceptions.values() if (facts := one.as_dict())), None
    )
    kernel = next((one.value for one in reading.values("kernel")), None)
    name, proof = _operator(reading, kernel)
    entry = find_operator(name) if name else None
    blamed = proof == Proof.FAULT or (
        proof in (Proof.CALL, Proof.KERNEL, Proof.PLACE) and stage in BLAMING_STAGES
    )
    named = next((one.value.strip(".").split(".")[-1] for one in reading.values("argument")), None)
    inner = [
        one.value
        for one in reading.values("operator")
        if one.form.proof == Proof.KERNEL and one.value != name
    ]
    return {
        "operator": entry.name if entry else name,
        "blamed": blamed,
        "kernel": kernel or next(iter(inner), None),
        "code": code,
        "codes": tuple(dict.fromkeys([*numbers, *reading.codes])),
        "stage": stage,
        "argument": _own_argument(entry.name if entry else None, named),
        "ranks": tuple(reading.ranks.values()),
        "release": _release(reading),
        "exception": exception,
    }


INNER_NULLPTR = "561103"
"""Number of a failed inner step: its message proves it even beside a block with another code."""


def _code(reading: Reading, numbers: list[str]) -> str | None:
    """Return the code of a failure: the most specific one that the text states or proves."""
    stated = next((number for number in numbers if not number.startswith("0x")), None)
    implied = [finding.form.code for finding in reading.findings if finding.form.code]
    proven = INNER_NULLPTR if INNER_NULLPTR in implied else None
    block = next((code for code in reading.codes if not code.startswith("ERR")), None)
    own_codes = (code for code in reading.codes if code.startswith("ERR") and is_own_code(code))
    tiling = any(finding.form.stage == TILING for finding in reading.findings)
    of_tiling = "EZ9999" if tiling else None
    inner = next((number for number in numbers if number.startswith("0x")), None)
    choices = (stated, proven, block, next(own_codes, None), *implied[:1], of_tiling, inner)
    return next((code for code in choices if code), None)


def _meaning(code: str | None) -> tuple[str, str]:
    """Return stage and meaning of a code; empty for an unknown one."""
    if code is None:
        return "", ""
    return next(
        ((stage, words) for start, stage, words in NUMBERS if code.startswith(start)), ("", "")
    )


def _stage(code: str | None, proved: set[str], reading: Reading) -> str | None:
    by_code = _meaning(code)[0]
    if by_code in (COMPILE, COLLECTIVE, START) and DEVICE not in proved:
        return by_code
    if LAUNCH in proved and DEVICE in proved | {by_code}:
        return DEVICE if any(one.startswith("EZ9999") for one in reading.codes) else LAUNCH
    if COLLECTIVE in proved:
        return COLLECTIVE
    for stage in STAGES:
        if stage in proved and stage not in (QUEUE, LAUNCH):
            return stage
    return by_code or next((stage for stage in STAGES if stage in proved), None)


def _operator(reading: Reading, kernel: str | None) -> tuple[str | None, str]:
    """Return the operator that the text names, with the kind of evidence."""
    if kernel and (parts := kernel_parts(kernel)):
        entry = operator_of_launch(parts["op"])
        return (entry.name if entry else parts["op"]), Proof.FAULT
    found = [
        one
        for one in reading.values("operator")
        if one.form.proof != Proof.FUNCTION or not NOT_OPERATORS.search(one.value)
    ]
    for proof in Proof.ORDER:
        for one in found:
            if one.form.proof == proof:
                return _own_name(one.value), proof
    return None, ""


def _own_name(name: str) -> str:
    """Return npu_sim's name of an operator or kernel; the name as it is for others."""
    bare = name.removeprefix("aclnnInner").removeprefix("npu_")
    entry = operator_of_launch(bare)
    if entry is None and name.startswith(("aclnn", "npu_")):
        title = plain_name(bare.removeprefix("aclnn"))
        entry = next((one for one in OPERATORS if plain_name(one.title) == title), None)
    return entry.name if entry else name


def _own_argument(operator: str | None, name: str | None) -> str | None:
    """Return the operator's own name of an argument, or the name in the text."""
    if operator is None or name is None:
        return name
    declared = load_operator(operator)
    known = (one.name for one in (*declared.inputs, *declared.outputs, *declared.attributes))
    first = name.split("/")[0].split(" and ")[0].split(",")[0]
    wanted = plain_name(first)
    return next(
        (one for one in known if wanted in (plain_name(one), plain_name(one) + "optional")), name
    )


def _release(reading: Reading) -> str:
    stated = reading.values("release")
    if stated:
        return stated[0].value
    return next((one.form.release for one in reading.findings if one.form.release), "")


def _planned(operator: str, call: dict[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """Return plan or refusal of a call, and where it runs."""
    from npu_sim.operators import plan
    from npu_sim.questions.compare import compare

    answer: dict[str, Any] = {}
    try:
        answer["plan"] = plan(operator, **call, **arguments)
    except (AclnnError, NotModelledError) as error:
        answer["refusal"], answer["error"] = error.as_dict(), error
        places = compare(operator, release="all", deterministic=call["deterministic"], **arguments)
        answer["runs_on"] = tuple(
            f"{row.profile.product.title} {row.profile.soc} {row.profile.release}"
            for row in places.rows
            if row.plan is not None
        )
    return answer


def _device(facts: dict[str, Any], release: str | None, plan: Any) -> dict[str, Any]:
    """Return the named tiling fields of a device exception, and what in them is impossible."""
    exception = facts["exception"] or {}
    name = exception.get("kernel_name_parts", {}).get("op", "")
    structure = find_structure(name)
    words = exception.get("tiling_words_hex", [])
    impossible: list[str] = []
    key = exception.get("kernel_name_parts", {}).get("key")
    if key and exception.get("tiling_key") not in (None, int(key)):
        impossible.append(
            Text(
                "the kernel's name has key {name_key}, the launch tiling key {key}",
                name_key=key,
                key=exception["tiling_key"],
            )
        )
    if structure is None or not words:
        return {"impossible": tuple(impossible)}
    if not any(int(word, 16) for word in words):
        return {
            "impossible": (
                *impossible,
                Text("all words of the tiling structure are 0: the arguments did not arrive"),
            )
        }
    dated = facts["release"] if facts["release"] in release_names() else None
    chosen = (plan.release if plan else release) or dated or default_release()
    try:
        tiling = decode_tiling(structure.kernel, words, release=chosen)
    except UsageError as error:
        return {"impossible": (*impossible, error.message)}
    impossible += _contradictions(tiling, exception)
    if plan is not None:
        impossible += _differences(tiling, exception, plan)
    return {"tiling": tiling, "impossible": tuple(impossible)}


CORE_FIELDS = ("block_dim", "usedCoreNum", "params.coreNum")
"""Fields that equal the block dim of the launch."""
NOT_BELOW = (("num_col_align", "num_col"), ("colsAlign", "cols"))
"""Pairs of fields whose first is a padded size of the second."""


def _contradictions(tiling: dict[str, Any], exception: dict[str, Any]) -> list[str]:
    found: list[str] = []
    block_dim = exception.get("block_dim")
    for name in CORE_FIELDS:
        if block_dim is not None and tiling.get(name, block_dim) != block_dim:
            found.append(
                Text(
                    "{name} = {value}, but the kernel was launched on {block_dim} cores",
                    name=name,
                    value=tiling[name],
                    block_dim=block_dim,
                )
            )
    for padded, size in NOT_BELOW:
        if tiling.get(padded, 0) < tiling.get(size, 0):
            found.append(
                Text(
                    "{padded} = {value} is smaller than {size} = {least}",
                    padded=padded,
                    value=tiling[padded],
                    size=size,
                    least=tiling[size],
                )
            )
    return found


def _differences(tiling: dict[str, Any], exception: dict[str, Any], plan: Any) -> list[str]:
    """Return where the exception differs from the plan of the call."""
    planned = {"tiling key": plan.tiling_key, "block dim": plan.block_dim}
    given = {"tiling key": exception.get("tiling_key"), "block dim": exception.get("block_dim")}
    planned |= dict(flattened(plan.tiling))
    given |= tiling
    return [
        Text(
            "{name} is {value}, the plan of the call has {planned}",
            name=name,
            value=given[name],
            planned=value,
        )
        for name, value in planned.items()
        if given.get(name) is not None and given[name] != value
    ]


def _lines(fields: dict[str, Any], plan: dict[str, Any], reading: Reading) -> Any:
    """Yield label and text of every line of the answer."""
    code, words = fields["code"], _meaning(fields["code"])[1]
    if code is None:
        yield Text("code"), Text("the text states no code")
    else:
        yield (
            Text("code"),
            Text("{code}: {words}", code=code, words=words or "a code without a meaning here"),
        )
    stage = fields["stage"]
    yield Text("stage"), STAGES[stage] if stage else Text("the text does not show the stage")
    yield Text("operator"), _operator_text(fields)
    if fields["kernel"]:
        yield Text("kernel"), Text("{kernel}", kernel=fields["kernel"])
    for one in reading.values("cause")[:1]:
        yield Text("cause"), Text("{cause}", cause=one.value)
    if fields["argument"]:
        yield Text("argument"), _argument_text(fields["operator"], fields["argument"])
    if fields["ranks"]:
        yield Text("ranks"), Text("{count} processes in the text", count=len(fields["ranks"]))
    if fields["release"]:
        yield (
            Text("release"),
            Text("such a message is of release {release}", release=fields["release"]),
        )
    yield from _exception_lines(fields)
    yield from _plan_lines(plan)
    if reading.dropped:
        yield Text("left out"), Text("{count} further findings", count=reading.dropped)


def _operator_text(fields: dict[str, Any]) -> str:
    name = fields["operator"]
    if name is None:
        return Text("the text does not name the operator that failed")
    if fields["blamed"]:
        return Text("{operator} failed", operator=name)
    if fields["stage"] in (SELECTION, PACKAGE, COMPILE, INNER):
        return Text(
            "{operator} was called; the text does not prove that its arguments are the cause",
            operator=name,
        )
    return Text(
        "{operator} is named, but the text does not prove that it failed: an earlier asynchronous "
        "task may be the cause (ASCEND_LAUNCH_BLOCKING=1, or the kernel name in plog)",
        operator=name,
    )


def _argument_text(operator: str | None, name: str) -> str:
    """Return an argument with its documented shape and dtypes where npu_sim has the operator."""
    entry = find_operator(operator) if operator else None
    declared = load_operator(entry.name) if entry else None
    tensors = (*declared.inputs, *declared.outputs) if declared else ()
    tensor = next((one for one in tensors if one.name == name), None)
    if tensor is None or not isinstance(tensor.shape, str):
        return Text("{argument}", argument=name)
    return Text("{argument} ({help}): documented shape ({shape})", tensor, argument=name)


def _exception_lines(fields: dict[str, Any]) -> Any:
    exception = fields["exception"]
    if exception is None:
        return
    if "exception" in exception:
        yield (
            Text("device"),
            Text(
                "{exception} on core {core}, error code {code}",
                exception=exception["exception"],
                core=exception["core_id"],
                code=exception.get("error_code", "-"),
            ),
        )
    if "error_string" in exception:
        yield Text("device"), Text("{text}", text=exception["error_string"])
    error = exception.get("error_code", "")
    bits = int(error, 16) if error.startswith("0x") else 0
    for bit, words in ERROR_BITS.items():
        if bits >> bit & 1:
            yield Text("device"), Text("bit {bit}: {words}", bit=bit, words=words)
    if exception.get("tiling_key") is not None:
        yield (
            Text("launch"),
            Text(
                "tiling key {key}, block dim {block_dim}",
                key=exception["tiling_key"],
                block_dim=exception["block_dim"],
            ),
        )
    for name, value in fields.get("tiling", {}).items():
        yield Text("tiling"), Text("{name} = {value}", name=name, value=value)
    for text in fields.get("impossible", ()):
        yield Text("impossible"), text


def _plan_lines(plan: dict[str, Any]) -> Any:
    if "plan" in plan:
        yield (
            Text("call"),
            Text(
                "the call passes all documented checks on {product}, release {release}: {path}",
                plan["plan"],
                product=plan["plan"].product_title,
            ),
        )
    if "error" in plan:
        yield Text("call"), Text("the call is refused: {error}", error=plan["error"].message)
        if plan["error"].hint:
            yield Text("legal"), plan["error"].hint
        where = joined(plan["runs_on"], ", ") if plan["runs_on"] else Text("nowhere")
        yield Text("accepted"), Text("{where}", where=where)
