"""The first call of two dumps whose outputs differ although its inputs are equal."""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from npu_sim.dumps.calls import inputs_of
from npu_sim.dumps.folder import Dump, DumpedTensor, Entry, tensors_of


class Comparison(IntEnum):
    """How two tensors compare, by the most certain evidence in both dumps.

    Answers give the name in lower case.
    """

    EQUAL = 0
    """Equal bits: of the values, or of a checksum."""
    SIMILAR = 1
    """Equal statistics, which proves nothing."""
    UNKNOWN = 2
    """Neither values nor checksums nor statistics in both."""
    DIFFERENT = 3


@dataclass(frozen=True)
class Difference:
    """An entry whose outputs differ.

    Attributes
    ----------
    place, entry
        Step and rank, and the name of the entry.
    outputs
        Places of the outputs that differ, among the tensors of the entry.
    tensors
        These outputs in the first dump.
    inputs
        The least certain comparison of the inputs; DIFFERENT when the difference came from outside.
    """

    place: str
    entry: str
    outputs: tuple[int, ...]
    tensors: tuple[DumpedTensor, ...]
    inputs: Comparison


def compare_tensors(first: DumpedTensor, second: DumpedTensor) -> Comparison:
    """Compare two tensors by values, else by checksums, else by statistics."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return Comparison.DIFFERENT
    if first.file is not None and second.file is not None:
        array, other = first.values(), second.values()
        same = array.dtype == other.dtype and _same_bits(array, other)
        return Comparison.EQUAL if same else Comparison.DIFFERENT
    if first.checksum is not None and second.checksum is not None:
        same = first.checksum == second.checksum
        return Comparison.EQUAL if same else Comparison.DIFFERENT
    if not first.statistics or first.statistics.keys() != second.statistics.keys():
        return Comparison.UNKNOWN
    same = _same_bits(_numbers(first), _numbers(second))
    return Comparison.SIMILAR if same else Comparison.DIFFERENT


def _same_bits(first: np.ndarray, second: np.ndarray) -> bool:
    return np.ascontiguousarray(first).tobytes() == np.ascontiguousarray(second).tobytes()


def _numbers(tensor: DumpedTensor) -> np.ndarray:
    return np.array(list(tensor.statistics.values()))


def first_difference(first: Dump, second: Dump) -> Difference | None:
    """Return the first entry with different outputs and equal inputs.

    If there is none, return the first entry with different outputs: its inputs differ as well.
    """
    inherited = None
    for name, entry in first.entries.items():
        other = second.entries.get(name)
        if other is None:
            continue
        different = _different_outputs(entry, other)
        if not different:
            continue
        inputs = _compare_inputs(first, entry, second, other)
        found = Difference(first.place, name, tuple(different), tuple(different.values()), inputs)
        if inputs != Comparison.DIFFERENT:
            return found
        inherited = inherited or found
    return inherited


def _different_outputs(entry: Entry, other: Entry) -> dict[int, DumpedTensor]:
    pairs = zip(tensors_of(entry.outputs), tensors_of(other.outputs), strict=False)
    return {
        position: output
        for position, (output, another) in enumerate(pairs)
        if compare_tensors(output, another) is Comparison.DIFFERENT
    }


def _compare_inputs(first: Dump, entry: Entry, second: Dump, other: Entry) -> Comparison:
    pairs = zip(inputs_of(first, entry), inputs_of(second, other), strict=False)
    return max((compare_tensors(*pair) for pair in pairs), default=Comparison.EQUAL)
