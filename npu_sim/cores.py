"""Hardware profiles: what a product is.

A profile file (``configs/*.yaml``, or your own of the same form) describes one product: the facts its SoCs share, the SoCs
with what differs, and the limits that the product documents state. Facts are from the vendor's public platform
configuration files; the usable Unified Buffer and the system workspace follow the vendor's programming documents.
"""

from functools import cache, lru_cache
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from npu_sim.profile_file import YamlDocument, closest, read_yaml
from npu_sim.registry import OPERATOR_NAMES
from npu_sim.status import INVALID, AclnnError

NPU_ARCH_ATLAS_TRAIN = 1001
NPU_ARCH_ATLAS_INFERENCE = 2002
NPU_ARCH_ATLAS_A2 = 2201

Bytes = Annotated[int, Field(gt=0)]
Count = Annotated[int, Field(gt=0, le=65535)]


class Device(NamedTuple):
    """The integers a tiling planner needs of a SoC.

    Attributes
    ----------
    npu_arch
        Architecture number: 2201 Atlas A2 and A3, 1001 Atlas training series, 2002 Atlas inference series.
    vector_cores
        Cores a vector operator is spread over: vector cores on split chips, AI cores on fused ones.
    cube_cores
        Cores a cube operator is spread over.
    ub_bytes
        Unified Buffer of one core that a planner may use: the physical size minus the reserve.
    l1_bytes, l0a_bytes, l0b_bytes, l0c_bytes
        On-chip buffers of one cube core.
    system_workspace_bytes
        Workspace the runtime keeps for itself in every Ascend C kernel.
    """

    npu_arch: int
    vector_cores: int
    cube_cores: int
    ub_bytes: int
    l1_bytes: int
    l0a_bytes: int
    l0b_bytes: int
    l0c_bytes: int
    system_workspace_bytes: int


class Chip(BaseModel):
    """Facts of one SoC; names carry their units."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    npu_arch: Literal[1001, 2002, 2201]
    short_soc_version: str
    core_layout: Literal["fused", "split"]
    ai_core_count: Count
    cube_core_count: Count | None
    vector_core_count: Annotated[int, Field(ge=0, le=65535)]
    memory_bytes: Bytes | None
    l2_bytes: Bytes
    cube_clock_mhz: Annotated[float, Field(gt=0)]
    vector_clock_mhz: Annotated[float, Field(gt=0)] | None
    cube_mkn: tuple[Count, Count, Count]
    vector_lanes_fp16: Count
    ub_bytes: Annotated[int, Field(ge=1024)]
    ub_block_bytes: Count
    ub_bank_bytes: Bytes
    ub_bank_count: Count
    l1_bytes: Bytes
    l0a_bytes: Bytes
    l0b_bytes: Bytes
    l0c_bytes: Bytes
    ddr_bytes_per_cycle: Annotated[float, Field(gt=0)]
    l2_read_bytes_per_cycle: Annotated[float, Field(gt=0)]
    l2_write_bytes_per_cycle: Annotated[float, Field(gt=0)]
    ub_to_ddr_bytes_per_cycle: Annotated[float, Field(gt=0)]
    l1_to_l0a_bytes_per_cycle: Annotated[float, Field(gt=0)]
    l1_to_l0b_bytes_per_cycle: Annotated[float, Field(gt=0)]
    l0c_to_ub_bytes_per_cycle: Annotated[float, Field(gt=0)]

    @model_validator(mode="after")
    def _split_cores_are_counted(self) -> "Chip":
        if self.core_layout == "split" and (self.cube_core_count is None or self.vector_core_count == 0):
            raise ValueError("core_layout: a split chip needs cube_core_count and vector_core_count above 0")
        return self

    @property
    def vector_cores(self) -> int:
        """Cores a vector operator is spread over."""
        return self.vector_core_count if self.core_layout == "split" else self.ai_core_count

    @property
    def cube_cores(self) -> int:
        """Cores a cube operator is spread over."""
        return self.cube_core_count if self.cube_core_count is not None else self.ai_core_count


class CubeRate(BaseModel):
    """Multiplications of one dtype: ``m x n x k`` in one cycle, and the k of the smallest block."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    m: Count
    n: Count
    k: Count
    block_k: Count


Rate = Annotated[float, Field(gt=0)]


class Throughput(BaseModel):
    """Published theoretical rates of one core; a timeline counts what is null or absent as 0 and names it.

    Attributes
    ----------
    vector_elements_per_cycle
        By class of instruction: one rate, or one by dtype.
    cube_macs_per_cycle
        By dtype of the operands.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    vector_elements_per_cycle: dict[str, Rate | dict[str, Rate] | None] = {}
    cube_macs_per_cycle: dict[str, CubeRate | None] = {}


class DocumentedLimits(BaseModel):
    """Limits of the product documents; None where the product's document states none."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    embedding_scale_bound_bytes: Bytes | None = None
    rms_norm_last_axis_bytes_at_least: Bytes | None = None
    cross_entropy_rows_below: Annotated[int, Field(gt=0)] | None = None
    moe_num_topk_at_most: Annotated[int, Field(gt=0)] | None = None
    conv_kernel_width_at_most: Annotated[int, Field(gt=0)] | None = None
    conv_pad_at_most: Annotated[int, Field(gt=0)] | None = None
    conv_dim_at_most: Annotated[int, Field(gt=0)] | None = None


class Product(BaseModel):
    """One profile file: a product with all its SoCs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$")]
    title: str
    title_zh: str = ""
    default_soc: str
    overflow_mode: Literal["inf_nan", "saturation"]
    dtypes: tuple[Literal["float16", "bfloat16", "float32"], ...]
    cube_dtypes: tuple[Literal["float16", "bfloat16", "float32", "hf32"], ...]
    operators: tuple[str, ...]
    ub_reserved_bytes: Annotated[int, Field(ge=0)]
    system_workspace_bytes: Annotated[int, Field(ge=0)]
    documented_limits: DocumentedLimits = DocumentedLimits()
    throughput: Throughput | None = None
    socs: Annotated[dict[str, Chip], Field(min_length=1)]

    @model_validator(mode="after")
    def _consistent(self) -> "Product":
        if self.default_soc not in self.socs:
            raise ValueError(f"default_soc: {self.default_soc!r} is not among socs: {', '.join(self.socs)}")
        for position, operator in enumerate(self.operators):
            if operator not in OPERATOR_NAMES:
                raise ValueError(f"operators.{position}: {operator!r} is not one of {', '.join(OPERATOR_NAMES)}")
        for soc, chip in self.socs.items():
            if chip.ub_bytes <= self.ub_reserved_bytes:
                raise ValueError(f"socs.{soc}.ub_bytes: {chip.ub_bytes} must exceed ub_reserved_bytes {self.ub_reserved_bytes}")
        return self


class Profile(BaseModel):
    """A product with one of its SoCs chosen: what every plan and run is made for."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    product: Product
    soc: str

    @property
    def name(self) -> str:
        """Name of the product, as ``--product`` takes it."""
        return self.product.name

    @property
    def title(self) -> str:
        """Product and SoC as people say them."""
        return f"{self.product.title}, {self.soc}"

    @property
    def chip(self) -> Chip:
        """Facts of the chosen SoC."""
        return self.product.socs[self.soc]

    @property
    def limits(self) -> DocumentedLimits:
        """Documented limits of the product."""
        return self.product.documented_limits

    @property
    def npu_arch(self) -> int:
        """Architecture number of the chosen SoC."""
        return self.chip.npu_arch

    @property
    def saturates(self) -> bool:
        """Whether results beyond the range become the largest finite value, and nan 0, instead of inf and nan."""
        return self.product.overflow_mode == "saturation"

    @property
    def vector_core_kind(self) -> str:
        """What the cores of a vector operator are called on this chip."""
        return "vector cores" if self.chip.core_layout == "split" else "AI cores"

    @property
    def cube_core_kind(self) -> str:
        """What the cores of a cube operator are called on this chip."""
        return "cube cores" if self.chip.core_layout == "split" else "AI cores"

    @property
    def device(self) -> Device:
        """The integers the planners take."""
        chip = self.chip
        return Device(
            npu_arch=chip.npu_arch,
            vector_cores=chip.vector_cores,
            cube_cores=chip.cube_cores,
            ub_bytes=chip.ub_bytes - self.product.ub_reserved_bytes,
            l1_bytes=chip.l1_bytes,
            l0a_bytes=chip.l0a_bytes,
            l0b_bytes=chip.l0b_bytes,
            l0c_bytes=chip.l0c_bytes,
            system_workspace_bytes=self.product.system_workspace_bytes,
        )

    def with_soc(self, soc: str | None) -> "Profile":
        """Return the same product with another SoC; None means the product's default.

        Raises
        ------
        AclnnError
            161002 when the product has no such SoC.
        """
        wanted = self.product.default_soc if soc is None else soc
        if wanted not in self.product.socs:
            message = f"soc = {wanted!r}: {self.product.name} has no such SoC"
            raise AclnnError(INVALID, "soc", message, f"its SoCs: {', '.join(self.product.socs)}{closest(wanted, self.product.socs)}")
        return Profile(product=self.product, soc=wanted)


def config_directory() -> Path:
    """Return the folder of the profiles that ship with the package."""
    installed = Path(__file__).parent / "configs"
    return installed if installed.is_dir() else Path(__file__).parent.parent / "configs"


@cache
def shipped_products() -> tuple[str, ...]:
    """Return the names of the profiles that ship with the package."""
    return tuple(sorted(path.stem for path in config_directory().glob("*.yaml")))


def load_profile(profile: "str | Path | Profile", soc: str | None = None) -> Profile:
    """Load a product and choose one of its SoCs.

    Parameters
    ----------
    profile
        Name of a shipped product (``"atlas_a2"``), the path of a YAML file of the same form, or a loaded profile.
    soc
        SoC of that product; None takes its default (or keeps that of a loaded profile).

    Raises
    ------
    AclnnError
        161002 for an unknown product or SoC and for a file that is not a valid profile; the message names file, line and key.
    """
    if isinstance(profile, Profile):
        return profile if soc is None else profile.with_soc(soc)
    name = str(profile)
    if name.endswith((".yaml", ".yml")) or "/" in name:
        product = _load_product(Path(name))
    elif name in shipped_products():
        product = _shipped_product(name)
    else:
        hint = (
            f"products: {', '.join(shipped_products())}{closest(name, shipped_products())}; or the path of a profile file ending in .yaml"
        )
        raise AclnnError(INVALID, "profile", f"profile = {name!r}: no such product", hint)
    return Profile(product=product, soc=product.default_soc).with_soc(soc)


def profile_of_soc(soc: str) -> Profile:
    """Return the shipped profile that has a SoC of this name.

    Raises
    ------
    AclnnError
        161002 when no shipped product has such a SoC.
    """
    names: list[str] = []
    for name in shipped_products():
        product = _shipped_product(name)
        if soc in product.socs:
            return Profile(product=product, soc=soc)
        names.extend(product.socs)
    raise AclnnError(INVALID, "soc", f"soc = {soc!r}: no shipped product has such a SoC", f"SoCs: {', '.join(names)}{closest(soc, names)}")


@lru_cache(maxsize=32)
def _shipped_product(name: str) -> Product:
    return _load_product(config_directory() / f"{name}.yaml")


def _load_product(path: Path) -> Product:
    document = read_yaml(path)
    data = _merge_chip(document)
    try:
        return Product.model_validate(data)
    except ValidationError as error:
        raise document.validation_error(error, Product.model_fields, Chip.model_fields) from None


def _merge_chip(document: YamlDocument) -> dict[str, object]:
    """Give every SoC the shared facts of ``chip`` that it does not override itself."""
    data = dict(document.data)
    shared = data.pop("chip", {})
    socs = data.get("socs")
    if not isinstance(shared, dict):
        raise document.error(("chip",), "must be a mapping of chip facts")
    if isinstance(socs, dict):
        for soc, facts in socs.items():
            if facts is not None and not isinstance(facts, dict):
                raise document.error(("socs", soc), "must be a mapping of chip facts, or empty")
        data["socs"] = {soc: {**shared, **(facts or {})} for soc, facts in socs.items()}
    return data
