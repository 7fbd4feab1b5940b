"""Compare the bits of an operator in two commits, on random calls and in every mode of the kernels.

    python benchmarks/same_bits.py embedding_dense_backward --cases 1000 --write before.json
    python benchmarks/same_bits.py embedding_dense_backward --compare before.json

The first command runs in the commit whose bits count, the second in the one that changed. Where the
first has no such script: ``PYTHONPATH=<its clone>`` before this one makes it use the package there.

A case is a call with random sizes, dtypes, product, release, core order and determinism, on data
with extreme values, in arrays of any layout and alignment, or contiguous ones where these are
refused; its number is the seed. ``--write`` keeps two digests per case, of the inputs and of the
results, order masks and caveats; all nan count as one. ``--compare`` runs the same cases in six
modes (``--modes``): as usual, on one thread, with plain Numba, for the generic processor, for one
without AVX-512, and with every access checked.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from measure import AVX2

import npu_sim  # of PYTHONPATH, if that names a clone: before the folder below is in the path
from npu_sim.files.writing import write_text
from npu_sim.framework.arguments import Attribute, Number
from npu_sim.framework.inference import arguments_of, call_with
from npu_sim.framework.target import CORE_ORDERS
from npu_sim.numbers.formats import TensorSpec
from npu_sim.operators.loading import load_operator
from npu_sim.operators.shared.generate import generate

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.hostile.campaign import device_of, disturbed, draw, values_of
from benchmarks.hostile.race import LAYOUTS, guarded
from tests.small_calls import NAMES, bits_of

MODES = {
    "default": {},
    "one thread": {"NUMBA_NUM_THREADS": "1"},
    "plain Numba": {"NPU_SIM_PLAIN_NUMBA": "1"},
    "generic processor": {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""},
    "AVX2": {name: AVX2[name] for name in ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES")},
    "every access checked": {"NPU_SIM_CHECK": "1"},
}
"""Environment variables of the modes, in which the same bits are due."""
MOST_SIZE_BITS, MOST_ELEMENTS, MOST_WORK = 14, 2**18, 2**26
"""Largest size of a case as a power of two, elements of its inputs, and product of its sizes."""
LEAST_BITS = 16
"""Most cases have as many elements as a random power up to this one: else most are tiny."""
ATTEMPTS = 2000
"""Calls drawn until one is legal."""
SHOWN, TOLD = 10, 100
"""Differing cases that are printed, and cases after which stderr tells how far it is."""
Digests = tuple[str, str]


def drawn_call(operator: str, number: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return shapes and attributes of a legal random call, and options of :func:`npu_sim.run`."""
    random, declared = np.random.default_rng(number), load_operator(operator)
    least = 2 ** random.uniform(0, LEAST_BITS)
    for attempt in range(ATTEMPTS):
        values = sizes_repeated(random, operator, values_of(random, operator, largest(random)))
        attributes = drawn_attributes(random, operator)
        options = device_of(random, operator) | {
            "deterministic": bool(random.integers(2)),
            "limits": "hardware",
        }
        try:
            call = {**attributes, **call_with(declared, values, attributes=attributes)}
            if fits(call, values, least if attempt < ATTEMPTS // 2 else 0):
                npu_sim.plan(operator, **call, **options)
                order = {"core_order": draw(random, CORE_ORDERS), "seed": number}
                return call, options | order
        except (npu_sim.NpuSimError, ValueError):
            continue
    raise RuntimeError(f"{operator}: no legal call among {ATTEMPTS}, case {number}")


def largest(random: np.random.Generator) -> int:
    return 1 << int(random.integers(2, MOST_SIZE_BITS + 1))


def sizes_repeated(
    random: np.random.Generator, operator: str, values: dict[str, Any]
) -> dict[str, Any]:
    """Give some axes the size of another, or 1: some operators take sizes that agree only."""
    numbers = [axis.name for axis in load_operator(operator).axes if isinstance(axis, Number)]
    sizes = [1, *(values[name] for name in numbers)]
    changed = {name: draw(random, sizes) for name in numbers if random.random() < 0.4}
    return {**values, **changed}


def drawn_attributes(random: np.random.Generator, operator: str) -> dict[str, Any]:
    """Return values of attributes that are no axes: small integers, numbers near the default."""
    declared = load_operator(operator)
    axes = {axis.name for axis in declared.axes}
    found: dict[str, Any] = {}
    for attribute in declared.attributes:
        if attribute.name not in axes and random.random() < 0.3:
            found |= drawn_attribute(random, attribute)
    return found


def drawn_attribute(random: np.random.Generator, attribute: Attribute) -> dict[str, Any]:
    if attribute.kind is int:
        return {attribute.name: int(random.integers(-2, 10))}
    if attribute.kind is float:
        return {attribute.name: attribute.default * float(random.uniform(0, 1.5))}
    return {}


def fits(call: dict[str, Any], values: dict[str, Any], least: float) -> bool:
    elements = sum(spec.numel for spec in call.values() if isinstance(spec, TensorSpec))
    sizes = [max(value, 1) for value in values.values() if isinstance(value, int)]
    return least <= elements <= MOST_ELEMENTS and np.prod(sizes, dtype=float) <= MOST_WORK


def digests(operator: str, number: int) -> Digests:
    """Return the digests of the inputs and of the results of a case."""
    call, options = drawn_call(operator, number)
    random = np.random.default_rng(number)
    tensors = disturbed(
        random, generate(operator, arguments_of(load_operator(operator), call), number)
    )
    attributes = {name: value for name, value in call.items() if not isinstance(value, TensorSpec)}
    inputs = digest([*tensors.values(), in_words(attributes | options)])
    refusal = ""
    for place in (partial(anywhere, random), plain):  # some operators take contiguous arrays alone
        placed = {name: place(array, False) for name, array in tensors.items()}
        run = partial(npu_sim.run, operator, **attributes, **placed, **options)
        try:
            result = run()
            if random.random() < 0.5:
                result = run(out=tuple(place(one, True) for one in result.outputs.values()))
        except npu_sim.NpuSimError as error:
            refusal = digest([type(error).__name__, getattr(error, "argument", "")])
            continue
        masks = [mask.mask for mask in result.order_dependent.values()]
        caveats = sorted(caveat.code for caveat in result.caveats)
        return inputs, digest([*result.outputs.values(), *masks, caveats])
    return inputs, refusal


def in_words(arguments: dict[str, Any]) -> str:
    shown = arguments | {"product": arguments["product"].product.name}
    return ", ".join(f"{name}={value}" for name, value in shown.items())


def anywhere(random: np.random.Generator, array: np.ndarray, written: bool) -> np.ndarray:
    """Return a copy in a random layout, next to an inaccessible page."""
    return guarded(array, bool(random.integers(2)), draw(random, LAYOUTS), written)


def plain(array: np.ndarray, written: bool) -> np.ndarray:
    """Return a contiguous copy of an array, next to an inaccessible page."""
    return guarded(array, True, written=written)


def digest(values: list[Any]) -> str:
    """Return a digest of arrays, whose nan are all the same, and of what prints the same."""
    found = blake2b(digest_size=8)
    for value in values:
        found.update(plain_bytes(value) if isinstance(value, np.ndarray) else repr(value).encode())
    return found.hexdigest()


def plain_bytes(array: np.ndarray) -> bytes:
    native = array.astype(array.dtype.newbyteorder("="))
    if native.dtype.kind in "biu":
        return native.tobytes()
    return np.where(np.isnan(native), 1, bits_of(native)).tobytes() + np.isnan(native).tobytes()


def digests_of_mode(operator: str, numbers: range, mode: str) -> Iterator[tuple[int, Digests]]:
    """Yield the digests of cases, computed by another process in a mode."""
    command = [sys.executable, __file__, operator, "--print", f"{numbers.start}:{numbers.stop}"]
    coming = numbers.start
    with subprocess.Popen(
        command, env=os.environ | MODES[mode], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            number, inputs, results = line.split()
            coming = int(number) + 1
            if coming % TOLD == 0 or coming == numbers.stop:
                print(f"  {mode}: case {coming} of {numbers.stop}", file=sys.stderr, flush=True)
            yield int(number), (inputs, results)
    if process.returncode:
        sys.exit(f"{mode}: the process ended with {process.returncode} in case {coming}")


def compare(operator: str, expected: dict[int, Digests], mode: str) -> int:
    """Compare a mode with expected digests, print what differs; return how many cases do."""
    differing = 0
    numbers = range(min(expected), max(expected) + 1)
    for number, found in digests_of_mode(operator, numbers, mode):
        if found == expected[number]:
            continue
        differing += 1
        if differing <= SHOWN:
            what = "results" if found[0] == expected[number][0] else "inputs"
            call, options = drawn_call(operator, number)
            words = in_words(call | options)
            print(f"case {number}, {mode}: other {what}: {words}", flush=True)
    print(f"{mode}: {differing} of {len(expected)} cases differ", flush=True)
    return differing


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("operator", choices=NAMES, metavar="OPERATOR")
    task = parser.add_mutually_exclusive_group(required=True)
    task.add_argument("--write", type=Path, metavar="FILE", help="write the digests")
    task.add_argument("--compare", type=Path, metavar="FILE", help="compare with these digests")
    task.add_argument("--print", metavar="FIRST:END", help="print the digests of these cases")
    parser.add_argument("--cases", type=int, default=1000, help="number of cases to write")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--modes", nargs="+", choices=list(MODES), default=list(MODES))
    return parser.parse_args()


def main() -> None:
    """Write, compare or print digests."""
    options = parsed()
    if options.print:
        for number in range(*map(int, options.print.split(":"))):
            print(number, *digests(options.operator, number), flush=True)
        return
    print(f"npu_sim of {Path(npu_sim.__file__).parent}", file=sys.stderr)
    if options.write:
        numbers = range(options.first, options.first + options.cases)
        found = dict(digests_of_mode(options.operator, numbers, "default"))
        write_text(options.write, json.dumps({options.operator: found}) + "\n")
        return
    written = json.loads(options.compare.read_text(encoding="utf-8"))[options.operator]
    expected = {int(number): tuple(pair) for number, pair in written.items()}
    sys.exit(sum(compare(options.operator, expected, mode) for mode in options.modes) > 0)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted: nothing was written")
