"""ApplyAdamWV2: one step of AdamW on a parameter and its state, in place.

Source: product document aclnnApplyAdamWV2; specification page ``apply_adam_w_v2``.
"""

from npu_sim.framework.vocabulary import (
    ASCEND_950,
    FLOAT_DTYPES,
    INVALID,
    NULL_POINTER,
    TILING_FAILURE,
    AclnnError,
    Argument,
    Attribute,
    Derived,
    Evidence,
    Inspection,
    Number,
    Operator,
    Output,
    Switch,
    Tensor,
    Text,
    Word,
    checks,
    shape_text,
    system_workspace,
)
from npu_sim.tiling import apply_adam_w_v2 as tiler


def check_dtypes(call: Inspection) -> None:
    """Check each dtype alone (page, "Contract" 2): no combination of them is refused."""
    checks.Dtypes("var m v max_grad_norm grad", FLOAT_DTYPES)(call)
    checks.Dtypes("step", tuple(tiler.STEP_CODES))(call)


def check_rank(call: Inspection) -> None:
    """Check the rank that the document allows; the product checks none (page, "Contract" 4)."""
    spec = call.specs["var"]
    if (
        call.limits == "documented"
        and call.rules.documents_rank
        and not (1 <= spec.rank <= checks.MAX_RANK)
    ):
        raise AclnnError(
            INVALID,
            "var",
            "var {spec} has rank {rank}",
            "rank 1 to {most}, a documented limit: {hardware} allows more",
            spec=spec,
            rank=spec.rank,
            most=checks.MAX_RANK,
            hardware=Argument("limits", "hardware"),
        )


def check_step_shape(call: Inspection) -> None:
    """Refuse a step that is not (1,) where the planner does (page, "Releases")."""
    shape = call.specs["step"].shape
    if call.operator.family != ASCEND_950 and not (
        call.rules.takes_any_step_shape or shape == (1,)
    ):
        raise AclnnError(
            TILING_FAILURE,
            "step",
            "step has shape {shape}, which the planner of release {release} refuses "
            "(step_shape_refused); the first stage reports success, and the second stage fails",
            "step of shape 1",
            shape=shape_text(shape),
            release=call.profile.release,
        )


def updated(name: str, dtype: str, document: str, help_text: str) -> Output:
    """Return a tensor of the state after the step; in the document it is the input."""
    return Output(
        f"{name}_out",
        "elements*",
        help_text,
        dtype,
        document=document,
        parts="element",
        given_with=name if name == "max_grad_norm" else "",
        in_place=name,
    )


OPERATOR = Operator(
    name="apply_adam_w_v2",
    title="ApplyAdamWV2",
    summary="Compute one step of AdamW on a parameter as the product does.",
    arguments=(
        Tensor("var", "elements*", "the parameter, of any shape", "dtype", document="varRef"),
        Tensor("m", "elements*", "first moment, like var", "m_dtype", document="mRef", like="var"),
        Tensor("v", "elements*", "second moment, like var", "v_dtype", document="vRef", like="var"),
        Tensor("grad", "elements*", "gradient, like var", "grad_dtype", like="var"),
        Tensor(
            "step",
            "steps*",
            "number of updates before this one, one element",
            "step_dtype",
            like="float32",
        ),
        Tensor(
            "max_grad_norm",
            "elements*",
            "largest second moment so far, like var; for amsgrad",
            "norm_dtype",
            document="maxGradNormOptionalRef",
            optional=True,
        ),
        Attribute("lr", float, "learning rate", 1e-3),
        Attribute("beta1", float, "decay of the first moment", 0.9),
        Attribute("beta2", float, "decay of the second moment", 0.999),
        Attribute("weight_decay", float, "decay of var, in units of lr", 0.01),
        Attribute("eps", float, "what is added to the root of the second moment", 1e-8),
        Attribute("amsgrad", bool, "divide by the root of the largest second moment so far", False),
        Attribute("maximize", bool, "maximize: the gradient is negated", False),
        updated("var", "dtype", "varRef", "var after the step"),
        updated("m", "m_dtype", "mRef", "m after the step"),
        updated("v", "v_dtype", "vRef", "v after the step"),
        updated(
            "max_grad_norm",
            "norm_dtype",
            "maxGradNormOptionalRef",
            "max_grad_norm after the step; None where it is not given",
        ),
    ),
    axes=(
        Word("dtype", "dtype of var", FLOAT_DTYPES, "float32"),
        Word("m_dtype", "dtype of m", FLOAT_DTYPES, "float32"),
        Word("v_dtype", "dtype of v", FLOAT_DTYPES, "float32"),
        Word("grad_dtype", "dtype of grad", FLOAT_DTYPES, "float32"),
        Word("norm_dtype", "dtype of max_grad_norm", FLOAT_DTYPES, "float32"),
        Word("step_dtype", "dtype of step", tuple(tiler.STEP_CODES), "float32"),
        Switch("with_norm", "whether max_grad_norm is given", tensor="max_grad_norm"),
        Switch("amsgrad", "amsgrad"),
        Switch("maximize", "maximize"),
        Number("elements", "elements of var", 4194304, unit="element", aliases=("n",)),
    ),
    derived=(Derived("steps", "1"),),
    checks=(
        checks.Given(),
        checks.Attributes("lr beta1 beta2 weight_decay eps amsgrad maximize"),
        checks.Holds(
            "amsgrad <= with_norm",
            "max_grad_norm",
            lambda _: (
                Text("amsgrad needs max_grad_norm"),
                Text("give max_grad_norm, or amsgrad = False"),
            ),
            NULL_POINTER,
        ),
        checks.Supported(),
        check_dtypes,
        checks.Shapes("var m v max_grad_norm grad step", INVALID),
        check_rank,
        checks.Shapes("var_out m_out v_out max_grad_norm_out", INVALID),
        checks.NothingToDo("elements == 0"),
        check_step_shape,
    ),
    tiling=tiler.Tiling,
    tile=tiler.tile,
    assumed=(system_workspace("apply_adam_w_v2, Tiling"),),
    evidence=Evidence.EXACT,
    families=(ASCEND_950,),
    c_order=(
        "var",
        "m",
        "v",
        "max_grad_norm",
        "grad",
        "step",
        "lr",
        "beta1",
        "beta2",
        "weight_decay",
        "eps",
        "amsgrad",
        "maximize",
    ),
    package=__package__,
)
