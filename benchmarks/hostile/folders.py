"""Trials on files and folders that come back from elsewhere: damaged parts, links and pipes.

Whatever they hold, a reader answers or refuses them in time, and writes nothing beside the folder.
"""

import json
import os
import re
import signal
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import npu_sim
from benchmarks.hostile.campaign import Trial, damaged, draw
from tests.measured import EMBEDDING, GRAD, OTHER, write_csv, write_data_base, write_database
from tests.tools.device_kit.test_ttk import CALLS as CASES
from tests.tools.device_kit.test_ttk import result
from tests.tools.device_kit.test_untrusted import CALLS, played
from tests.tools.dumps.msprobe import write_model
from tests.tools.failures.test_unseen_texts import UNSEEN

Random = np.random.Generator
SOC = "Ascend910B3"
SECONDS = 60
"""A trial that takes longer hangs."""
VICTIM = "mine"
"""Content of a file beside the folder."""
ODD = (None, True, -1, 0, 1.5, 1e308, float("nan"), 2**31, 2**63, 10**30, "", "x", "../victim")
ODD += ("/etc/passwd", "$(touch pwned)", "\x1b[2J", "\ud800", "1" * 5000, [], {}, [[]], [1, "x"])
ODD_WORDS = (
    b"-1",
    b"0",
    b"nan",
    b"1e400",
    b"9" * 30,
    b"",
    b"\xff",
    b'"',
    b",",
    b";",
    b"DT_X",
    b"\0",
)
WORDINGS = (
    "An error occurs on the device(chipId:0, dieId:0), the serial number is 3, the error is aivec "
    "error, core id is 7, error code = 0, dump info: pc start: 0x12.\nThe extend info: errcode:(0, "
    "0x8000, 0) errorStr: the ub address out of bounds. subErrType:4.",
    "call aclnnSwiGlu failed, error code is 561002\nEZ9999: Inner Error!\nEZ9999[PID: 9] "
    "2026-01-01-10:00:00.000.000 (EZ9999):  op[SwiGlu], attr[dim] 7 is wrong.[FUNC:f][FILE:swi_glu_"
    "tiling.cpp][LINE:8]",
    "[PID: 31] 2026-01-01-10:00:00.618.062 Invalid_Argument(EE1003): KernelLaunch failed because "
    "value 70000 for parameter blockDim is invalid. Expected value: less than or equal to 65535.",
    "call aclnnRmsNorm failed, error code is 161002\n[PID: 7] 2026-01-01-10:00:00.000.000 "
    "AclNN_Parameter_Error(EZ1001): Io input dtype or format is not supported, get io input info "
    "is x(DT_BFLOAT16, ND) gamma(DT_BFLOAT16, ND) but supported list is:\nx(DT_FLOAT16, ND) "
    "gamma(DT_FLOAT16, ND)",
    "[ASSERT] [CANN_VERSION : 8.1.RC1][TimeStamp : 0] /x/gather_v3/gather_v3_base.h:137: Assertion "
    "`(0 <= val && val < this->gxSize_)' Index 1200 out of range[0 1200)!",
    "[ERROR] OP(29,w):2026-01-01-10:00:00.000.001 [x_tiling.cpp:9][OP][Check][33] OpName:[RmsNorm] "
    '"[5, 2] can not be tiled to [6, 2]"\nerrno[561000] OpName:[aclnnRmsNorm_52] failed, [7]',
    "(WorkerDict pid=20, ip=10.0.0.9) [rank50]: aclnnRmsNormGradGetWorkspaceSize failed. ERROR: "
    "161002\nFault RAS occurs in the system: [event_id:0x80e01801]",
)
"""Sentences of newer releases."""
Folder = dict[str, bytes]
"""Contents of files by their paths in a folder."""


def _calls(path: Path, calls: tuple[dict[str, Any], ...]) -> None:
    path.write_text("".join(json.dumps(call) + "\n" for call in calls), encoding="utf-8")


def _kit(place: Path) -> None:
    played(place, *CALLS)


def _cases(place: Path) -> None:
    calls = place.with_suffix(".calls.jsonl")
    _calls(calls, CASES)
    npu_sim.kit(calls, ttk=place)
    result(place, ["PASS", "FAIL", *["PASS"] * len(CASES)])


def _profile(place: Path) -> None:
    rows = [GRAD, *EMBEDDING, OTHER]
    write_csv(place / "kernel_details.csv", rows)
    write_database(place / "msprof.db", rows)


def _tables(place: Path) -> None:
    place.rmdir()
    write_data_base(place, [GRAD, *EMBEDDING, OTHER])


def _sweep(place: Path) -> None:
    grid = {"row": range(1, 9), "col": (64, 4096), "dtype": ("float32", "bfloat16")}
    npu_sim.sweep_to(place / "sweep", "rms_norm", grid)


def _dump(place: Path) -> None:
    write_model(place / "step0" / "rank0", "statistics")


def _preflight(place: Path) -> None:
    _calls(place / "calls.jsonl", (*CALLS, *CASES))


def _texts(place: Path) -> None:
    for number, text in enumerate((*WORDINGS, *(case[1] for case in UNSEEN))):
        (place / f"{number}.txt").write_text(text, encoding="utf-8")


def _read_any(read: Callable[[Path], Any]) -> Callable[[Path, Random], Any]:
    """Return a reader of one file of the folder."""
    return lambda place, random: read(draw(random, _all_files(place) or [place]))


def _read_dump(place: Path, random: Random) -> Any:
    against = place if random.random() < 0.3 else None
    return npu_sim.read_dump(place, against=against, soc=SOC)


def _read_sweep(place: Path, random: Random) -> Any:
    saved = npu_sim.read_sweep(place / "sweep")
    return saved.to_pandas() if random.random() < 0.1 else saved


READERS: dict[str, tuple[Callable[[Path], None], Callable[[Path, Random], Any]]] = {
    "kit": (_kit, lambda place, random: npu_sim.check_kit(place)),
    "cases": (_cases, lambda place, random: npu_sim.check_kit(place)),
    "profile_file": (_profile, _read_any(lambda path: npu_sim.read_profile(path, soc=SOC))),
    "profile_folder": (_tables, lambda place, random: npu_sim.read_profile(place, soc=SOC)),
    "dump": (_dump, _read_dump),
    "sweep_folder": (_sweep, _read_sweep),
    "calls": (_preflight, _read_any(npu_sim.preflight)),
    "text": (_texts, _read_any(npu_sim.diagnose)),
}
"""By the name of a trial: what writes an undamaged folder, and what reads it."""


@cache
def undamaged(kind: str) -> Folder:
    """Return the files of a folder, written once in a process."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name) / "place"
        place.mkdir()
        READERS[kind][0](place)
        return {str(path.relative_to(place)): path.read_bytes() for path in _all_files(place)}


def _all_files(place: Path) -> list[Path]:
    return sorted(path for path in place.rglob("*") if path.is_file())


def changed_json(random: Random, content: bytes) -> bytes:
    """Replace, leave out or repeat values of a JSON document, or of a line of several."""
    lines = content.split(b"\n") if b"}\n{" in content else [content]
    number = int(random.integers(len(lines)))
    try:
        value = json.loads(lines[number])
    except ValueError:
        return damaged(random, content)
    node = value
    while isinstance(node, dict | list) and node:
        key = draw(random, list(node) if isinstance(node, dict) else range(len(node)))
        inner = node[key]
        if not isinstance(inner, dict | list) or not inner or random.random() < 0.3:
            match int(random.integers(4)):
                case 0:
                    del node[key]
                case 1 if isinstance(node, dict):
                    node[draw(random, ("soc", "x", "shape", ""))] = node.pop(key)
                case _:
                    node[key] = draw(random, ODD)
            break
        node = inner
    lines[number] = json.dumps(value).encode("utf-8", "replace")
    return b"\n".join(lines)


def changed_text(random: Random, content: bytes) -> bytes:
    """Replace a word or number of a table or of a text."""
    words = list(re.finditer(rb"[\w.+-]+", content))
    if not words:
        return damaged(random, content)
    word, other = draw(random, words), draw(random, words)
    new = draw(random, (*ODD_WORDS, other[0]))
    return content[: word.start()] + new + content[word.end() :]


def changed_database(random: Random, path: Path) -> None:
    """Replace a value of every row, or a row, or leave a table out."""
    with closing(sqlite3.connect(path)) as database, database:
        tables = database.execute("SELECT name FROM sqlite_master").fetchall()
        (table,) = draw(random, tables)
        columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
        column, value = draw(random, columns), draw(random, (None, -1, 2**62, 1e308, "x", b"\xff"))
        some = "" if random.random() < 0.5 else f" WHERE rowid % 3 = {int(random.integers(3))}"
        match int(random.integers(4)):
            case 0:
                database.execute(f"DELETE FROM {table}{some}")
            case 1:
                database.execute(f"ALTER TABLE {table} RENAME COLUMN {column} TO other")
            case _:
                database.execute(f"UPDATE {table} SET {column} = ?{some}", (value,))


def replace(random: Random, path: Path) -> None:
    """Put a link, a pipe, a folder or nothing in the place of a file."""
    path.unlink()
    match int(random.integers(5)):
        case 0:
            os.mkfifo(path)
        case 1:
            path.mkdir()
        case 2:
            places = (
                "../victim",
                "/dev/zero",
                "/nowhere",
                path.name,
                "../../victim",
                "/etc/passwd",
            )
            path.symlink_to(draw(random, places))
        case 3:
            path.write_bytes(b"")


CHANGES = {
    ".json": changed_json,
    ".jsonl": changed_json,
    ".csv": changed_text,
    ".txt": changed_text,
}
"""By the ending of a file: what changes it so that it stays one of its form."""


def changed(random: Random, place: Path) -> None:
    """Change one to three files of a folder, or put links where a reader writes."""
    for _ in range(int(random.integers(1, 4))):
        paths = [path for path in _all_files(place) if not path.is_symlink()]
        if not paths:
            return
        path = draw(random, paths)
        if random.random() < 0.1:
            replace(random, path)
        elif path.suffix == ".db" and path.stat().st_size and random.random() < 0.7:
            with suppress(sqlite3.Error):  # damaged before
                changed_database(random, path)
        else:
            change = CHANGES.get(path.suffix, damaged) if random.random() < 0.7 else damaged
            path.write_bytes(change(random, path.read_bytes()))
    if random.random() < 0.1:
        link = place / draw(random, ("evidence.jsonl", "results", "report.html", "sweep.json"))
        if not link.exists() and not link.is_symlink():
            link.symlink_to("../victim")


@contextmanager
def in_time() -> Iterator[None]:
    """End a block that takes too long with a TimeoutError."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"longer than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _trial(kind: str) -> Trial:
    """Return the trial that reads a damaged folder of a kind."""

    def trial(random: Random) -> bool:
        with tempfile.TemporaryDirectory() as name:
            outside, place = Path(name), Path(name) / "place"
            (outside / "victim").write_text(VICTIM, encoding="utf-8")
            files = undamaged(kind)
            if kind == "text":
                files = {chosen: files[chosen] for chosen in [draw(random, list(files))]}
            for path, content in files.items():
                (place / path).parent.mkdir(parents=True, exist_ok=True)
                (place / path).write_bytes(content)
            changed(random, place)
            try:
                with in_time():
                    answer = READERS[kind][1](place, random)
                    text = str(answer)
                    if hasattr(answer, "as_dict"):
                        json.dumps(answer.as_dict())
            finally:
                assert {path.name for path in outside.iterdir()} == {"place", "victim"}
                assert (outside / "victim").read_text(encoding="utf-8") == VICTIM
            return bool(text)

    return trial


FOLDERS = {kind: _trial(kind) for kind in READERS}
