"""Schema of a profile file: a product, its SoCs, its documented limits, and the legal values.

:mod:`npu_sim.cores` reads these files.
"""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from npu_sim.language import Text, grouped, joined
from npu_sim.registry import OPERATORS, all_operators, find_operator
from npu_sim.status import InvalidKeyError, UsageError, plain_name, shown, tip

Bytes = Annotated[int, Field(gt=0, le=1 << 50)]
Count = Annotated[int, Field(gt=0, le=65535)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Facts(BaseModel):
    """Facts of a file: immutable, without unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Chip(Facts):
    """Facts of one SoC; names carry their units."""

    npu_arch: Literal[1001, 2002, 2201, 3510]
    short_soc_version: str
    core_layout: Literal["fused", "split"]
    ai_core_count: Count
    cube_core_count: Count | None
    vector_core_count: Annotated[int, Field(ge=0, le=65535)]
    memory_bytes: Bytes | None
    l2_bytes: Bytes
    cube_clock_mhz: Positive
    vector_clock_mhz: Positive | None
    cube_mkn: tuple[Count, Count, Count]
    vector_lanes_fp16: Count
    ub_bytes: Annotated[int, Field(ge=1024, le=1 << 50)]
    ub_block_bytes: Count
    ub_bank_bytes: Bytes
    ub_bank_count: Count
    l1_bytes: Bytes
    l0a_bytes: Bytes
    l0b_bytes: Bytes
    l0c_bytes: Bytes
    ddr_bytes_per_cycle: Positive
    l2_read_bytes_per_cycle: Positive
    l2_write_bytes_per_cycle: Positive
    ub_to_ddr_bytes_per_cycle: Positive
    l1_to_l0a_bytes_per_cycle: Positive
    l1_to_l0b_bytes_per_cycle: Positive
    l0c_to_ub_bytes_per_cycle: Positive
    clock_doubt: str = ""
    """Why the published clock may not be the one it runs at; stated beside its bounds."""

    @model_validator(mode="after")
    def _split_cores_are_counted(self) -> "Chip":
        if self.core_layout == "split" and (
            self.cube_core_count is None or self.vector_core_count == 0
        ):
            raise InvalidKeyError(
                ("core_layout",), "a split chip needs cube_core_count and vector_core_count above 0"
            )
        return self

    @property
    def vector_cores(self) -> int:
        """Number of cores that run a vector operator."""
        return self.vector_core_count if self.core_layout == "split" else self.ai_core_count

    @property
    def cube_cores(self) -> int:
        """Number of cores that run a cube operator."""
        return self.cube_core_count if self.cube_core_count is not None else self.ai_core_count


class CubeRate(Facts):
    """Multiplications of one dtype: ``m x n x k`` per cycle, and the k of the smallest block."""

    m: Count
    n: Count
    k: Count
    block_k: Count


class Throughput(Facts):
    """Published theoretical rates of one core.

    A timeline counts the time of a missing or null rate as 0 and reports it.
    """

    vector_elements_per_cycle: dict[str, Positive | dict[str, Positive] | None] = {}
    """By class of instruction: one rate, or one per dtype."""
    cube_macs_per_cycle: dict[str, CubeRate | None] = {}
    """By dtype of the operands."""


DocumentedLimits = dict[str, Annotated[int, Field(gt=0, lt=1 << 63)]]
"""Limits that the product documents state for one operator, by the names in its registry entry."""


class Product(Facts):
    """One profile file: a product with all its SoCs."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$")]
    title: str
    title_zh: str = ""
    aliases: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=100)], ...], Field(max_length=100)
    ] = ()
    default_soc: str
    overflow_mode: Literal["inf_nan", "saturation"]
    dtypes: tuple[Literal["float16", "bfloat16", "float32"], ...]
    cube_dtypes: tuple[Literal["float16", "bfloat16", "float32", "hf32"], ...]
    operators: tuple[str, ...]
    not_modelled: dict[str, str] = {}
    """Why npu_sim does not model an operator there, by operators that are not in ``operators``."""
    evidence: Literal["exact", "model"] = "exact"
    """``model`` where plans are no more than a model, however exact the rules of the operator."""
    oldest_release: str = ""
    """Oldest release whose rules are known for it; empty when those of every release are."""
    rules_source: str = ""
    """Where its rules come from, stated in every answer; empty when golden data of releases hold
    them."""
    ub_reserved_bytes: Annotated[int, Field(ge=0, le=1 << 50)]
    system_workspace_bytes: Annotated[int, Field(ge=0, le=1 << 50)]
    documented_limits: dict[str, DocumentedLimits] = {}
    throughput: Throughput | None = None
    socs: Annotated[dict[str, Chip], Field(min_length=1)]

    @field_validator("documented_limits", mode="before")
    @classmethod
    def _by_operator(cls, stated: Any) -> Any:
        """Accept the ungrouped names of older profile files: ``moe_num_topk_at_most: 512``."""
        if not isinstance(stated, dict):
            return stated
        grouped = {name: value for name, value in stated.items() if isinstance(value, dict)}
        for name, value in stated.items():
            if name not in grouped:
                for operator, limit in _owners_of(str(name)):
                    grouped[operator] = {**grouped.get(operator, {}), limit: value}
        return grouped

    @model_validator(mode="after")
    def _consistent(self) -> "Product":
        if self.default_soc not in self.socs:
            message = Text(
                "{default_soc} is not among socs; {tip}socs: {socs}",
                default_soc=repr(self.default_soc),
                socs=", ".join(self.socs),
                tip=tip(self.default_soc, _names_of_socs(self.socs)),
            )
            raise InvalidKeyError(("default_soc",), message)
        for position, operator in enumerate(self.operators):
            _require_operator(("operators", position), operator)
        for operator in self.not_modelled:
            _require_operator(("not_modelled", operator), operator)
            if operator in self.operators:
                raise InvalidKeyError(
                    ("not_modelled", operator),
                    Text("{operator} is also among operators", operator=repr(operator)),
                )
        for operator, stated in self.documented_limits.items():
            _check_limits(operator, stated)
        for soc, chip in self.socs.items():
            if chip.ub_bytes <= self.ub_reserved_bytes:
                message = Text(
                    "{ub_bytes} must exceed ub_reserved_bytes {ub_reserved_bytes}",
                    ub_bytes=chip.ub_bytes,
                    ub_reserved_bytes=self.ub_reserved_bytes,
                )
                raise InvalidKeyError(("socs", soc, "ub_bytes"), message)
        return self

    def soc_named(self, text: str) -> str | None:
        """Return the SoC of a name, with or without ``Ascend``, in any case; None if unknown."""
        if not isinstance(text, str) or text in self.socs:
            return text if isinstance(text, str) else None
        return next((soc for soc in self.socs if plain_name(text) in _short_and_long(soc)), None)

    def names(self) -> dict[str, str | None]:
        """Return the plain names of the product (None) and of its SoCs (the SoC).

        Names of the product are those of the profile, of the documents in both languages, each part
        of a joined one, the aliases, and the short versions of its SoCs.
        """
        known_names = [
            self.name,
            self.title,
            self.title_zh,
            *self.title_zh.split("/"),
            *self.aliases,
        ]
        names: dict[str, str | None] = {plain_name(text): None for text in known_names if text}
        for chip in self.socs.values():
            names |= dict.fromkeys(_short_and_long(chip.short_soc_version))
        return names | {name: soc for soc in self.socs for name in _short_and_long(soc)}


def _short_and_long(soc: str) -> tuple[str, str]:
    """Return both names of a SoC, ``910b3`` for ``Ascend910B3``."""
    plain = plain_name(soc)
    return plain, plain.removeprefix("ascend")


def near_soc(text: Any, socs: Iterable[str]) -> str:
    """Return the tip for a misspelled SoC, with or without ``Ascend``."""
    return tip(text, _names_of_socs(socs))


def _names_of_socs(socs: Iterable[str]) -> list[str]:
    return [name for soc in socs for name in (soc, soc.removeprefix("Ascend"))]


WITHOUT_CHIP = frozenset(map(plain_name, ("910C", "Ascend 910C", "Atlas 300I Duo")))
"""Marketing names in use; no document of the vendor states which chip is in them."""


class ProductNames:
    """Look-up of products and SoCs by any of their names.

    - ``products``: the products. A name that several of them have is an error when it is used.
    """

    def __init__(self, products: Iterable[Product]) -> None:
        self._products = {product.name: product for product in products}
        self._meanings = grouped(
            (name, (product.name, soc))
            for product in self._products.values()
            for name, soc in product.names().items()
        )

    def meanings(self, text: str) -> Sequence[tuple[str, str | None]]:
        """Return the possible meanings of a text: products, each with a SoC or None."""
        return (
            [(text, None)] if text in self._products else self._meanings.get(plain_name(text), [])
        )

    def product(self, text: str) -> tuple[str, str | None]:
        """Return the product that a text names, and the SoC if it names one.

        Raises UsageError when it names none, or several are possible.
        """
        meanings = self.meanings(text)
        if len(meanings) == 1:
            return meanings[0]
        if meanings:
            raise _ambiguous("product", text, meanings)
        if plain_name(text) in WITHOUT_CHIP:
            raise UsageError(
                "product",
                "product = {text}: it is not known which chip is in it",
                "name the SoC that npu-smi or a profile of the device shows, such as Ascend910B1",
                text=shown(text),
            )
        raise UsageError(
            "product",
            "product = {text}: no such product",
            "{tip}a SoC, a profile file ending in .yaml, or one of the products: {products}",
            text=shown(text),
            products=", ".join(self._products),
            tip=self._near(
                text,
                [
                    name
                    for product in self._products.values()
                    for name in (product.name, *product.aliases, *product.socs)
                ],
            ),
        )

    def soc(self, text: str) -> tuple[str, str]:
        """Return the product and the SoC that a text names; a full SoC name is never ambiguous.

        Raises UsageError when no product has such a SoC, or several are possible.
        """
        for product in self._products.values():
            if text in product.socs:
                return product.name, text
        meanings = self.meanings(text)
        if len(meanings) > 1:
            raise _ambiguous("soc", text, meanings)
        for name, soc in meanings:
            if soc is not None:
                return name, soc
            raise UsageError(
                "soc",
                "soc = {text}: {name} is a product, not a SoC",
                "product = {name} has the SoC {default}; all of them: npu-sim products {name}",
                text=shown(text),
                name=name,
                default=self._products[name].default_soc,
            )
        names = [soc for product in self._products.values() for soc in product.socs]
        raise UsageError(
            "soc",
            "soc = {text}: no shipped product has such a SoC",
            "{tip}SoCs: {names}",
            text=shown(text),
            names=", ".join(names),
            tip=self._near(text, names),
        )

    def _near(self, text: str, names: Iterable[str]) -> str:
        """Return the tip for a misspelled name: one with a single meaning, with or without prefix.

        ``Ascend910B`` is a SoC and, without its prefix, another product: it is no correction.
        """
        unambiguous = [
            name
            for name in names
            if all(len(self.meanings(form)) == 1 for form in _names_of_socs([name]))
        ]
        return near_soc(text, unambiguous)


def _ambiguous(argument: str, text: str, meanings: Sequence[tuple[str, str | None]]) -> UsageError:
    meant = joined(
        (
            name if soc is None else Text("{soc} of {name}", soc=soc, name=name)
            for name, soc in meanings
        ),
        " or ",
    )
    return UsageError(
        argument,
        "{argument} = {text} may be {meant}",
        "write the product, or the whole name of a SoC",
        argument=argument,
        text=shown(text),
        meant=meant,
    )


def _owners_of(name: str) -> list[tuple[str, str]]:
    """Return operators and limits of an ungrouped name: ``moe_num_topk_at_most``."""
    owners = [
        (entry.name, limit)
        for entry in OPERATORS
        for limit in entry.limits
        if name.endswith(f"_{limit}") and entry.name.startswith(name.removesuffix(f"_{limit}"))
    ]
    if not owners:
        raise ValueError(
            Text(
                "{name} is neither a limit nor an operator; {tip}{known}",
                name=name,
                known=joined(
                    [
                        f"{entry.name}: {', '.join(entry.limits)}"
                        for entry in OPERATORS
                        if entry.limits
                    ]
                ),
                tip=tip(name, [entry.name for entry in OPERATORS]),
            )
        )
    return owners


def _require_operator(key: tuple[str | int, ...], name: str) -> None:
    entry = find_operator(name)
    if entry is None or entry.name != name:
        names = [operator.name for operator in all_operators()]
        raise InvalidKeyError(key, _unknown_operator(name, names))


def _check_limits(operator: str, stated: DocumentedLimits) -> None:
    entry = find_operator(operator)
    if entry is None or entry.name != operator:
        raise InvalidKeyError(
            ("documented_limits", operator),
            _unknown_operator(
                operator, [operator.name for operator in OPERATORS if operator.limits]
            ),
        )
    if entry not in OPERATORS:  # declarations of others check their own limits
        return
    for name in stated:
        if name not in entry.limits:
            raise InvalidKeyError(
                ("documented_limits", operator, name),
                Text(
                    "{tip}limits of {operator}: {known}",
                    operator=operator,
                    known=", ".join(entry.limits) or "none",
                    tip=tip(name, entry.limits),
                ),
            )


def _unknown_operator(name: str, names: Sequence[str]) -> str:
    return Text(
        "{operator} is not one of the operators; {tip}{names}",
        operator=repr(name),
        names=", ".join(names),
        tip=tip(name, names),
    )
