"""Names of the operators; :mod:`npu_sim.operators.loading` loads their declarations.

Operators come from three places: this package (:data:`OPERATORS`), installed packages that offer
some under the entry point group :data:`ENTRY_POINTS`, and :func:`npu_sim.register`.
"""

from functools import cache
from typing import Any, NamedTuple

from npu_sim.status import UsageError, plain_name, shown, tip

ENTRY_POINTS = "npu_sim.operators"
"""Entry point group of other packages: ``name = "package.module:OPERATOR"``."""


class Family(NamedTuple):
    """A family of products whose operators have planners and kernels of their own.

    ``name`` is that of its module in the package of an operator, and of its folder in ``tiling``
    and ``kernels``; ``architecture`` the number of its SoCs (``npu_arch`` of a product).
    """

    name: str
    architecture: int


ASCEND_950 = "ascend_950"
FAMILIES: tuple[Family, ...] = (Family(ASCEND_950, 3510),)


def family_of(architecture: int) -> str:
    """Return the family of an architecture; empty for those with common planners and kernels."""
    return next((family.name for family in FAMILIES if family.architecture == architecture), "")


class Refusal(NamedTuple):
    """What a sentence of the product's planner means."""

    key: str
    """Text that every line with the sentence contains."""
    meaning: str
    """The conditions of the refusal, and what runs instead."""
    pattern: str = ""
    """Regular expression of the sentence, with bounded repetitions and without groups, where the
    key is not all of it."""


class OperatorEntry(NamedTuple):
    """Names of one operator."""

    name: str
    """Name here: of its modules and of the Python function."""
    title: str
    """Name in the product documents, without the ``aclnn`` prefix."""
    kernels: tuple[str, ...] = ()
    """Vendor kernels whose raw planners :func:`npu_sim.tiling.plan_kernel` reproduces."""
    limits: tuple[str, ...] = ()
    """Limits that a profile may state for it under ``documented_limits``."""
    home: str = ""
    """``module:attribute`` of the declaration in another package that offers it; else empty."""
    kernels_of_families: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Families of products with planners of their own, and their vendor kernels as in
    ``kernels``."""
    also: tuple[str, ...] = ()
    """Functions of PyTorch and torch_npu that run it, apart from that of its own name."""
    planner_files: tuple[str, ...] = ()
    """Files of the vendor's planners that are not named after the operator, as error texts name
    them, without ``_tiling.cpp``."""
    refusals: tuple[Refusal, ...] = ()
    """Sentences of the vendor's planners that need an explanation."""

    def kernels_on(self, family: str) -> tuple[str, ...]:
        """Return the vendor kernels with a planner on a family; none where there is no planner."""
        return dict(self.kernels_of_families).get(family, ()) if family else self.kernels

    @property
    def all_kernels(self) -> tuple[str, ...]:
        """All vendor kernels with a planner."""
        return (*self.kernels, *(name for _, names in self.kernels_of_families for name in names))


OPERATORS: tuple[OperatorEntry, ...] = (
    OperatorEntry(
        "embedding_dense_backward",
        "EmbeddingDenseBackward",
        ("embedding_dense_grad_v2",),
        ("scale_bound_bytes",),
        kernels_of_families=((ASCEND_950, ("embedding_dense_grad_v2", "embedding_dense_grad")),),
    ),
    OperatorEntry(
        "conv_tbc_backward",
        "ConvTbcBackward",
        ("conv_tbc_grad_weight_deterministic",),
        ("kernel_width_at_most", "pad_at_most", "dim_at_most"),
    ),
    OperatorEntry(
        "rms_norm",
        "RmsNorm",
        ("rms_norm",),
        ("last_axis_bytes_at_least",),
        kernels_of_families=((ASCEND_950, ("rms_norm",)),),
    ),
    OperatorEntry(
        "rms_norm_grad",
        "RmsNormGrad",
        ("rms_norm_grad",),
        ("last_axis_bytes_at_least",),
        kernels_of_families=((ASCEND_950, ("rms_norm_grad",)),),
    ),
    OperatorEntry(
        "add_rms_norm",
        "AddRmsNorm",
        ("add_rms_norm",),
        also=("InplaceAddRmsNorm",),
        kernels_of_families=((ASCEND_950, ("add_rms_norm",)),),
    ),
    OperatorEntry(
        "cross_entropy_loss",
        "CrossEntropyLoss",
        ("cross_entropy_loss",),
        ("rows_at_most",),
        kernels_of_families=((ASCEND_950, ("cross_entropy_loss",)),),
    ),
    OperatorEntry(
        "cross_entropy_loss_grad",
        "CrossEntropyLossGrad",
        ("cross_entropy_loss_grad",),
        ("rows_below",),
        also=("npu_cross_entropy_loss",),
        kernels_of_families=((ASCEND_950, ("cross_entropy_loss_grad",)),),
    ),
    OperatorEntry(
        "moe_token_permute",
        "MoeTokenPermute",
        ("moe_token_permute",),
        kernels_of_families=((ASCEND_950, ("moe_init_routing_v2", "moe_init_routing_v3")),),
    ),
    OperatorEntry(
        "moe_token_permute_grad",
        "MoeTokenPermuteGrad",
        ("moe_token_permute_grad",),
        ("num_topk_at_most",),
        also=("npu_moe_token_permute_grad_v2",),
        kernels_of_families=((ASCEND_950, ("moe_token_permute_grad",)),),
    ),
    OperatorEntry(
        "moe_token_unpermute",
        "MoeTokenUnpermute",
        ("moe_token_unpermute",),
        kernels_of_families=((ASCEND_950, ("moe_finalize_routing_v2",)),),
    ),
    OperatorEntry(
        "moe_token_unpermute_grad",
        "MoeTokenUnpermuteGrad",
        ("moe_token_unpermute_grad",),
        kernels_of_families=((ASCEND_950, ("moe_finalize_routing_v2_grad",)),),
    ),
    OperatorEntry(
        "swi_glu", "SwiGlu", ("swi_glu",), kernels_of_families=((ASCEND_950, ("swi_glu",)),)
    ),
    OperatorEntry(
        "swi_glu_grad",
        "SwiGluGrad",
        ("swi_glu_grad",),
        kernels_of_families=((ASCEND_950, ("swi_glu_grad",)),),
    ),
    OperatorEntry(
        "rotary_position_embedding",
        "RotaryPositionEmbedding",
        ("rotary_position_embedding",),
        also=("npu_rotary_mul",),
        planner_files=("rope_rotate_half", "rope_interleaved"),
        refusals=(
            Refusal(
                "B * N is large or D is not aligned",
                "RotaryPositionEmbedding in half mode, x (B, N, S, D), cos (1, 1, S, D), B, N and "
                "S above 1: either half of D is whole blocks of 32 bytes and B*N > 8*S, or it is "
                "not, D < 80 and 2*B*N > ceil(S, cores); the text does not say which. What runs: "
                "cos expanded to (B, 1, S, D), one call for every batch, x as (B, S, N, D), or a "
                "longer S",
            ),
        ),
    ),
    OperatorEntry(
        "rotary_position_embedding_grad",
        "RotaryPositionEmbeddingGrad",
        ("rotary_position_embedding_grad",),
        also=("npu_rotary_mul_backward",),
        planner_files=("rope_half_grad", "rope_interleaved_grad"),
        refusals=(
            Refusal(
                "reserveAlignNum",
                "RotaryPositionEmbeddingGrad in half mode: D does not fit. If the number is not "
                "2*align(D/2) of this call, but of its third axis, an earlier 3-D call of the "
                "process left its flag set (tnd_flag_stays_set), until release 9.1 of 17 July "
                "2026: give all tensors four axes; gradients of calls that were not refused may "
                "be wrong",
                r"reserveAlignNum = \d{1,9}\b.{0,20}too large",
            ),
            Refusal(
                "B * N should smaller than 1000",
                "RotaryPositionEmbeddingGrad in interleave mode: B*N is 1000 or more. The forward "
                "pass takes such a call. What runs: one call for fewer batches or heads",
            ),
        ),
    ),
    OperatorEntry(
        "apply_adam_w_v2",
        "ApplyAdamWV2",
        ("apply_adam_w_v2",),
        also=("_fused_adamw_", "npu_apply_adam_w"),
        kernels_of_families=((ASCEND_950, ("apply_adam_w_v2",)),),
    ),
)
"""The operators of the package."""

OPERATOR_NAMES: tuple[str, ...] = tuple(entry.name for entry in OPERATORS)

_registered: dict[str, tuple[OperatorEntry, Any]] = {}
"""Entry and declaration of the operators that this process registered, by name."""


@cache
def offered_operators() -> tuple[OperatorEntry, ...]:
    """Return the operators that installed packages offer, sorted by name."""
    from importlib.metadata import entry_points  # slow to import

    points = sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name)
    return tuple(
        OperatorEntry(point.name, _title(point.name), home=point.value) for point in points
    )


def _title(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def _registered_operators() -> tuple[OperatorEntry, ...]:
    return tuple(entry for entry, _ in _registered.values())


def all_operators() -> tuple[OperatorEntry, ...]:
    """Return every operator; names of the package come first and cannot be replaced."""
    others = {entry.name: entry for entry in (*offered_operators(), *_registered_operators())}
    return (*OPERATORS, *(entry for name, entry in others.items() if name not in OPERATOR_NAMES))


def find_operator(name: str) -> OperatorEntry | None:
    """Return the entry of an operator by its name here or in the product documents, or None.

    ``rms_norm_grad``, ``RmsNormGrad``, ``aclnnRmsNormGrad`` and ``rms-norm-grad`` are one operator.

    Raises UsageError when ``name`` is not a string.
    """
    if not isinstance(name, str):
        raise UsageError(
            "operator",
            "operator = {name} is not a name",
            "operators: {operator_names}",
            name=shown(name),
            operator_names=", ".join(OPERATOR_NAMES),
        )
    wanted = plain_name(name).removeprefix("aclnn")
    return (
        _OWN_BY_PLAIN_NAME.get(wanted)
        or _by_plain_name(_registered_operators()).get(wanted)
        or _by_plain_name(offered_operators()).get(wanted)
    )


def called_operator(name: str) -> OperatorEntry | None:
    """Return the entry of an operator as people write its name, or None.

    That is any name of :func:`find_operator`, also with the number of a version, and that of a
    function of torch_npu, with or without its module: ``aclnnRotaryPositionEmbeddingV2``,
    ``npu_rotary_mul``, ``torch_npu.npu_swiglu``.
    """
    found = find_operator(name)
    if found is not None:
        return found
    plain = plain_name(name.rpartition(".")[2])
    also = {plain_name(other): entry for entry in OPERATORS for other in entry.also}
    own = plain.removeprefix("aclnn").removeprefix("npu")
    without_version = own[:-2] if own[-2:-1] == "v" and own[-1].isdigit() else own
    return find_operator(own) or also.get(plain) or also.get(own) or find_operator(without_version)


@cache
def _by_plain_name(entries: tuple[OperatorEntry, ...]) -> dict[str, OperatorEntry]:
    """Return entries by the plain forms of their names; of several with one name, the first."""
    return {
        plain_name(name): entry for entry in reversed(entries) for name in (entry.name, entry.title)
    }


_OWN_BY_PLAIN_NAME = _by_plain_name(OPERATORS)


def unknown_operator(name: str) -> UsageError:
    """Return the error for a name that no operator has."""
    names = [entry.name for entry in all_operators()]
    return UsageError(
        "operator",
        "operator = {name}: no such operator",
        "{tip}operators: {names}; of a file of your own: {operators}",
        name=shown(name),
        names=", ".join(names),
        tip=tip(name, names),
        operators="--operators FILE, npu_sim.register",
    )


def find_kernel(kernel: str) -> OperatorEntry | None:
    """Return the operator of a vendor kernel, or None."""
    return next((entry for entry in OPERATORS if kernel in entry.all_kernels), None)


def operator_of_launch(kernel: str) -> OperatorEntry | None:
    """Return the operator of a kernel as profilers print it (``EmbeddingDenseGradV2``), or None."""
    return next(
        (entry for entry in OPERATORS if kernel in (*map(_title, entry.kernels), *entry.also)), None
    )


def add_operator(entry: OperatorEntry, declaration: Any) -> None:
    """Add a declaration to this process; see :func:`npu_sim.register`."""
    _registered[entry.name] = (entry, declaration)


def registered_declarations() -> tuple[Any, ...]:
    """Return the declarations that this process registered."""
    return tuple(declaration for _, declaration in _registered.values())


def registered_declaration(name: str) -> Any:
    """Return the declaration that this process registered under a name, or None."""
    return _registered[name][1] if name in _registered else None
