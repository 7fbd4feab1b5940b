"""Tiling planners: how the product splits a call over cores and buffers.

Every module reproduces the planner of one vendor kernel, or of several with one planner, as pure
integer functions. Planners import neither Numba nor anything about operators, but sweeps compile
them with Numba: they use integers, a few floats where the product does, and NamedTuples, and no
dicts.

A planner module has ``tile(problem, device, rules)``. ``problem`` holds the integers of a call that
the planner reads, named as the axes of the operator's declaration, so that a row of the operator is
passed as it is. Where the planner counts otherwise, ``tile_row(row, device, rules)`` converts.
``rules`` holds documented limits and the switches of a release, from ``configs/releases.yaml``.
``KERNELS`` has the raw planners by kernel: ``problem_of(inputs, rules)`` reads what the product's
planner gets, :func:`~npu_sim.tiling.common.raw_planner` does the rest.

``STRUCTURES`` has the byte layout of the vendor's tiling structures: order, C type and release of
every field (specification page ``tiling_bytes``, public headers of 8.3 to 9.1). Planners supply the
values under the same names (``Field.vendor``); :func:`pack` and :func:`decode_tiling` convert
between these values and the little-endian bytes that a kernel receives.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from npu_sim.cores import (
    Profile,
    default_release,
    is_older,
    load_profile,
    release_rules,
    require_release,
)
from npu_sim.registry import OPERATORS, OperatorEntry, find_kernel
from npu_sim.status import NotModelledError, UsageError, plain_name, shown, tip
from npu_sim.tiling.common import RawPlanner, Structure, align


def plan_kernel(
    op: str,
    soc: str,
    inputs: dict[str, Any],
    deterministic: bool = False,
    release: str | None = None,
) -> dict[str, Any]:
    """Run the raw planner of one vendor kernel, without the contract of its operator.

    Parameters
    ----------
    op
        Name of the kernel, one of ``OperatorEntry.kernels``: for instance ``rms_norm_grad`` or
        ``embedding_dense_grad_v2``.
    soc
        Name of the SoC, for instance ``Ascend910B1``.
    inputs
        Inputs of the kernel by name, as in the golden data.
    deterministic
        The determinism switch.
    release
        Release of the product's software; the default when None.

    Returns
    -------
    dict
        ``status`` ("success" or "failed") and, on success, ``block_dim``, ``tiling_key``,
        ``workspace_bytes``, ``schedule_mode`` where the kernel has one, and ``tiling`` with every
        field under the vendor's name. ConvTbcBackward adds ``route``.

    Raises
    ------
    UsageError
        For an unknown kernel, SoC or release, an input that is missing, and (as
        :class:`~npu_sim.status.NotModelledError`) a kernel without planner on the product.
    """
    entry = find_kernel(op)
    if entry is None:
        kernels = ", ".join(
            dict.fromkeys(kernel for operator in OPERATORS for kernel in operator.all_kernels)
        )
        raise UsageError(
            "op",
            "op = {op}: no planner of that name",
            "{tip}planners: {kernels}",
            op=repr(op),
            kernels=kernels,
            tip=tip(op, kernels.split(", ")),
        )
    try:
        return raw_plan(entry, op, inputs, load_profile(None, soc, release), deterministic)
    except KeyError as error:
        raise UsageError(
            "inputs",
            "inputs: {key} is missing",
            "given: {inputs}",
            key=repr(error.args[0]),
            inputs=", ".join(inputs),
        ) from None


def raw_plan(
    entry: OperatorEntry, op: str, inputs: Mapping[str, Any], profile: Profile, deterministic: bool
) -> dict[str, Any]:
    """Like :func:`plan_kernel`, for a loaded profile and without its errors.

    Raises
    ------
    NotModelledError
        When npu_sim has no planner of the kernel on the product.
    """
    if op not in entry.kernels_on(profile.family):
        raise NotModelledError(
            "op",
            "op = {op}: npu_sim has no planner of this kernel on {product_title}",
            "choose another product",
            op=repr(op),
            product_title=profile.product.title,
        )
    family = f"npu_sim.tiling.{profile.family}".removesuffix(".")
    rules = release_rules(profile.release, entry.name, profile.npu_arch)
    planner: RawPlanner = import_module(f"{family}.{entry.name}").KERNELS[op]
    return planner({**inputs, "deterministic": deterministic}, profile.device, rules)


FORMATS = {
    "uint8_t": "B",
    "uint32_t": "I",
    "int32_t": "i",
    "float": "f",
    "uint64_t": "Q",
    "int64_t": "q",
}
"""Format characters of :mod:`struct` by C type."""
WORD_BYTES = 8
"""Bytes of a word in a log; also the alignment of nested structures and of the whole."""
ATOMIC_INDEX = 0xA5A5A5A5
"""Upper half of the word that an exception dump appends to a structure."""
LARGEST_WORD = 2**64 - 1


class Member(NamedTuple):
    """One field of a structure: its full name, C type and byte offset."""

    name: str
    c_type: str
    offset: int


class Layout(NamedTuple):
    """A structure at one release: its fields in order, and its bytes."""

    members: tuple[Member, ...]
    bytes: int


@cache
def structures() -> tuple[Structure, ...]:
    """Return the structures of all operators, without those of Ascend 950."""
    modules = [import_module(f"npu_sim.tiling.{entry.name}") for entry in OPERATORS]
    return tuple(structure for module in modules for structure in getattr(module, "STRUCTURES", ()))


def find_structure(kernel: str) -> Structure | None:
    """Return the structure of a kernel by its name here or at the vendor, or None."""
    wanted = plain_name(kernel)
    return next(
        (structure for structure in structures() if plain_name(structure.kernel) == wanted), None
    )


@cache
def layout(structure: Structure, release: str) -> Layout:
    """Return a structure at a release.

    A field is aligned to its width and a nested structure to 8 bytes; so is the end (page
    ``tiling_bytes``, "The rule of BEGIN_TILING_DATA_DEF").
    """
    members: list[Member] = []
    offset, part = 0, ""
    for run in structure.runs:
        if is_older(release, run.since):
            continue
        if run.part != part:
            offset, part = align(offset, WORD_BYTES), run.part
        width = struct.calcsize(FORMATS[run.c_type])
        for name in run.names.split():
            offset = align(offset, width)
            members.append(Member(f"{part}.{name}" if part else name, run.c_type, offset))
            offset += width
    return Layout(tuple(members), align(offset, WORD_BYTES))


def pack(kernel: str, values: Mapping[str, Any], release: str) -> bytes:
    """Return the bytes of a tiling structure.

    Parameters
    ----------
    kernel
        Name of the kernel.
    values
        Its fields by the vendor's names; those of nested structures as mappings.
    release
        Release of the product's software.

    Raises
    ------
    UsageError
        When a field is missing or does not fit its C type.
    """
    found, name = _known(kernel, release)
    given, laid = dict(flattened(values)), layout(found, name)
    if missing := [member.name for member in laid.members if member.name not in given]:
        raise UsageError(
            "tiling",
            "{kernel}: npu_sim plans {known} of the {fields} fields of its structure; "
            "{missing} is missing",
            "the bytes are written for kernels whose whole structure is planned",
            kernel=found.kernel,
            known=len(laid.members) - len(missing),
            fields=len(laid.members),
            missing=missing[0],
        )
    data = bytearray(laid.bytes)
    for member in laid.members:
        try:
            struct.pack_into("<" + FORMATS[member.c_type], data, member.offset, given[member.name])
        except (struct.error, OverflowError):
            raise UsageError(
                member.name,
                "{name} = {value} does not fit {c_type}",
                "give a number within the range of its C type",
                name=member.name,
                value=shown(given[member.name]),
                c_type=member.c_type,
            ) from None
    return bytes(data)


def flattened(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the fields of a tiling with their full names, such as ``params.coreNum``."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from flattened(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def decode_tiling(
    kernel: str,
    words_or_bytes: bytes | bytearray | memoryview | Sequence[int | str],
    *,
    release: str | None = None,
) -> dict[str, int | float]:
    """Return the named fields of a tiling structure.

    Parameters
    ----------
    kernel
        Name of the kernel, at the vendor or here.
    words_or_bytes
        Little-endian bytes, or words of 8 bytes as integers or hexadecimal texts. What follows
        the structure (padding, atomic index, sizes) is ignored.
    release
        Release of the product's software; the default when None.

    Returns
    -------
    dict
        Values in the order of the structure; fp32 values with the 9 digits that identify them.

    Raises
    ------
    UsageError
        For an unknown kernel or release, a word that is none, and fewer bytes than the structure.
    """
    found, name = _known(kernel, release)
    laid = layout(found, name)
    data = _bytes_of(words_or_bytes)
    if len(data) < laid.bytes:
        raise UsageError(
            "words_or_bytes",
            "words_or_bytes has {given} bytes, the structure of {kernel} has {bytes} at "
            "release {release}",
            "give the whole structure, or the release that it is from",
            given=len(data),
            kernel=found.kernel,
            bytes=laid.bytes,
            release=name,
        )
    return {member.name: _value(member, data) for member in laid.members}


def _value(member: Member, data: bytes) -> int | float:
    (value,) = struct.unpack_from("<" + FORMATS[member.c_type], data, member.offset)
    return float(f"{value:.9g}") if member.c_type == "float" else int(value)


def _known(kernel: str, release: str | None) -> tuple[Structure, str]:
    found = find_structure(kernel) if isinstance(kernel, str) else None
    if found is None:
        names = [structure.kernel for structure in structures()]
        raise UsageError(
            "kernel",
            "kernel = {kernel}: its tiling structure is not known",
            "{tip}kernels: {kernels}",
            kernel=shown(kernel),
            kernels=", ".join(names),
            tip=tip(kernel, names),
        )
    name = default_release() if release is None else require_release(release)
    if is_older(name, found.since):
        raise UsageError(
            "release",
            "release = {release}: the structure of {kernel} is known since {since}",
            "name release {since} or a later one",
            release=name,
            kernel=found.kernel,
            since=found.since,
        )
    return found, name


def _bytes_of(given: Any) -> bytes:
    if isinstance(given, bytes | bytearray | memoryview):
        return bytes(given)
    try:
        words = [int(word, 16) if isinstance(word, str) else int(word) for word in given]
        if all(0 <= word <= LARGEST_WORD for word in words):
            return struct.pack(f"<{len(words)}Q", *words)
    except (TypeError, ValueError, OverflowError):
        pass
    raise UsageError(
        "words_or_bytes",
        "words_or_bytes = {given} is not a list of words of 8 bytes",
        "give bytes, or a list of words such as [0x20, '0x40']",
        given=shown(given),
    )
