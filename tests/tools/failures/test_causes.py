"""Causes: the sentence of a text, in whatever form it stands, and what follows from its values."""

import pytest

from npu_sim import diagnose
from tests.cli.runner import npu_sim

TIME = "2026-03-04-10:11:12.100.200"


def lines_of(text):
    """The lines of an answer by label; those of equal labels one below the other."""
    lines: dict[str, str] = {}
    for label, line in diagnose(text).lines:
        lines[label] = f"{lines[label]}\n{line}" if label in lines else str(line)
    return lines


INNER = "RuntimeError: call {call} failed, error code is 561002\nEZ9999: Inner Error!\n{block}"
PLACE = "[FUNC:Check][FILE:{file}.cpp][LINE:21]"
OPLOG = "[ERROR] OP(29,w):{time} [x.cc:10][{module}][Infer][33] {said}"


@pytest.mark.parametrize(
    ("head", "prefix"),
    [
        (f"EZ9999: [PID: 9] {TIME} ", "op[RmsNormGrad], "),
        (f"EZ9999[PID: 9] {TIME} (EZ9999):  ", "op[RmsNormGrad_12], "),
        (f"EZ9999: {TIME}  ", "op[RmsNormGrad], "),
        ("        ", "op[RmsNormGrad], "),
        (f"E89999: [PID: 9] {TIME} ", "op[RmsNormGrad], "),
        (f"EZ9999: {TIME}  ", ""),
    ],
)
@pytest.mark.parametrize("said", ["Shape of rstd is wrong.", "dim [3] of rstd is above [2]."])
def test_the_cause_is_the_sentence_without_the_name_of_the_operator(head, prefix, said):
    block = head + prefix + said + PLACE.format(file="rms_norm_grad_tiling")
    text = INNER.format(call="aclnnRmsNormGrad", block=block)
    assert lines_of(text)["cause"] == said
    assert diagnose(text).operator == "rms_norm_grad"


def test_a_sentence_of_our_planner_behind_a_name_has_its_meaning():
    said = "op[RotaryPositionEmbeddingGrad], B * N should smaller than 1000."
    block = f"EZ9999[PID: 9] {TIME} (EZ9999):  {said}"
    text = block + PLACE.format(file="rope_interleaved_grad_tiling")
    found = lines_of(INNER.format(call="aclnnRotaryPositionEmbeddingGrad", block=text))
    assert found["cause"].startswith("B * N should smaller than 1000")
    assert "B*N is 1000 or more" in found["meaning"]


def test_the_first_sentence_of_a_call_in_plog_is_the_cause():
    first = 'OpName:[Tile] "[5, 2] can not be tiled to [6, 2]"'
    second = "errno[561000] OpName:[aclnnRepeat_52] infer shape fail, [7]"
    lines = (
        OPLOG.format(time=TIME, module=name, said=said)
        for name, said in (("OP_PROTO", first), ("NNOP", second))
    )
    text = "\n".join(lines)
    assert lines_of(text)["cause"] == "[5, 2] can not be tiled to [6, 2]"
    assert diagnose(text).operator == "aclnnRepeat"


@pytest.mark.parametrize(
    ("file", "said", "operator", "stage", "argument"),
    [
        (
            "rms_norm_tiling.cpp",
            "OpName:[RmsNorm] \"Input gamma's dim num should not greater than input x's.\"",
            "rms_norm",
            "tiling",
            "gamma",
        ),
        (
            "cross_entropy_loss_grad_infershape.cpp",
            'OpName:[CrossEntropyLossGrad_4] "logProb dim must be 2."',
            "cross_entropy_loss_grad",
            "shape",
            "log_prob",
        ),
    ],
)
def test_a_line_of_plog_names_operator_and_stage_without_a_number(
    file, said, operator, stage, argument
):
    log = f"[ERROR] OP(7,w):{TIME} [{file}:33][OP][Check][7] {said}\n"
    found = diagnose(log)
    assert (found.operator, found.blamed, found.stage) == (operator, True, stage)
    assert found.argument == argument


CHECK = (
    "call {call} failed, error code is {number}\n"
    "[PID: 9] {time} AclNN_Parameter_Error(EZ1001): {said}\n"
)


def parameter_check(said, call="aclnnRmsNorm", number="161002"):
    return CHECK.format(call=call, number=number, time=TIME, said=said)


@pytest.mark.parametrize("number", ["161002", "561003"])
def test_the_lists_of_a_dtype_check_are_read(number):
    listed = "{0}(DT_{1}, ND) gamma(DT_{1}, ND) yOut(DT_{1}, ND) rstdOut(DT_FLOAT, ND)"
    said = (
        "Io input dtype or format is not supported, get io input info is "
        + listed.format("x", "BFLOAT16")
        + " but supported list is:\n"
        + "\n".join(listed.format("x", dtype) for dtype in ("FLOAT16", "FLOAT"))
    )
    text = parameter_check(said, number=number)
    found = lines_of(text)
    assert found["cause"] == "Io input dtype or format is not supported"
    assert found["values"].split("\n") == [
        "the call has x bfloat16, gamma bfloat16, yOut bfloat16, rstdOut float32",
        "the SoC takes x float16, gamma float16, yOut float16, rstdOut float32",
        "the SoC takes x float32, gamma float32, yOut float32, rstdOut float32",
    ]
    assert found["products"] == "dtypes are refused on atlas_inference"
    assert found["operator"] == "rms_norm failed"


@pytest.mark.parametrize(
    ("call", "said", "values"),
    [
        (
            "aclnnApplyAdamWV2",
            "Expected tensor for m to have same size as tensor for var, but [8] does not equal "
            "[8,2].",
            "m has size [8], var has size [8,2]: they must be equal",
        ),
        (
            "aclnnEmbeddingDenseBackward",
            "Tensor grad not implemented for DT_DOUBLE, should be in dtype support list "
            "[DT_FLOAT,DT_BFLOAT16].",
            "grad is float64; allowed are float32, bfloat16",
        ),
        (
            "aclnnTopk",
            "Tensor self not implemented for DT_COMPLEX32, should be in dtype support list "
            "[DT_INT8,].",
            "self is DT_COMPLEX32; allowed are int8",
        ),
        (
            "aclnnAdd",
            "Expected both tensors to have same dtype, but found a DT_FLOAT and b DT_INT8.",
            "a is float32, b is int8: they must be equal",
        ),
        (
            "aclnnAdd",
            "The size of tensor self [4,5] must match the size of tensor other [4,6].",
            "self has size [4,5], other has size [4,6]: they must be equal",
        ),
        (
            "aclnnAdd",
            "7 and 9 cannot broadcast.",
            "the sizes 7 and 9 cannot be broadcast to one another",
        ),
        (
            "aclnnMul",
            "[7,1] and [9] can not broadcast.",
            "the sizes [7,1] and [9] cannot be broadcast to one another",
        ),
        (
            "aclnnTopk",
            "Expected 2 dimension input, but got self with sizes [3, 4, 5].",
            "self has size [3, 4, 5]",
        ),
        (
            "aclnnRmsNorm",
            "Get regInfo failed, The binary_info_config.json of socVersion [ascend910] does not "
            "support opType [RmsNorm].",
            "the SoC ascend910 has no operator RmsNorm",
        ),
    ],
)
def test_the_values_of_a_parameter_check_are_said(call, said, values):
    found = diagnose(parameter_check(said, call))
    assert found.cause == said
    assert dict(found.lines)["values"] == values
    assert dict(diagnose(f"RuntimeError: {said}").lines)["values"] == values


QUEUED = (
    "RuntimeError: The Inner error is reported as above. The process exits for this inner error, "
    "and the current working operator name is aclnnSwiGlu.\n"
)


@pytest.mark.parametrize(
    ("said", "values"),
    [
        (
            "Invalid_Argument(EE1003): KernelLaunch failed because value 70001 for parameter "
            "blockDim is invalid. Expected value: less than or equal to 65535.",
            "blockDim is 70001; expected is less than or equal to 65535",
        ),
        (
            "Invalid_Argument(EE1001): The argument is invalid.Reason: Set device failed, invalid "
            "device, set device=8, valid device range is [0, 8)",
            "device 8 does not exist; valid are [0, 8)",
        ),
        (
            "Invalid_Argument(EE1017): rtStreamCreate failed because value -1 for parameter "
            "priority is invalid. Expected value: [0, 7].",
            "priority is -1; expected is [0, 7]",
        ),
    ],
)
def test_an_argument_that_the_runtime_refuses_is_not_of_an_earlier_task(said, values):
    for before in ("", QUEUED, "call aclnnSwiGlu failed, error code is 361001\n"):
        text = f"{before}[PID: 31] {TIME} {said}"
        found = diagnose(text)
        assert found.stage == "argument"
        assert found.cause == said.split("): ")[1]
        assert dict(found.lines)["values"] == values
        assert "an earlier" not in found.answer
        assert not found.blamed


DEVICE_REPORT = (
    "An error occurs on the device(chipId:0, dieId:0), the serial number is 3, the error is aivec "
    "error, core id is 7, error code = {code}, dump info: pc start: 0x12."
)
EXTENDED = "The extend info: errcode:({code}, 0, 0) errorStr: an address is wrong. subErrType:4."


@pytest.mark.parametrize("code", ["0", "0x4000000000000000"])
@pytest.mark.parametrize(
    ("head", "between", "stated"),
    [
        ("", "\n", None),
        (f"EZ9999[PID: 25] {TIME} (EZ9999):  ", "\n", "EZ9999"),
        (f"[PID: 25] {TIME} Execution_Error(EZ2001): ", "\n", "EZ2001"),
        (f"[ERROR] RUNTIME(25,python):{TIME} [core_proc.cc:12]40 PrintCoreInfo:", " ", None),
    ],
)
def test_the_device_report_of_newer_runtimes_is_read(head, between, stated, code):
    text = head + DEVICE_REPORT.format(code=code) + between + EXTENDED.format(code=code)
    found = diagnose(text)
    assert (found.code, found.stage) == (stated, "device")
    lines = lines_of(text)["device"].split("\n")
    assert lines[:2] == [
        f"exception of aivec error on core 7, error code {code}",
        "an address is wrong",
    ]
    assert [line.split(":")[0] for line in lines[2:]] == (["bit 62"] if code != "0" else [])


@pytest.mark.parametrize(
    ("text", "operator"),
    [
        ("aclnnRmsNormGradGetWorkspaceSize failed. ERROR: 161002", "rms_norm_grad"),
        ("aclnnSwiGluGrad: GetWorkspaceSize failed: 161002", "swi_glu_grad"),
        ("aclnnTopkGetWorkspaceSize failed. ERROR: 161002", "aclnnTopk"),
        (
            "call aclnnRotaryPositionEmbeddingV2 failed, error code is 161002",
            "rotary_position_embedding",
        ),
        (
            "OpName:[aclnnRepeat_52_TileAiCore] launch failed for Tile, errno:561103.\n"
            "call aclnnRepeat failed, error code is 561103",
            "aclnnRepeat",
        ),
        (
            "errno[561000] OpName:[aclnnRmsNorm_3] failed\n"
            "aclnnRmsNormGetWorkspaceSize failed. ERROR: 561000",
            "rms_norm",
        ),
    ],
)
def test_first_phases_instances_and_versions_are_the_operator(text, operator):
    assert diagnose(text).operator == operator
    assert "also named" not in lines_of(text)


ASSERTION = (
    "[ASSERT] [CANN_VERSION : 8.3.RC1][TimeStamp : 0] {file}.h:13: Assertion `(v < n)' "
    "Index {index} out of range[0 40)!\n"
)


@pytest.mark.parametrize(
    ("file", "kernel", "operator"),
    [
        ("/x/gather_v3/gather_v3_base", "gather_v3", None),
        ("scatter_add", "scatter_add", None),
        ("/y/embedding_dense_grad_v2", "embedding_dense_grad_v2", "embedding_dense_backward"),
    ],
)
@pytest.mark.parametrize(
    ("index", "means"),
    [
        (40, "index 40 equals the length of the table: valid are 0 <= index < 40"),
        (41, "index 41 is outside of the table: valid are 0 <= index < 40"),
        (-1, "index -1 is outside of the table: valid are 0 <= index < 40"),
    ],
)
def test_the_assertion_of_a_kernel_is_the_cause(file, kernel, operator, index, means):
    report = (
        f"EZ9999: [PID: 4] {TIME} The error from device(chipId:1, dieId:0), serial number is 3, "
        "there is an aivec error exception, core id is 4, error code = 0, dump info: pc start: 0x1."
    )
    found = diagnose(ASSERTION.format(file=file, index=index) + report)
    assert (found.kernel, found.operator, found.stage) == (kernel, operator, "device")
    assert found.cause == f"Index {index} out of range[0 40)"
    assert dict(found.lines)["values"] == means


WORKER = "(WorkerDict pid={pid}, ip={ip}) "


@pytest.mark.parametrize(
    ("lines", "processes"),
    [
        ([WORKER.format(pid=20, ip="10.0.0.9") + "[rank50]: "] * 2, 1),
        ([WORKER.format(pid=20, ip="10.0.0.9") + "[rank50]: ", "[rank50]: "], 1),
        (
            [
                WORKER.format(pid=20, ip="10.0.0.9") + "[rank50]: ",
                WORKER.format(pid=20, ip="10.0.0.9"),
                WORKER.format(pid=21, ip="10.0.0.9") + "[rank51]: ",
                WORKER.format(pid=21, ip="10.0.0.9"),
            ],
            2,
        ),
        ([WORKER.format(pid=20, ip="10.0.0.9"), WORKER.format(pid=20, ip="10.0.0.8")], 2),
        (["[rank0]: ", "[rank1]: ", "[rank0]: "], 2),
    ],
)
def test_one_process_is_one_pid_of_one_address(lines, processes):
    found = diagnose("\n".join(f"{prefix}EZ9999: Inner Error!" for prefix in lines))
    assert len(found.ranks) == processes


SIZES = (
    "Expected tensor for m to have same size as tensor for var, but [1024] does not equal [1024,2]."
)
HASH = "a" * 32
RAS = "Fault RAS occurs in the system: [event_id:0x80e01801] a memory of the device has an error"


@pytest.mark.parametrize(
    "text", [RAS, f"call aclnnRmsNorm failed, error code is 507053\n{RAS}", f"E19999: {RAS}"]
)
def test_a_fault_of_the_hardware_blames_no_operator(text):
    found = diagnose(text)
    assert found.stage == "hardware"
    assert found.cause == RAS
    assert not found.blamed
    assert dict(found.lines)["operator"] == "no operator is the cause: the hardware reports a fault"


@pytest.mark.parametrize("code", ["507056", "507057"])
def test_an_error_of_a_link_is_no_failed_kernel(code):
    found = diagnose(f"call aclnnRmsNorm failed, error code is {code}")
    assert found.stage == "collective"
    assert not found.blamed
    assert "every other rank" in dict(found.lines)["next"]


@pytest.mark.parametrize(
    ("code", "sentence", "argument", "values"),
    [
        (
            "EZ0008",
            "Parameter [gamma] of [RmsNorm] has incorrect shape [512]. It should be [1024].",
            "gamma",
            "gamma: shape [512]; it should be [1024]",
        ),
        (
            "EZ0001",
            "OP[RmsNorm] 1th input has incorrect shape[: [[512]]], it should be[: [[1024]]].",
            None,
            "1th input has shape [512]; it should be [1024]",
        ),
        (
            "EZ0010",
            "Parameters gamma and x of RmsNorm have incorrect shapes [512] and [4, 1024]. Reason: "
            "gamma must be the last axes of x.",
            "gamma",
            "gamma and x: shape [512] and [4, 1024]; gamma must be the last axes of x",
        ),
        (
            "EZ0020",
            "Parameter x of Other has incorrect dtype DT_INT8. It should be DT_FLOAT.",
            "x",
            "x: dtype int8; it should be float32",
        ),
        (
            "EZ0002",
            "Attribute dim of SwiGlu has incorrect value 7. It should be in [-3, 2].",
            "dim",
            "dim: value 7; it should be in [-3, 2]",
        ),
        (
            "EZ0002",
            "OP[SwiGlu] attr[: dim], has incorrect value[: 7], it should be[: -1].",
            "dim",
            "dim has value 7; it should be -1",
        ),
        (
            "EZ0007",
            "OP[RmsNorm] gamma has incorrect dtype[: DT_INT8], it should be DT_FLOAT, DT_FLOAT16.",
            "gamma",
            "gamma has dtype int8; it should be float32, float16",
        ),
        (
            "EZ0001",
            "OP[Other] 1th input has incorrect shape[: [2]], it should be[: [3]].",
            None,
            "1th input has shape [2]; it should be [3]",
        ),
    ],
)
def test_structured_checks_of_newer_releases_are_read_by_their_parts(
    code, sentence, argument, values
):
    found = diagnose(f"[PID: 7] {TIME} Title({code}): {sentence}")
    assert found.cause == sentence
    assert found.argument == argument
    assert dict(found.lines)["values"] == values


@pytest.mark.parametrize("text", ["my loss is nan", "import torch\nx = torch.ones(3)\n", "", "?"])
def test_a_text_of_which_nothing_is_known_is_answered_so(text, capsys, monkeypatch, tmp_path):
    found = diagnose(text)
    assert [label for label, _ in found.lines] == ["text", "next"]
    assert "nothing in it is known" in found.answer
    assert not found.known
    file = tmp_path / "text.txt"
    file.write_text(text, encoding="utf-8")
    assert npu_sim(capsys, monkeypatch, "diagnose", file).code == 64


@pytest.mark.parametrize(
    ("text", "step"),
    [
        (parameter_check("Expected a proper Tensor but got null for argument x."), "--call"),
        ("call aclnnRmsNorm failed, error code is 561002", "--call"),
        ("call aclnnRmsNorm failed, error code is 561003", "another product"),
        ("call aclnnRmsNorm failed, error code is 561107", "ASCEND_OPP_PATH"),
        (QUEUED, "ASCEND_LAUNCH_BLOCKING=1"),
        ("call aclnnRmsNorm failed, error code is 361001", "ASCEND_LAUNCH_BLOCKING=1"),
        ("EI0006: a rank is missing", "every other rank"),
        (f"EE1003: {TIME} value 1 for parameter a is invalid", "the argument"),
        (
            "call aclnnMatmul failed, error code is 161002\n" + parameter_check(SIZES),
            "the argument",
        ),
        ("call aclnnMatmul failed, error code is 561002", "the block below the code"),
        ("call aclnnRmsNorm failed, error code is 561103", "the block below the code"),
        ("call aclnnRmsNorm failed, error code is 561001", "--call"),
        ("ACL stream synchronize failed, error code:507015", "the plog of that process"),
        (f"fault kernel_name=RmsNorm_{HASH}_1", "with --call its plan is compared"),
        (f"fault kernel_name=GatherV3_{HASH}_1", "values of indices of GatherV3"),
        ("[rank0]: RuntimeError: NPU out of memory. Tried to allocate 2.00 GiB", "smaller tensors"),
        (RAS, "npu-smi info -t health"),
        ("RuntimeError: ERR01002 OPS invalid type", "check of torch_npu"),
        ("E40021: Failed to compile Op [Add_1]", "the first error of the compiler"),
        ("error code is 500001", "set_env.sh"),
    ],
)
def test_an_answer_says_what_to_do_next(text, step):
    found = diagnose(text)
    assert found.known
    assert step in dict(found.lines)["next"]


BELOW_A_FRAME = (
    "call {call} failed, error code is 561002\n"
    "[PID: 9] {time} {title}({code}): {said}\n"
    "TraceBack (most recent call last):\n"
    "      Tiling failed[FUNC:Tiling4X][FILE:{file}_tiling.cpp][LINE:333]\n"
)


@pytest.mark.parametrize(
    ("code", "said", "values", "argument", "release"),
    [
        (
            "EZ0008",
            "Parameter gamma of RmsNorm has incorrect shape [4096]. It should be [8192].",
            "gamma: shape [4096]; it should be [8192]",
            "gamma (scale of every column, (columns ...)): documented shape (col+)",
            "such a message is of release 9.1 or later",
        ),
        (
            "EZ0010",
            "Parameters gamma and x of RmsNorm have incorrect shapes [4096] and [64, 8192]. "
            "Reason: gamma has the last axes of x.",
            "gamma and x: shape [4096] and [64, 8192]; gamma has the last axes of x",
            "gamma (scale of every column, (columns ...)): documented shape (col+)",
            "such a message is of release 9.1 or later",
        ),
        (
            "EZ0019",
            "Parameter [x] of [RmsNorm] has incorrect dtype [DT_INT32]. It should be "
            "[DT_FLOAT, DT_BF16].",
            "x: dtype int32; it should be float32, bfloat16",
            "x (input, (rows ..., columns ...)): documented dtypes float32, float16, bfloat16",
            "such a message is of release 9.1 or later",
        ),
        (
            "EZ0011",
            "Parameter x of RotaryPositionEmbedding has incorrect shape dim 5D. It should be 4D.",
            "x: shape dim 5D; it should be 4D",
            None,
            "such a message is of release 9.0 or later",
        ),
        (
            "EZ0002",
            "OP[RmsNorm] attr[: epsilon], has incorrect value[: -1], it should be[: positive].",
            "epsilon has value -1; it should be positive",
            "epsilon",
            None,
        ),
        (
            "EZ0001",
            "OP[RmsNorm] 1th input has incorrect shape[: 4096], it should be[: 8192].",
            "1th input has shape 4096; it should be 8192",
            None,
            None,
        ),
        (
            "EZ0007",
            "OP[RmsNorm] gamma has incorrect dtype[: DT_INT8], it should be DT_FLOAT.",
            "gamma has dtype int8; it should be float32",
            "gamma (scale of every column, (columns ...)): documented dtypes float32, float16, "
            "bfloat16",
            None,
        ),
    ],
)
def test_a_structured_message_is_the_cause_of_the_frames_below_it(
    code, said, values, argument, release
):
    rotates = "Rotary" in said
    found = lines_of(
        BELOW_A_FRAME.format(
            call="aclnnRotaryPositionEmbedding" if rotates else "aclnnRmsNorm",
            time=TIME,
            title="Invalid_Argument",
            code=code,
            said=said,
            file="rotary_position_embedding" if rotates else "rms_norm",
        )
    )
    assert (found["cause"], found["values"]) == (said, values)
    assert argument is None or found["argument"] == argument
    assert found.get("release") == release


def test_a_structured_message_of_the_first_phase_names_its_operator():
    said = (
        "Parameter weight of aclnnConvTbcBackwardGetWorkspaceSize has incorrect shape [3, 64]. "
        "Reason: it needs 3 axes."
    )
    found = diagnose(f"[PID: 9] {TIME} Invalid_Argument(EZ0009): {said}\n")
    assert (found.operator, found.cause) == ("conv_tbc_backward", said)
    assert dict(found.lines)["values"] == "weight: shape [3, 64]; it needs 3 axes"
