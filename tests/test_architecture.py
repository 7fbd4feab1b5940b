"""The architecture: no import cycles, one order of packages, no module reached by name against it.

`lint-imports` checks imports between packages (`[tool.importlinter]`, pyproject.toml). These tests
also cover what it does not see: cycles inside a package, and modules named in strings.
"""

import ast
import importlib
import json
import re
import subprocess
import sys
import tomllib
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import npu_sim
from npu_sim.registry import OPERATORS

PACKAGE = Path(npu_sim.__file__).parent
ROOT = Path(__file__).parents[1]
PYPROJECT = ROOT / "pyproject.toml"
FILES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in PACKAGE.rglob("*.py")
}
MODULES = {name: path for name, path in FILES.items() if path.name != "__init__.py"}


@cache
def parsed(name):
    """What a module imports, its texts, and names in it that not every system has."""
    tree = ast.parse(FILES[name].read_text(encoding="utf-8"))
    return imported(name, tree), set(texts_in_code(tree)), set(posix_only(tree))


LOADERS = {
    "npu_sim.registry": "names the entry point group of other packages; loads nothing",
    "npu_sim.tool_packages": "lists and loads the tools that are there",
    "npu_sim.plans.answers": "loads the text and HTML of an answer when it is printed",
}
"""Modules that may name a package above their own, because they load modules by name."""

KNOWS_OPERATORS = {
    "npu_sim.registry": "the list of operators",
    "npu_sim.cli.commands.demo": "the demonstration of one operator",
    "npu_sim.tools.device_kit.run_on_device": "the torch call of every operator, for the device",
    "npu_sim.tools.device_kit.simulated_device": "PyTorch's own names that it replaces",
    "npu_sim.tools.device_kit.ttk.cases": "what the vendor's test kit calls inputs and outputs",
    "npu_sim.cli.commands.preflight": "an example in the help",
    "npu_sim.cli.commands.emulate": "an example in the help",
    "npu_sim.torch.experts": "the two operators that route the tokens of experts",
}
"""Modules of no operator that name one, and why."""


def imported(name, tree):
    """Modules that a module imports, including imports in functions and for type checkers."""
    found = set()
    package = name.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*(above if node.level else []), *filter(None, [node.module])])
            found.update({base, *(f"{base}.{one.name}" for one in node.names)})
    return found & MODULES.keys() - {name}


def test_there_are_no_import_cycles():
    TopologicalSorter({name: parsed(name)[0] for name in MODULES}).prepare()  # raises CycleError


PLANS = """
import sys
import npu_sim
for product in ("atlas_a2", "ascend_950"):
    npu_sim.plan("rms_norm", x="64x128:bf16", gamma="128:bf16", product=product).as_dict()
print("numba" in sys.modules)
"""


def test_a_plan_imports_no_kernels_on_any_family():
    printed = subprocess.run(
        [sys.executable, "-c", PLANS], capture_output=True, text=True, check=True
    )
    assert printed.stdout.strip() == "False"


def levels():
    """The level of every package, 0 at the top, as the contract in pyproject.toml has them."""
    configuration = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))
    layers = configuration["tool"]["importlinter"]["contracts"][0]["layers"]
    return {
        package.strip(): level
        for level, line in enumerate(layers)
        for package in re.split("[|:]", line)
    }


def texts_in_code(tree):
    """Strings outside docstrings, f-strings with ``*`` in place of their fields, and names."""
    docstrings = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "*" for part in node.values)
            yield "".join(parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) not in docstrings:
                yield node.value
        elif isinstance(node, ast.Name | ast.Attribute):
            yield node.id if isinstance(node, ast.Name) else node.attr


def packages_named_in_strings(name):
    """Packages in strings that name a module, a part of one, or an object in it."""
    for text in parsed(name)[1]:
        if re.fullmatch(r"npu_sim(\.[\w*]+)+\.?(:[\w*]+)?", text):
            yield text.split(".")[1].partition(":")[0]


def test_no_module_reaches_up_by_name():
    level = levels()
    upwards = {
        name
        for name in FILES.keys() - {"npu_sim"}
        for named in packages_named_in_strings(name)
        if named in level and level[named] < level[name.split(".")[1]]
    }
    assert upwards == LOADERS.keys()


@pytest.mark.parametrize("entry", OPERATORS, ids=lambda entry: entry.name)
def test_the_registry_finds_every_declaration(entry):
    module = importlib.import_module(f"npu_sim.operators.{entry.name}.declaration")
    assert module.OPERATOR.name == entry.name


@pytest.mark.parametrize("name", [*npu_sim.__all__, "aclnn", "study"])
def test_the_package_finds_every_public_name(name):
    assert getattr(npu_sim, name) is not None


def test_no_generic_module_names_an_operator():
    names = {name for entry in OPERATORS for name in (entry.name, entry.title, *entry.kernels)}
    own = {entry.name.removesuffix("_grad").removesuffix("_backward"): entry for entry in OPERATORS}
    generic = [
        name
        for name in FILES
        if not any(part.startswith(one) for part in name.split(".") for one in own)
        and not name.startswith("npu_sim.operators.")
    ]
    knowing = {
        name for name in generic if any(one in text for text in parsed(name)[1] for one in names)
    }
    assert knowing == KNOWS_OPERATORS.keys()


SWEEP_CODE = """
import npu_sim
from npu_sim.framework.row_planner import row_planner
npu_sim.plan("rms_norm_grad", dy="64x512:bf16", gamma="512:bf16").decisions
print(row_planner.cache_info().currsize)
"""


def test_a_plan_writes_no_code_of_sweeps():
    command = [sys.executable, "-c", SWEEP_CODE]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "0\n"


ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
MOST_MODULES = {"call": 70, "plan": 68}
MOST_FRAMES = 25
"""npu_sim's own frames between the public function and a kernel."""
TRACE = """
import inspect, json, sys, tempfile
import numpy as np
import npu_sim

entered, depths = {}, []

def profile(frame, event, _):
    name = frame.f_globals.get("__name__", "")
    if event != "call" or not name.startswith("npu_sim"):
        return
    code = frame.f_code
    if not code.co_flags & inspect.CO_OPTIMIZED:  # the body of a class or module
        return
    if code.co_filename == "<string>":  # dataclasses generate methods while a module is imported
        return
    entered.setdefault(name)
    if frame.f_code.co_qualname == "Kernel.over":
        depth = 0
        while frame is not None:
            depth += frame.f_globals.get("__name__", "").startswith("npu_sim")
            frame = frame.f_back
        depths.append(depth)

def call(rows):
    npu_sim.embedding_dense_backward(np.ones((rows, 8), np.float32), np.zeros(rows, np.int32), 5)

def plan(rows):
    tensors = ["--grad", f"{rows}x8:fp32", "--indices", f"{rows}:int32", "--num-weights", "5"]
    command("plan", "embedding_dense_backward", *tensors)

def sweep(rows):
    grid = ["--grid", f"rows=1..{rows}"]
    with tempfile.TemporaryDirectory() as folder:
        command("sweep", "embedding_dense_backward", *grid, "--out", f"{folder}/plans")

def command(*arguments):
    from npu_sim.__main__ import main
    sys.argv = ["npu-sim", *arguments]
    try:
        main()
    except SystemExit as end:
        assert not end.code

work = {"call": call, "plan": plan, "sweep": sweep}[sys.argv[1]]
if work is not sweep:  # the first sweep also compiles its planner, which is part of its path
    work(4)
modules = [name for name in sys.modules if name.startswith("npu_sim")]
sys.setprofile(profile)
work(6)
sys.setprofile(None)
print(json.dumps([modules, list(entered), depths]))
"""


@pytest.fixture(
    scope="module", params=["call", "plan", pytest.param("sweep", marks=pytest.mark.long)]
)
def way(request):
    """Kind of a call, modules it imports, modules it enters in order, and depths at kernels."""
    command = [sys.executable, "-c", TRACE, request.param]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return request.param, *json.loads(printed.splitlines()[-1])


def test_a_call_imports_few_modules(way):
    kind, modules, _, _ = way
    if kind in MOST_MODULES:
        assert len(modules) <= MOST_MODULES[kind], modules


def test_few_frames_lie_between_a_function_and_its_kernels(way):
    kind, _, _, depths = way
    assert bool(depths) == (kind == "call")
    assert all(depth <= MOST_FRAMES for depth in depths)


def test_the_page_lists_modules_in_the_order_of_the_call(way):
    kind, _, entered, _ = way
    title = {
        "call": "## `npu_sim.embedding",
        "plan": "## `npu-sim plan",
        "sweep": "## `npu-sim sweep",
    }[kind]
    section = ARCHITECTURE.partition(title)[2].partition("\n## ")[0]
    listed = re.findall(r"^\d+\. `(npu_sim[\w.]*)`", section, re.MULTILINE)
    assert len(listed) > 8
    assert listed == sorted(listed, key=entered.index)


def test_the_page_names_modules_that_exist():
    named = re.findall(r"`(npu_sim\.[a-z_.]+)`", ARCHITECTURE)
    assert set(named) - {"npu_sim.prepare"} <= FILES.keys()


def test_the_page_lists_the_packages_in_the_order_of_the_contract():
    block = ARCHITECTURE.partition("```text\n")[2].partition("```")[0]
    listed = [package for line in block.splitlines() for package in line[:37].split()]
    level = levels()
    assert {*listed} == level.keys() - {"__main__"}
    assert listed == sorted(listed, key=lambda package: level[package])


@pytest.mark.parametrize(
    "page", ["CONTRIBUTING.md", "docs/architecture.md", "docs/add_an_operator.md"]
)
def test_pages_for_developers_name_files_that_exist(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    paths = set(re.findall(r"`([\w.]+(?:/[\w<>.*]+)+/?)`", text))
    patterns = {path: re.sub("<[a-z]+>", "*", path).rstrip("/") for path in paths}
    found = {path for path in paths for top in (ROOT, PACKAGE) if any(top.glob(patterns[path]))}
    assert len(paths) > 10
    assert paths - found == set()


POSIX_MODULES = {"fcntl", "grp", "posix", "pwd", "resource", "termios"}
POSIX_NAMES = {
    *("fork", "register_at_fork", "sched_getaffinity", "mkfifo", "fchmod", "chown", "umask"),
    *("getuid", "geteuid", "O_NOFOLLOW", "O_NONBLOCK", "O_TMPFILE"),
    *("dir_fd", "src_dir_fd", "dst_dir_fd"),
}


def posix_only(tree):
    """Names and paths in a module that not every system has, or that mean nothing on some."""
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name.partition(".")[0] for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(alias.name for alias in node.names)]
        elif isinstance(node, ast.Attribute):
            names = [node.attr] if getattr(node.value, "id", None) == "os" else []
        elif isinstance(node, ast.keyword):
            names = [node.arg]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = [node.value]
        yield from (name for name in names if name in POSIX_MODULES | POSIX_NAMES)
        yield from (name for name in names if name and name.startswith("/proc"))


def test_one_module_uses_what_only_some_systems_have():
    """It imports nothing that some systems lack; where it uses more, it first asks for it."""
    found = {name: parsed(name)[2] for name in FILES}
    del found["npu_sim.tools.device_kit.run_on_device"]  # a script for the device, which has Linux
    assert {name for name, names in found.items() if names} == {"npu_sim.system"}
    assert not found["npu_sim.system"] & POSIX_MODULES


OPENING = {
    *("open", "fdopen", "read_text", "read_bytes", "write_text", "write_bytes", "open_memmap"),
    *("memmap", "fromfile", "tofile", "ZipFile", "TarFile", "connect", "FileIO"),
}
"""Names of functions and methods that open files."""
NUMPY = {"load", "save", "savez", "savez_compressed", "loadtxt", "savetxt", "genfromtxt"}
SAFE = {"writing", "files.writing", "webbrowser"}
"""What has functions of such names that open no file, or open it safely."""
SHIPPED = "reads what ships with the package"
OPENS_FILES = {
    "npu_sim.system": "implements the safe writing",
    "npu_sim.__main__": "opens the null device in place of a closed stream",
    "npu_sim.cli.printing": "opens the null device in place of an output that takes nothing",
    "npu_sim.cores": SHIPPED,
    "npu_sim.plans.device_evidence": SHIPPED,
    "npu_sim.show.forms.html": SHIPPED,
    "npu_sim.language.text": SHIPPED,
    "npu_sim.cli.commands.new_operator": SHIPPED,
    "npu_sim.studies.caveats": SHIPPED,
    "npu_sim.tools.explorer.application": SHIPPED,
    "npu_sim.tools.device_kit.folder": SHIPPED,
    "npu_sim.functions": "a file of calls may be a pipe that the user names",
    "npu_sim.cli.commands.preflight": "appends to the summary of a CI job",
    "npu_sim.kernels.engine.cache": "its own cache of compiled code",
    "npu_sim.sweeps.reader": "maps columns into memory",
    "npu_sim.sweeps.writers": "writes columns in place, in a folder that it has checked",
    "npu_sim.tools.dumps.msprobe": "an archive within a file that was opened safely",
    "npu_sim.tools.profiles.reader": "a data base within a file that was checked",
    "npu_sim.tools.device_kit.run_on_device": "a script that runs without npu_sim",
    "npu_sim.tools.device_kit.simulated_device": "writes the profile that the script asks for",
    "npu_sim.tools.device_kit.rehearsal": SHIPPED,
}
"""Modules that open files otherwise than through :mod:`npu_sim.files`, and why."""


def opens(tree):
    """Calls in a module that open a file without the safe functions."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        if isinstance(function, ast.Name) and function.id in OPENING - {"write_text"}:
            yield function.id
        elif isinstance(function, ast.Attribute):
            owner = ast.unparse(function.value)
            if (function.attr in OPENING and owner not in SAFE) or (
                function.attr in NUMPY and owner in ("np", "numpy")
            ):
                yield function.attr


def test_files_are_opened_through_the_safe_functions():
    """Files of others may be pipes, links, endless or damaged."""
    found = {
        name: sorted({*opens(ast.parse(path.read_text("utf-8")))}) for name, path in FILES.items()
    }
    others = {
        name: calls
        for name, calls in found.items()
        if calls and not name.startswith("npu_sim.files.")
    }
    assert others.keys() == OPENS_FILES.keys(), others
