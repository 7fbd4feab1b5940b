"""Writing of cases for the vendor's operator test kit: ``cases.csv`` and the data beside it.

Source: specification page ``ttk``.
"""

import csv
import io
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

from npu_sim.cores import Profile, load_profile
from npu_sim.files.writing import write_atomically, write_text
from npu_sim.language import Text, Verbatim, translated
from npu_sim.numbers.arrays import Array
from npu_sim.plans.answers import Progress
from npu_sim.status import UsageError
from npu_sim.tools.device_kit.answers import Kit
from npu_sim.tools.device_kit.choice import KitCall, chosen_calls
from npu_sim.tools.device_kit.lines import CALLS_FILE, README, given_calls, new_folder, no_calls
from npu_sim.tools.device_kit.results import Line
from npu_sim.tools.device_kit.run_on_device import digest_of
from npu_sim.tools.device_kit.ttk.cases import KERNELS, Case, line_of_case

SCHEMA = "npu_sim.ttk_kit/1"
CASES_FILE, RESULT_FILE, DATA = "cases.csv", "result.csv", "data"
MOST_CASES = 100
DEFAULT_SOC = "Ascend950PR_9589"
"""SoC of the vendor's simulator."""
OTHER_CALL = "{operator} has no kernel that the operator test kit runs"
COLUMNS = (
    "testcase_name",
    "op_name",
    "input_shapes",
    "input_dtypes",
    "input_formats",
    "output_shapes",
    "output_dtypes",
    "output_formats",
    "attributes",
    "input_data_ranges",
    "is_enabled",
    "remark",
)


@dataclass(frozen=True, repr=False)
class TtkKit(Kit):
    """A written folder of cases; ``calls`` counts them by kernel."""

    @property
    def command(self) -> str:
        """The command that runs the cases, in the folder of the operator test kit, in lines."""
        return _in_lines(command_parts(Path(self.folder).resolve()))


def _in_lines(parts: Iterable[str]) -> str:
    """Return a command with every part in a line of its own, as a shell continues it."""
    return " \\\n    ".join(parts)


def command_parts(folder: Path) -> tuple[str, ...]:
    """Return the command that runs the cases of a folder in the vendor's simulator, in parts."""
    cases, data, result = (quote(str(folder / name)) for name in (CASES_FILE, DATA, RESULT_FILE))
    return (
        "python3 -m ttk kernel --backend npusim --sim-cores all --compare binary",
        f"-i {cases}",
        f"--manual-data-dirs {data}",
        f"-o {result}",
    )


def write_cases(
    calls: Path | None, soc: str | None, release: str | None, out: Path, report: Progress
) -> TtkKit:
    """Write a folder for the vendor's operator test kit; see :func:`npu_sim.kit`."""
    profile = load_profile(None, soc or DEFAULT_SOC, release)
    simulated = load_profile(None, DEFAULT_SOC)
    if profile.name != simulated.name:
        raise UsageError(
            "soc",
            "{soc}: the operator test kit simulates Ascend 950 only",
            "leave soc out, or name one of {names}",
            soc=profile.soc,
            names=", ".join(simulated.product.socs),
        )
    folder = new_folder(out)
    left_out: list[str] = []
    if calls is None:  # calls that are no case are not missed
        cases = [*_cases(chosen_calls(profile, report, tuple(KERNELS)), profile, [])]
    else:
        given = given_calls(calls, KERNELS, OTHER_CALL, left_out)
        cases = [*_cases(given, profile, left_out)]
    if not cases:
        problem = Text("{soc}: no call whose kernel the operator test kit runs", soc=profile.soc)
        raise no_calls(problem, KERNELS, left_out)
    text = "".join(line + "\n" for line, _ in cases)
    identity = digest_of(f"{profile.soc} {profile.release}\n{text}".encode())
    folder.mkdir(exist_ok=True)
    (folder / DATA).mkdir()
    for done, (_, case) in enumerate(cases):
        report("writing cases", done / len(cases))
        _write_data(folder / DATA / name_of(case, identity), case)
    head = {"schema": SCHEMA, "soc": profile.soc, "release": profile.release, "kit": identity}
    write_text(folder / CASES_FILE, _table([case for _, case in cases], identity))
    write_text(folder / CALLS_FILE, text)
    write_text(folder / README, readme(profile, len(cases)))
    write_text(folder / "kit.json", json.dumps(head, indent=1) + "\n")
    return TtkKit(
        folder=str(out),
        soc=profile.soc,
        release=profile.release,
        calls=Counter(case.kernel for _, case in cases),
        bytes=sum(case.bytes for _, case in cases),
        left_out=tuple(left_out),
    )


def _cases(
    chosen: Iterable[KitCall], profile: Profile, left_out: list[str]
) -> Iterator[tuple[str, Case]]:
    """Yield line and case of each call that is one; reasons of others go into ``left_out``."""
    number = 1
    for call in chosen:
        text = json.dumps(line_of_case(number, call, profile))
        case = Case(Line.model_validate_json(text), profile)
        reason = case.left_out() if number <= MOST_CASES else Text("more than 100 cases")
        if not reason:
            number += 1
            yield text, case
        else:
            text = "{operator} {arguments}: {reason}"
            operator, arguments = case.line.operator, case.arguments
            left_out.append(Text(text, operator=operator, arguments=arguments, reason=reason))


def name_of(case: Case, identity: str) -> str:
    """Return the name of a case, which no other kit has."""
    return f"{case.line.operator}_{case.line.number:03d}_{identity[:8]}"


def _table(cases: Sequence[Case], identity: str) -> str:
    """Return ``cases.csv``."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(COLUMNS)
    for case in cases:
        outputs = [*case.outputs.values()]
        rows.writerow(
            (
                name_of(case, identity),
                case.kernel,
                *_described(case.inputs),
                *_described(outputs),
                case.attributes,
                tuple(map(_range, case.inputs)),
                1,
                case.remark,
            )
        )
    return text.getvalue()


def _described(arrays: Sequence[Array | None]) -> tuple[tuple[Any, ...], ...]:
    """Return shapes, dtypes and formats of tensors as Python literals."""
    return (
        tuple(None if array is None else array.shape for array in arrays),
        tuple(None if array is None else str(array.dtype) for array in arrays),
        tuple(None if array is None else "ND" for array in arrays),
    )


def _range(array: Array | None) -> tuple[float, float] | None:
    """Return the smallest and the largest number of an input."""
    if array is None or not array.size:
        return None if array is None else (0, 0)
    return array.min().item(), array.max().item()


def _write_data(folder: Path, case: Case) -> None:
    """Write inputs and expected outputs of a case, and nothing else, into a new folder."""
    folder.mkdir()
    for name, array in files_of(case).items():
        _write(folder / name, b"" if array is None else array.tobytes())


def _write(path: Path, content: bytes) -> None:
    write_atomically(path, lambda file: file.write(content))


def files_of(case: Case) -> dict[str, Array | None]:
    """Return the arrays of a case by the names of their files; None for an empty file."""
    files: dict[str, Array | None] = {
        f"input_{place}_{'none' if array is None else array.dtype}.bin": array
        for place, array in enumerate(case.inputs)
    }
    for place, name in enumerate(case.outputs):
        array = case.compared.get(name)
        files[golden_name(place, array)] = array
    return files


def golden_name(place: int, array: Array | None) -> str:
    """Return the name of the file of an expected output."""
    if array is None:
        return f"golden_{place}_none.bin"
    shape = "x".join(map(str, array.shape)) or "scalar"
    return f"golden_{place}_{array.dtype}__shape_{shape}.bin"


def readme(profile: Profile, count: int) -> str:
    """Return what whoever runs the cases has to know, in the user's language."""
    text = Text(
        "# Cases for the vendor's operator test kit\n"
        "\n"
        "This folder checks a simulator of Ascend NPU operators: {count} cases for an {soc}, "
        "release {release}, whose expected outputs are the simulator's bits. The operator test kit "
        "runs the vendor's own kernels on them, in the vendor's simulator or on a device.\n"
        "\n"
        "Run them where the vendor's toolkit (9.1 or later) and the operator package of Ascend 950 "
        "are installed, in the folder of the operator test kit, with the path of this folder for "
        "FOLDER:\n"
        "\n"
        "```sh\n"
        "{command}\n"
        "```\n"
        "\n"
        "- No device is needed. The simulator starts for half a minute a case.\n"
        "- With `--backend npu` in place of `--backend npusim --sim-cores all` the cases run on a "
        "device.\n"
        "- With `--dump-on-fail --dump-format npy` the kit also writes the outputs of cases that "
        "differ, into its own folder; move the files into FOLDER/dump, and they are judged element "
        "by element.\n"
        "- data/ has the inputs and expected outputs. Put nothing else into it: the kit refuses a "
        "case with other files.\n"
        "\n"
        "Then send result.csv (and dump/) back. There, with this folder, `npu-sim kit --check "
        "FOLDER` judges it.\n",
        count=count,
        soc=profile.soc,
        release=profile.release,
        command=Verbatim(_in_lines(command_parts(Path("FOLDER")))),
    )
    return translated(text)
