"""Forms of the product's messages, meanings of its codes, and the reader that finds them in a text.

A form applies to a line that contains its ``key``; the named groups of its pattern are ``code``,
``operator``, ``kernel``, ``argument`` and ``cause``. Every repetition of a pattern is bounded, so
that reading a line takes linear time. A text is read line by line, in bounded memory: prefixes are
removed from every line, lines are grouped by process, and every form that a line contains becomes a
finding.

Source: specification pages ``error_texts`` and ``plog``.
"""

import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from io import BufferedReader, StringIO, TextIOWrapper
from itertools import chain, pairwise
from pathlib import Path
from typing import IO, Any, NamedTuple, TextIO, cast

from npu_sim.files.reading import open_plain
from npu_sim.language import Text
from npu_sim.registry import OPERATORS
from npu_sim.status import INNER_NULL_POINTER, TILING_FAILURE, Status
from npu_sim.tools.failures.device_exceptions import HEAD, TEXT_HINT, ExceptionLog

NAME = r"[A-Za-z_]\w{0,200}"
NUMBER = r"(?:107|161|207|361|500|507|561)\d{3}"
"""Numbers of the runtime and of aclnn."""
WORDS = (
    r"(?:[Cc]ode|[Ss]tatus|[Rr]esult|[Ee]rror(?: no)?|ERROR|[Rr]et|failed(?: in \w{1,60})?"
    r"|错误码?|报错)"
)
BEFORE_NUMBER = rf"{WORDS}(?:[^\w]{{0,4}}is)?[^\w]{{0,8}}"
"""What stands before a number in messages of other programs than torch_npu."""

TIME = r"\d{4}-\d\d-\d\d-[\d:.]{8,30}"
BEFORE_SENTENCE = (
    rf"(?:\b{TIME}\s{{1,8}}|^\s{{0,40}})(?:\w{{0,40}}\(E\w{{5}}\):\s{{1,8}}|E\w{{5}}:\s{{1,8}})?"
)
"""What stands before the sentence of a message in a block: time and code, or blanks alone."""
OPERATOR_PREFIX = r"op\[\w{1,200}\],\s{0,8}"
"""Operator before the sentence of a planner or of a graph."""
SENTENCE = (
    rf"(?!\s|{OPERATOR_PREFIX}|\[FUNC:|\[PID:|{TIME}|\w{{0,40}}\(E\w{{5}}\)|E[A-Z\d]\d{{4}})"
    r"(?:[^\[]|\[(?!FUNC:)){1,500}"
)
"""Sentence of a message, up to its place in the source."""

DTYPE_OF_TENSOR = r"\w{1,100}\(DT_\w{1,40},\s{0,8}\w{1,60}\)"
SIZE = r"(?:\[[\d, -]{1,200}\]|\b\d{1,20})"
CHECKS = (
    ("not implemented for", r"Tensor [\w.]{1,100} not implemented for DT_[^\n]{1,400}"),
    ("same dtype", r"Expected both tensors to have same dtype, but found [^\n]{1,300}"),
    ("to have same size", r"Expected tensor for [^\n]{1,100} to have same size as [^\n]{1,400}"),
    ("null for argument", r"Expected a proper Tensor but got null for argument [\w.]{1,200}"),
    (" dimensions", r"The [\w.]{1,200} tensor (?:cannot be larger|must have at least)[^\n]{1,60}"),
    ("dimension input", r"Expected \d{1,3} dimension input, but got [^\n]{1,300}"),
    ("broadcast", rf"{SIZE} and {SIZE} can ?not (?:be )?broadcast"),
    ("broadcast", rf"{SIZE} can ?not (?:be )?broadcast (?:to|with) {SIZE}"),
    ("support opType", r"Get regInfo failed, [^\n]{1,200}does not support opType \[\w{1,200}\]"),
    ("must match the size", r"The size of tensor [^\n]{1,200} must match the size of [^\n]{1,200}"),
)
"""Sentences of parameter checks without the code of a block: literal text, and expression."""


Proof = IntEnum(
    "Proof", ["EXCEPTION", "CALL", "KERNEL", "PLACE", "FILE", "QUEUE", "FUNCTION", "NONE"], start=0
)
"""Kinds of evidence for an operator, the strongest first."""


class Form(NamedTuple):
    """One form of a message."""

    key: str
    """Literal text that every such line contains."""
    pattern: str
    """Its expression."""
    stage: str = ""
    """Key of `STAGES` that the form proves; empty when the code decides."""
    proof: Proof = Proof.NONE
    """Kind of evidence that the group ``operator`` is."""
    code: str = ""
    """Code that the form implies when the text has none."""
    release: str = ""
    """Releases that write this form, where certain."""
    about_dtype: bool = False
    """Whether the dtype of ``argument`` is refused."""


PARAMETER, SELECTION, PACKAGE, SHAPE, TILING = (
    "parameter",
    "selection",
    "package",
    "shape",
    "tiling",
)
INNER, LAUNCH, DEVICE, QUEUE, COLLECTIVE = "inner", "launch", "device", "queue", "collective"
COMPILE, BEFORE, DISPATCH, START = "compile", "before", "dispatch", "start"
ARGUMENT, HARDWARE = "argument", "hardware"
OUT_OF_MEMORY = "NPU out of memory"
STAGES = {
    HARDWARE: "fault of the hardware: no operator is to blame",
    SELECTION: "selection of the kernel, first phase: no binary for this SoC, dtype or format",
    PACKAGE: "kernel package, first phase: it is missing, incomplete or unreadable",
    TILING: "tiling, first phase: the planner of the kernel refused the call",
    SHAPE: "inference of the output shape, first phase",
    DEVICE: "device exception: a kernel failed while it ran",
    ARGUMENT: Text(
        "call of the runtime: one of its own arguments is refused; no earlier task failed"
    ),
    LAUNCH: "launch, second phase: a runtime call failed, mostly because of an earlier task",
    PARAMETER: "parameter check, first phase: the call was refused before anything ran",
    COLLECTIVE: "collective communication; as a rule another rank is the cause",
    COMPILE: "compilation of a graph or of an operator (aclop)",
    START: "initialisation of the device",
    DISPATCH: "dispatcher of PyTorch, before aclnn: the tensors are on the wrong device",
    BEFORE: "check of torch_npu itself, before aclnn",
    QUEUE: "asynchronous report of the task queue: the failure happened earlier",
    INNER: "first phase, inner step",
}
"""Stages as text. Where forms prove several, the first of them is reported."""

INNER_NULLPTR = str(int(INNER_NULL_POINTER))
"""Number of a failed inner step: its message proves it even beside a block with another code."""

FORMS: tuple[Form, ...] = (
    Form("error code is", r"error code is\s{0,8}:?\s{0,8}(?P<code>\d{6})\b"),
    Form("error code is 0x", r"error code is (?P<code>0x[0-9a-fA-F]{1,8})\b"),
    Form("errno", r"errno[:\[]\s{0,8}(?P<code>\d{6})\b"),
    Form("failed", r"failed:\s{0,8}(?P<code>\d{6})\b"),
    Form("return:", r"failed, return:\s{0,8}(?P<code>\d{6})\b"),
    Form("error code:", r"error code:\s{0,8}(?P<code>\d{6})\b"),
    Form("ERROR: ", r"failed\. ERROR: (?P<code>\d{6})\b"),
    Form("", rf"^\s{{0,8}}(?P<code>{NUMBER})\s{{0,8}}$"),
    Form(
        "HCCL function error", r"HCCL function error: .{1,300}, error code is (?P<code>\d{1,6})\b"
    ),
    Form("errcode:", r"\berrcode:\s{0,8}(?P<code>\d{1,6})\b"),
    Form("aclnn", r"\b(?P<operator>aclnn\w{1,200}): (?P<code>\d{6})\b", proof=Proof.CALL),
    Form("kernel_name", r"fault kernel_name ?= ?(?P<kernel>[\w./-]{0,299}\w)", DEVICE),
    Form("call ", rf"\bcall (?P<operator>{NAME}) failed", proof=Proof.CALL),
    Form(
        "GetWorkspaceSize failed",
        r"\b(?P<operator>aclnn\w{1,200}?)(?::\s{0,4})?GetWorkspaceSize failed",
        proof=Proof.CALL,
    ),
    Form("OpName:[", r"OpName:\[(?P<operator>aclnn\w{1,200}?)(?:_\d{1,20})?\]", proof=Proof.CALL),
    Form(
        "OpName:[",
        r"OpName:\[(?P<operator>(?!aclnn)\w{1,200}?)(?:_\d{1,20})?\]",
        proof=Proof.KERNEL,
    ),
    Form("OPS function error", rf"OPS function error: (?P<operator>{NAME})", COMPILE, Proof.CALL),
    Form("Check aclnn", r"\bCheck (?P<operator>aclnn\w{1,200})\(", proof=Proof.CALL),
    Form("aclnn", r"\b(?P<operator>aclnn\w{1,200}) (?:call )?failed", proof=Proof.CALL),
    Form("do tiling failed", rf"\b(?P<operator>{NAME}) do tiling failed", TILING, Proof.KERNEL),
    Form(
        "does not has any binary",
        rf"\bOp (?P<operator>{NAME}) does not has any binary",
        PACKAGE,
        Proof.KERNEL,
    ),
    Form(
        "Cannot find bin", rf"bin(?: of|ary for) op (?P<operator>{NAME})", SELECTION, Proof.KERNEL
    ),
    Form("tiling func of", rf"tiling func of (?P<operator>{NAME})", TILING, Proof.KERNEL),
    Form("SoC version", r"SoC version \w{1,60} verification failed", SELECTION),
    Form("launch failed for", rf"launch failed for (?P<operator>{NAME})", proof=Proof.KERNEL),
    Form("Kernel Run failed", rf"opType: \d{{1,9}}, (?P<operator>{NAME})", proof=Proof.KERNEL),
    Form(
        "support soc version",
        rf"\bOp (?P<operator>{NAME}) not support soc version",
        SELECTION,
        Proof.KERNEL,
    ),
    Form("support opType [", rf"support opType \[(?P<operator>{NAME})\]", SELECTION, Proof.KERNEL),
    Form("optype [", rf"optype \[(?P<operator>{NAME})\]", COMPILE, Proof.KERNEL),
    Form("ADD_TO_LAUNCHER_LIST", r"ADD_TO_LAUNCHER_LIST_AICORE failed", code=INNER_NULLPTR),
    Form("run meta for", r"run meta for npu\.(?P<operator>\w{1,200})\.", BEFORE, Proof.PLACE),
    Form("converter is not", r"of: npu\.(?P<operator>\w{1,200})\.", BEFORE, Proof.PLACE),
    Form("not in libopapi", r"\b(?P<operator>aclnn\w{1,200}) or aclnn", PACKAGE, Proof.CALL),
    Form(
        "Could not run",
        r"Could not run '\w{1,200}::(?P<operator>\w{1,200})'",
        DISPATCH,
        Proof.PLACE,
    ),
    Form(
        "only support", rf"Error: (?P<operator>{NAME}) (?:now )?only support", BEFORE, Proof.PLACE
    ),
    Form(
        "working operator name is",
        rf"working operator name is (?P<operator>{NAME})",
        QUEUE,
        Proof.QUEUE,
    ),
    Form("Inner error is reported", r"Inner error is reported as above", QUEUE),
    Form(
        "NPU function error",
        r"(?:^|\s)(?P<operator>[A-Za-z]\w{1,200}):\S{1,300}:\d{1,9}(?: NPU|$)",
        "",
        Proof.FUNCTION,
    ),
    Form("npu_", r"\b(?:torch_npu|ops\.npu)\.(?P<operator>npu_\w{1,200})\(", "", Proof.FUNCTION),
    Form(
        "_tiling",
        r"\[(?:FILE:)?(?P<operator>\w{1,200}?)_tiling\w{0,60}\.(?:cpp|cc)(?::\d{1,9})?\]",
        TILING,
        Proof.FILE,
    ),
    Form(
        "_infershape",
        r"\[(?:FILE:)?(?P<operator>\w{1,200})_infershape\.cpp(?::\d{1,9})?\]",
        SHAPE,
        Proof.FILE,
    ),
    Form(
        "_checker",
        r"\[(?:FILE:)?(?P<operator>\w{1,200})_checker\.cpp(?::\d{1,9})?\]",
        PARAMETER,
        Proof.FILE,
    ),
    Form(OUT_OF_MEMORY, rf"(?P<cause>{OUT_OF_MEMORY})", BEFORE),
    Form("Fault RAS", r"(?P<cause>Fault RAS\b[^\n]{0,400})", HARDWARE),
    *(
        Form(said.key, f"(?P<cause>{said.pattern or re.escape(said.key)})", TILING)
        for entry in OPERATORS
        for said in entry.refusals
    ),
    Form("regInfo failed", r"Get regInfo failed", SELECTION),
    Form("binary_info_config.json failed", r"binary_info_config\.json failed", PACKAGE),
    Form("dynamic kernel config fail", r"Parse dynamic kernel config fail", PACKAGE),
    Form("parse json for config", r"Cannot parse json for config file", PACKAGE),
    Form("ParseDynamicKernels", r"Failed to ParseDynamicKernels", PACKAGE),
    Form("NnopbaseCollecterWork", r"NnopbaseCollecterWork", PACKAGE),
    Form("NnopbaseInit", r"NnopbaseInit", PACKAGE),
    Form(
        "NnopbaseExecutorDoTiling",
        r"DoTiling\(executor\) failed",
        TILING,
        code=str(int(TILING_FAILURE)),
    ),
    Form("error from device", r"The error from device", DEVICE),
    Form("error occurs on the device", r"An error occurs on the device", DEVICE),
    Form(
        "[ASSERT]",
        r"\b(?P<kernel>(?P<operator>\w{1,100}?))(?:_base|_impl)?\.\w{1,8}:\d{1,9}: "
        r"Assertion [`'][^'\n]{1,400}'\s{0,8}(?P<cause>[^\s!][^!\n]{0,300})",
        DEVICE,
        Proof.FILE,
    ),
    Form("kernel execut", r"[Kk]ernel execut\w{1,20} failed", DEVICE),
    Form("exception", r"aicore exception|vector core exception", DEVICE),
    Form("error code=0x", r"error code=(?P<code>0x\w{1,8})\b", DEVICE),
    Form("retCode=0x", r"retCode=(?P<code>0x\w{1,8})\b", DEVICE),
    Form("", rf"{BEFORE_NUMBER}(?P<code>{NUMBER})\b"),
    Form("Launch", r"(?:rtKernelLaunch|aclrtLaunchKernel)\w{0,60} failed", LAUNCH),
    Form("KernelLaunch failed", r"KernelLaunch failed", LAUNCH),
    Form(
        "hccl",
        r"call hccl api failed|HCCL function error|of the hccl module|hccl fftsplus task timeout",
        COLLECTIVE,
    ),
    Form("EE10", r"\bEE10(?:0[134]|1[127]|22)\b(?!.{0,300}context pointer null)", ARGUMENT),
    Form("call ge api", r"call ge api failed", COMPILE),
    Form("null for argument", r"null for argument (?P<argument>[\w.]{1,200})"),
    Form(
        "not implemented for",
        r"(?<![\w.])(?P<argument>[\w.]{1,200}) not implemented for DT_",
        about_dtype=True,
    ),
    Form("same dtype", r"same dtype, but found (?P<argument>[\w.]{1,200}) DT_", about_dtype=True),
    Form(
        "Expected tensor for", r"Expected tensor for (?P<argument>[\w.]{1,200}) to have same size"
    ),
    Form(
        "tensor ", r"The (?P<argument>[\w.]{1,200}) tensor (?:cannot be larger|must have at least)"
    ),
    Form("dimension input", r"dimension input, but got (?P<argument>[\w.]{1,200}) with sizes"),
    Form(
        "incorrect dtype",
        r"(?:Parameters? \[?|OP\[\w{1,200}\] )(?P<argument>[A-Za-z_]\w{0,100})\b"
        r"[^\n]{0,300}? ha(?:s|ve) incorrect dtype",
        about_dtype=True,
    ),
    Form(
        "Parameter",
        r"Parameters? \[?(?P<argument>[\w.]{1,100}(?:(?:, | and )[\w.]{1,100}){0,8})\]? of",
    ),
    Form("ttr", r"\bAttr(?:ibute)? \[?(?P<argument>\w{1,100})\]? (?:of|for) \S{1,200} has"),
    Form(
        "incorrect",
        rf"(?:Parameters?|Attr(?:ibute)?) \[?[\w., ]{{1,200}}?\]? (?:of|for) "
        rf"\[?(?P<operator>{NAME})\]? ha(?:s|ve) ",
        proof=Proof.KERNEL,
    ),
    Form("attr[", r"\battr\[(?:: )?(?P<argument>\w{1,100})\]"),
    Form("incorrect", r"OP\[\w{1,200}\] (?P<argument>[A-Za-z_]\w{0,100}) has incorrect"),
    Form("incorrect", rf"\bOP\[(?P<operator>{NAME})\]", proof=Proof.KERNEL),
    Form("Input ", r"Input (?P<argument>[\w/]{1,100})'?s? (?:shape|dim)"),
    Form("elf dtype", r"\b(?P<argument>[Ss]elf) dtype", about_dtype=True),
    Form("psilon", r"(?P<argument>[Ee]psilon) less than zero"),
    Form("logProb", r"\b(?P<argument>logProb) dim"),
    Form("permutedTokens", r"(?P<argument>permutedTokens)'s (?:shape|hiddensize)"),
    Form("topK", r"\b(?P<argument>topK) (?:can not|only support)"),
    Form("cos or sin", r"(?P<argument>cos or sin) shape is invalid"),
    Form("index shape", r"expected (?P<argument>index) shape"),
    Form(
        "Io input dtype",
        r"(?P<cause>Io input dtype or format is not supported), get io input info is "
        r"(?P<given>.{1,4000}?) but supported list is",
        SELECTION,
    ),
    Form(
        "(DT_",
        rf"^\s{{0,40}}(?P<supported>{DTYPE_OF_TENSOR}(?:\s{{1,8}}{DTYPE_OF_TENSOR}){{0,60}})"
        r"\s{0,8}$",
    ),
    Form(
        "incorrect ",
        r"(?P<cause>\b(?:Parameters?|Attr(?:ibute)?|OP\[)[^\n]{1,200}? ha(?:s|ve) incorrect "
        r"[^\n]{1,400}?)\s{0,8}(?=\[FUNC:|$)",
    ),
    Form("op[", rf"{BEFORE_SENTENCE}op\[(?P<operator>{NAME}?)(?:_\d{{1,20}})?\]", "", Proof.KERNEL),
    Form("op[", rf"{BEFORE_SENTENCE}{OPERATOR_PREFIX}(?P<cause>{SENTENCE})(?=\[FUNC:|$)"),
    Form(
        "[FILE:",
        rf"{BEFORE_SENTENCE}(?P<cause>{SENTENCE})"
        r"\[FUNC:\w{1,200}\]\[FILE:\w{1,200}_tiling\w{0,60}\.(?:cpp|cc)\]",
    ),
    Form("OpName:[", r"OpName:\[\w{1,300}\],?\s{0,8}\"?(?P<cause>[^\s\"][^\"]{0,500})"),
    *(
        Form(
            code,
            rf"\b{code}\d{{2}}(?:\)?:)\s{{0,8}}(?:\[PID: \d{{1,20}}\]\s{{1,8}})?"
            rf"(?:{TIME}\s{{1,8}})?(?P<cause>{SENTENCE})",
        )
        for code in ("EZ10", "EZ00", "EE10")
    ),
    *(Form(key, rf"(?P<cause>{sentence})") for key, sentence in CHECKS),
    Form("Error!", r"EZ9999: Internal error!", release=Text("newer than 9.1")),
    Form("invaild", r"Input (?:gamma|dy/x|rstd) shape invaild", release=Text("8.5 or 9.0")),
    Form(
        "(EZ00",
        r"\(EZ00\d\d\):.{0,200}\b(?:of|for) \S{0,100}(?:Norm|Loss|Tbc|Swi)",
        release=Text("9.1 or later"),
    ),
    Form(
        "(EZ00",
        r"\(EZ00\d\d\):.{0,200}\b(?:of|for) \S{0,100}RotaryPosition",
        release=Text("9.0 or later"),
    ),
    Form("/ascend-toolkit/", r"/ascend-toolkit/(?P<release>\d\.\d\.\w{1,8})/"),
)
"""Forms, the most reliable first."""

LETTER_CODE = re.compile(r"\b(?:(?:E[A-Z]|WE)\d{4}|E\d{5}|EZ\d{4})(?=\b|_)")
"""Code of a product block: ``EZ1001``, ``E40021``."""
TORCH_CODE = re.compile(r"\bERR(?P<family>\d\d)(?P<reason>\d{3})\b")
"""Code of torch_npu: ``ERR01002``; reasons from 100 on are calls of another layer that failed."""
CALL_FAILED = 100
"""First reason of `TORCH_CODE` that only passes on the failure of another layer."""
NOT_OPERATORS = re.compile(
    r"(?i)sync|copy|event|stream|alloc|empty|record|operator|innerrun|runop|process|query|device"
)
"""Functions of torch_npu that are not operators."""
PREFIX = re.compile(
    r"\s{0,200}(?:"
    r"\((?P<process>[A-Z]\w{2,40})(?: rank=(?P<process_rank>\d{1,9}))?"
    r" pid=(?P<pid>\d{1,20})(?:, ip=(?P<address>[\w.:]{1,60}))?[^)]{0,80}\)"
    r"|\[rank(?P<rank>\d{1,9})\]:"
    r"|(?:ERROR|WARNING|INFO|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d \[?[\w/.]{1,200}:\d{1,9}\]"
    r"|\[[EWI][^\]\n]{0,80}\.(?:ts|cpp|h):\d{1,9}\]"
    r"|[EWI]\d{4} [\d:.]{1,40} \d{1,20} \S{1,300}\]"
    r"|\[\d{1,9}/\d{1,9}\]"
    r"|\[\d{4}-\d\d-\d\d[ T][\d:.,]{1,40}\]"
    r"|E   (?=\S)|>(?= )"
    r")"
)
"""One prefix of a log line; a line can have several."""
SHORTENED_NAME = re.compile(r"(?P<op>[A-Z][A-Za-z0-9]{2,60})_(?:[0-9a-f]{1,64}\b|\.\.|high_|mix_)")
"""Name of a kernel without its whole hash."""
RANK = re.compile(
    r"\(PID:(?P<pid>\d{1,20}), Device:(?P<device>-?\d{1,9}), RankID:(?P<rank>-?\d{1,9})\)"
)
COLOUR = re.compile(r"(?:\x1b|\^\[)\[[\d;]{0,20}m|\^M|\r")

STATUSES: tuple[tuple[Status, str, str], ...] = (
    (Status.ACLNN_ERR_PARAM_NULLPTR, PARAMETER, "a required argument is null"),
    (Status.ACLNN_ERR_PARAM_INVALID, PARAMETER, "a dtype, shape, format or value is refused"),
    (Status.ACLNN_ERR_INNER_INFERSHAPE_ERROR, SHAPE, "no output shape could be inferred"),
    (Status.ACLNN_ERR_INNER_TILING_ERROR, TILING, "the planner of the kernel failed"),
    (Status.ACLNN_ERR_INNER_FIND_KERNEL_ERROR, SELECTION, "no kernel for this combination"),
    (Status.ACLNN_ERR_INNER_NULLPTR, INNER, "an inner step failed; its reason is in the block"),
)
"""Stage and meaning of return codes of aclnn."""
RUNTIME_ARGUMENT_CODES = ("EE1001", "EE1003", "EE1004", "EE1011", "EE1012", "EE1017", "EE1022")
"""Codes with which the runtime refuses an argument of the very call (``Invalid_Argument``)."""
MEMORY_ERRORS, LINK_ERRORS = ("507053", "507054", "507055"), ("507056", "507057")
CODES: tuple[tuple[str, str, str], ...] = (
    *(
        (str(int(status)), stage, Text("{status}: {meaning}", status=status.name, meaning=meaning))
        for status, stage, meaning in STATUSES
    ),
    ("361", LAUNCH, "ACLNN_ERR_RUNTIME_ERROR: a call of the runtime failed"),
    ("561107", PACKAGE, "the environment variable ASCEND_OPP_PATH is not set"),
    ("56110", INNER, "an inner step of aclnn failed"),
    ("56111", PACKAGE, "the description of the kernel package cannot be read"),
    ("561", INNER, "ACLNN_ERR_INNER: an inner step of aclnn failed"),
    ("500001", START, "the compiler of the product could not be set up"),
    ("500002", COMPILE, "the graph engine reports an error"),
    ("507001", DEVICE, "error of the task scheduler"),
    ("507002", LAUNCH, "the stream is full"),
    ("507010", DEVICE, "the heartbeat of the device was lost"),
    ("507011", DEVICE, "a model failed while it ran"),
    ("507012", DEVICE, "time-out of a report of the device"),
    ("507014", DEVICE, "time-out of an AI Core"),
    ("507015", DEVICE, "exception of an AI Core"),
    ("507016", DEVICE, "trap of an AI Core"),
    ("507017", DEVICE, "time-out of an AI CPU"),
    ("507018", DEVICE, "exception of an AI CPU"),
    ("507034", DEVICE, "time-out of a vector core"),
    ("507035", DEVICE, "exception of a vector core"),
    ("507036", DEVICE, "trap of a vector core"),
    ("507048", COLLECTIVE, "time-out of a task of mixed kernels or of a collective"),
    *((code, DEVICE, Text("error of the device's memory")) for code in MEMORY_ERRORS),
    *((code, COLLECTIVE, Text("error of a link or of a remote device")) for code in LINK_ERRORS),
    ("107", LAUNCH, "the runtime refuses a call: a parameter, or the state of a stream or context"),
    ("207", LAUNCH, "the runtime lacks a resource, such as memory of the device, or a feature"),
    ("507", DEVICE, "the runtime reports the failure of a task after its launch"),
    ("EZ1001", PARAMETER, "AclNN_Parameter_Error: a parameter is refused"),
    ("EZ9903", LAUNCH, "AclNN_Runtime_Error: a call of the runtime failed"),
    ("EZ9999", INNER, "AclNN_Inner_Error: an inner step failed"),
    ("EZ2001", DEVICE, "Execution_Error: a kernel failed while it ran"),
    ("EZ3", COMPILE, "Unsupported_Operator: no kernel for the operator"),
    ("EZ0501", COMPILE, "Unsupported_Operator: no kernel for the operator"),
    ("EZ00", PARAMETER, "structured check of an operator: a parameter is refused"),
    ("EZ10", PARAMETER, "nnopbase: environment, file or parameter is refused"),
    ("EI", COLLECTIVE, "collective communication (HCCL) reports an error"),
    ("EJ", COLLECTIVE, "collective communication (lower layer) reports an error"),
    *(
        (code, ARGUMENT, Text("Invalid_Argument: an argument of a call of the runtime is refused"))
        for code in RUNTIME_ARGUMENT_CODES
    ),
    ("EE", LAUNCH, "the runtime reports an error"),
    ("EL", LAUNCH, "the driver reports an error"),
    ("EH", INNER, "the acl interface reports an error"),
    ("0x", DEVICE, "the runtime's inner code of a failed task"),
    ("ERR02", COLLECTIVE, "torch_npu: collective communication"),
    ("ERR", BEFORE, "a check of torch_npu itself"),
    ("E", COMPILE, "compilation of a graph or of a kernel failed"),
)
"""Stage and meaning by the beginning of a code; the first that matches applies."""

ERROR_BITS = {
    4: "illegal instruction, or an unaligned address of the Unified Buffer",
    17: "conflict in L0C",
    23: "an MTE instruction read or wrote global memory out of range",
    33: "the write address of an MTE instruction is out of range",
    62: "the Unified Buffer address of a vector instruction is out of bounds",
}
"""Meaning of the frequent bits of a core's error code."""


MOST_CHARACTERS = 1 << 16
"""Most characters of a line that are read."""
MOST_FINDINGS = 512
"""Maximum number of distinct findings."""
MOST_PROCESSES = 256
"""Maximum number of processes that are distinguished."""
EXCEPTION = re.compile(r"\b[A-Z]\w{2,60}Error: ")
"""Beginning of the sentence of a Python exception."""
CHARACTER = re.compile(r"\\u((?!00[01]|d[89a-f])[0-9a-f]{4})")
"""A character as JSON escapes it; not a control character, nor half of a surrogate pair."""
PREFIXES = 8
"""Most prefixes of one line."""
_COMPILED = tuple((form, re.compile(form.pattern)) for form in FORMS)


class Finding(NamedTuple):
    """One value that a form found."""

    rank: int
    """Position of the form."""
    name: str
    """Kind of the value: a group of the form's pattern, or ``form``."""
    value: str
    process: str
    raised: bool = False
    """Whether the line states a Python exception."""
    begins: bool = False
    ends: bool = False
    """Whether the text begins or ends with the value, which may be a piece of a longer one then."""

    @property
    def form(self) -> Form:
        """The form that found it."""
        return FORMS[self.rank]


@dataclass
class Reading:
    """Findings of a text in the order in which they were read."""

    findings: dict[Finding, None] = field(default_factory=dict)
    codes: dict[str, None] = field(default_factory=dict)
    exceptions: dict[str, ExceptionLog] = field(default_factory=dict)
    ranks: dict[str, dict[str, Any]] = field(default_factory=dict)
    dropped: int = 0
    other_calls: tuple[str, ...] = ()
    """Calls of other processes, whose findings are left out."""

    def values(self, name: str) -> list[Finding]:
        """Return the findings of one name: of exceptions first, then by form and position."""
        return sorted(
            (finding for finding in self.findings if finding.name == name),
            key=lambda finding: (not finding.raised, finding.rank),
        )

    def _add(self, finding: Finding) -> None:
        if len(self.findings) < MOST_FINDINGS:
            self.findings.setdefault(finding)
        else:
            self.dropped += finding not in self.findings

    def _process(self, found: dict[str, str | None], process: str) -> str:
        """Return the name of the process that a line states; ``process`` when it states none.

        One process is one pid of one address, or a rank where no pid is stated.
        """
        rank = found.get("rank") or found.get("process_rank")
        pid, address = found.get("pid"), found.get("address")
        if found.get("process") is None and rank is None and pid is None:
            return process
        name = found.get("process") or (f"rank{rank}" if rank else "")
        if pid is None and rank is not None and found.get("process") is None:
            of_rank = (key for key, entry in self.ranks.items() if entry.get("rank") == rank)
            name = next(of_rank, name)
        key = " ".join(part for part in (name, pid, address) if part) if pid else name
        if key in self.ranks or len(self.ranks) < MOST_PROCESSES:
            entry = {"process": name or None, "pid": pid, "rank": rank}
            known = self.ranks.setdefault(key, {})
            for stated, value in entry.items():
                if value is not None:
                    known.setdefault(stated, value)
        return key

    def read(self, line: str, process: str, *, first: bool = False, last: bool = False) -> str:
        """Read one line without line break; return the process it belongs to.

        ``first`` and ``last``: whether the text begins or ends with it.
        """
        line, process = self._peeled(line, process)
        if head := HEAD.search(line):
            key = head["pid"]
            if key in self.exceptions or len(self.exceptions) < MOST_PROCESSES:
                self.exceptions.setdefault(key, ExceptionLog()).read(line, head["module"])
        else:
            self.exceptions.setdefault("", ExceptionLog()).read(line, "")
        raised = "Error: " in line and EXCEPTION.search(line) is not None
        for position, (form, pattern) in enumerate(_COMPILED):
            if form.key in line:
                for found in pattern.finditer(line):
                    self._add(Finding(position, "form", "", process))
                    for name, value in found.groupdict().items():
                        if value is not None:
                            begin, end = found.span(name)
                            cut = (first and begin == 0, last and end == len(line))
                            self._add(Finding(position, name, value.strip(), process, raised, *cut))
        if "E" in line:
            self._codes(line, process)
        return process

    def _peeled(self, line: str, process: str) -> tuple[str, str]:
        start = 0
        stated: dict[str, str | None] = {}
        for _ in range(PREFIXES):
            found = PREFIX.match(line, start)
            if found is None:
                break
            start = found.end()
            stated |= {name: value for name, value in found.groupdict().items() if value}
        process = self._process(stated, process)
        if found := RANK.search(line, start):
            known = self.ranks.items()
            name = next((key for key, entry in known if entry.get("pid") == found["pid"]), "")
            if not name and "pid" not in self.ranks.get(process, {"pid": ""}):
                name = process  # [rank0]: states no pid
                self.ranks[name]["pid"] = found["pid"]
            if not name:
                name = self._process({"pid": found["pid"], "rank": None}, process)
            entry = self.ranks.get(name, {})
            entry["device"] = found["device"]
            if int(found["rank"]) >= 0:
                entry["rank"] = found["rank"]
        return line[start:], process

    def _codes(self, line: str, process: str) -> None:
        of_torch = TORCH_CODE.finditer(line) if "ERR" in line else ()
        for found in chain(LETTER_CODE.finditer(line), of_torch):
            if len(self.codes) < MOST_FINDINGS:
                self.codes.setdefault(found[0])


def is_own_code(code: str) -> bool:
    """Return whether a code of torch_npu states a failure, and not that of another layer."""
    found = TORCH_CODE.fullmatch(code)
    return found is None or int(found["reason"]) < CALL_FAILED


def read_lines(lines: Iterable[str]) -> Reading:
    """Return the findings of a text, given as lines."""
    reading, process, first = Reading(), "", True
    parts = (part for line in lines for part in _unescaped(line))
    for part, following in pairwise(chain(parts, (None,))):
        assert part is not None
        process = reading.read(part, process, first=first, last=following is None)
        first = False
    return reading


def lines_of_file(path: Path) -> Iterator[str]:
    """Yield the lines of a text file; raises UsageError when it cannot be read."""
    with open_plain("file", path, TEXT_HINT) as file:
        yield from decoded(file)


def decoded(file: IO[bytes]) -> Iterator[str]:
    """Yield the lines of an open file in UTF-8, or in UTF-16 with its byte order mark; close it.

    Bytes that are no text are replaced. A carriage return ends a line too: progress bars write it.
    """
    buffered = BufferedReader(cast("Any", file))  # peeks at a pipe as well
    is_wide = buffered.peek(2)[:2] in (BOM_UTF16_LE, BOM_UTF16_BE)
    with TextIOWrapper(buffered, "utf-16" if is_wide else "utf-8-sig", "replace") as text:
        yield from _lines_of(text)


def lines_of_text(text: str) -> Iterator[str]:
    """Yield the lines of a text."""
    return _lines_of(StringIO(text.removeprefix("\ufeff"), newline=None))


def _lines_of(text: TextIO) -> Iterator[str]:
    """Yield the lines, of a longer one the first ``MOST_CHARACTERS`` characters."""
    while line := text.readline(MOST_CHARACTERS):
        yield line
        while len(line) == MOST_CHARACTERS and not line.endswith("\n"):
            line = text.readline(MOST_CHARACTERS)


def _unescaped(line: str) -> Iterator[str]:
    """Yield the lines within a line: those of an exception in JSON or repr, without colours."""
    line = line[:MOST_CHARACTERS]
    if "\x1b" in line or "^[" in line or "^M" in line or "\r" in line:
        line = COLOUR.sub("", line)
    if "\\u" in line:
        line = CHARACTER.sub(lambda found: chr(int(found[1], 16)), line)
    if "\\n" in line:
        yield from line.replace("\\t", " ").replace('\\"', '"').split("\\n")
    else:
        yield line.rstrip("\n")
