"""A run gives the same bits whatever happens to the files of compiled kernels."""

import hashlib
import os
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from npu_sim import system
from npu_sim.kernels.engine import cache as kernel_cache
from npu_sim.kernels.engine.compile import PLAIN
from tests.cases import every

pytestmark = pytest.mark.skipif(
    PLAIN, reason="kernels through Numba's public interface are not kept"
)
PROGRAM = """
import hashlib, numpy as np
from npu_sim.kernels.shared.elementwise import narrow_array
values = np.random.default_rng(1).standard_normal(100_003).astype(np.float32)
print(hashlib.sha256(narrow_array(values, "bfloat16").tobytes()).hexdigest())
"""


EVERY_OPERATOR = """
import sys
import numpy as np
from numba.core import event
import npu_sim

passes = event.RecordingListener()
event.register("numba:run_pass", passes)
rng = np.random.default_rng(0)
rows, ones = rng.standard_normal((8, 32), np.float32), np.ones(32, np.float32)
npu_sim.embedding_dense_backward(rows, np.arange(8) % 3, 5)
npu_sim.cross_entropy_loss_grad(np.float32(1), -np.abs(rows), np.arange(8))
npu_sim.rms_norm_grad(rows, rows, ones[:8], ones)
npu_sim.moe_token_permute_grad(rows, np.arange(8, dtype=np.int32), 2)
weight = np.ones((2, 16, 32), np.float32)
npu_sim.conv_tbc_backward(rows[:7, None], rows[:, None, :16].copy(), weight, ones)
print(len(passes.buffer))
"""


def digest_of_a_run(cache, threads=2, expect_warning=False):
    environment = {**os.environ, "NPU_SIM_CACHE_DIR": str(cache), "NUMBA_NUM_THREADS": str(threads)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
    )
    assert ("KernelCacheWarning" in done.stderr) == expect_warning, done.stderr
    return done.stdout.strip()


def files_of(cache):
    return sorted(path for path in Path(cache).rglob("*") if path.is_file())


@pytest.fixture(scope="module")
def warm(tmp_path_factory):
    """A filled cache and the digest of the run that filled it."""
    cache = tmp_path_factory.mktemp("kernels")
    digest = digest_of_a_run(cache)
    assert files_of(cache)
    return cache, digest


@pytest.fixture
def copy(warm, tmp_path):
    """A copy of the filled cache that a test may damage."""
    cache, digest = warm
    for path in files_of(cache):
        target = tmp_path / path.relative_to(cache)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
        target.chmod(0o600)
    return tmp_path, digest


@pytest.mark.parametrize("threads", every(3, [2, 1, 4]))
def test_a_cached_parallel_kernel_gives_the_same_bits_for_any_thread_count(warm, threads):
    cache, digest = warm
    before = files_of(cache)
    assert digest_of_a_run(cache, threads) == digest
    assert files_of(cache) == before


@pytest.mark.parametrize(
    "damage",
    [
        "flipped",
        *(pytest.param(one, marks=pytest.mark.long) for one in ("truncated", "empty", "replaced")),
    ],
)
def test_a_damaged_file_is_compiled_again(copy, damage):
    cache, digest = copy
    for path in files_of(cache):
        data = bytearray(path.read_bytes())
        if damage == "flipped":
            data[len(data) // 2] ^= 1
        path.write_bytes(
            {
                "flipped": bytes(data),
                "truncated": bytes(data[:-100]),
                "empty": b"",
                "replaced": b"x" * 500,
            }[damage]
        )
    assert digest_of_a_run(cache) == digest
    assert all(path.stat().st_size > 500 for path in files_of(cache))


def test_files_that_change_their_names_are_compiled_again(copy):
    """The checksum covers the identity of the kernel: another one is a miss."""
    cache, digest = copy
    paths = files_of(cache)
    contents = [path.read_bytes() for path in paths]
    for path, content in zip(paths, contents[1:] + contents[:1], strict=True):
        path.write_bytes(content)
    assert digest_of_a_run(cache) == digest
    assert [path.read_bytes() for path in paths] != contents[1:] + contents[:1]


def test_a_file_with_a_foreign_checksum_is_not_unpickled(copy, tmp_path):
    cache, digest = copy
    payload = f"cbuiltins\nexec\n(S'open({str(tmp_path / 'ran')!r}, \"w\")'\ntR.".encode()
    for path in files_of(cache):
        path.write_bytes(hashlib.sha256(payload).digest() + payload)
    assert digest_of_a_run(cache) == digest
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "make",
    [
        "link",
        *(
            pytest.param(one, marks=pytest.mark.long)
            for one in ("pipe", "folder", "writable by others")
        ),
    ],
)
def test_links_pipes_folders_and_writable_files_are_no_kernels(copy, make):
    cache, digest = copy
    for path in files_of(cache):
        if make == "writable by others":
            path.chmod(0o666)
            continue
        away = path.rename(path.with_name(path.name + ".moved"))
        {
            "pipe": lambda at: os.mkfifo(at),
            "link": lambda at, to=away: at.symlink_to(to),
            "folder": lambda at: at.mkdir(),
        }[make](path)
    assert digest_of_a_run(cache, expect_warning=make == "folder") == digest


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no owners here")
@pytest.mark.parametrize(
    "depth", [0, 1], ids=["the folder that is named", "the folder of this version"]
)
def test_a_folder_that_others_may_write_is_not_used(copy, depth):
    cache, digest = copy
    folder = [cache, files_of(cache)[0].parent][depth]
    folder.chmod(0o777)
    before = {path: path.stat().st_mtime_ns for path in files_of(cache)}
    assert digest_of_a_run(cache, expect_warning=True) == digest
    assert {path: path.stat().st_mtime_ns for path in files_of(cache)} == before


def test_folders_and_files_are_for_this_user_alone(tmp_path):
    cache = tmp_path / "made" / "on the way"
    before = os.umask(0)
    try:
        digest_of_a_run(cache)
    finally:
        os.umask(before)
    assert {
        path.stat().st_mode & 0o777 for path in (tmp_path / "made").rglob("*") if path.is_dir()
    } == {0o700}
    assert {path.stat().st_mode & 0o777 for path in files_of(cache)} == {0o600}


def test_a_relative_cache_folder_is_ignored(monkeypatch, tmp_path):
    monkeypatch.delenv(kernel_cache.CACHE_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "caches")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert kernel_cache.cache_directory().is_relative_to(tmp_path / ".cache")


def test_a_user_without_a_home_has_a_cache_among_temporary_files(monkeypatch, tmp_path):
    for name in (kernel_cache.CACHE_VARIABLE, "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as Python without a home
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    assert kernel_cache.cache_directory().is_relative_to(tmp_path)


def test_a_folder_that_cannot_be_written_costs_a_warning_only(warm, tmp_path):
    _, digest = warm
    blocker = tmp_path / "file"
    blocker.write_text("in the way of the folder")
    assert digest_of_a_run(blocker / "cache", expect_warning=True) == digest


@pytest.mark.long
def test_a_second_process_compiles_nothing(tmp_path):
    environment = {**os.environ, "NPU_SIM_CACHE_DIR": str(tmp_path)}
    compile_passes = [
        int(
            subprocess.run(
                [sys.executable, "-c", EVERY_OPERATOR],
                env=environment,
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )
        for _ in range(2)
    ]
    assert compile_passes[0] > 0
    assert compile_passes[1] == 0


@pytest.mark.long
def test_processes_that_start_together_do_not_disturb_each_other(tmp_path):
    with ThreadPoolExecutor(3) as pool:
        digests = set(pool.map(lambda _: digest_of_a_run(tmp_path), range(3)))
    assert len(digests) == 1
    assert not [path for path in files_of(tmp_path) if path.name.startswith("tmp")]


def test_the_key_changes_with_the_source(monkeypatch, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = kernel_cache.source_digest.__wrapped__()
    package = tmp_path / "npu_sim"
    engine = package / "kernels" / "engine"
    engine.mkdir(parents=True)
    (engine / "cache.py").write_text("changed")
    monkeypatch.setattr(kernel_cache, "__file__", str(engine / "cache.py"))
    assert kernel_cache.source_digest.__wrapped__() != before


OWN_KERNEL = """
import numpy as np
from npu_sim.kernels.engine.compile import kernel
from helpers import FACTOR

@kernel
def scale(chunk, x):
    x[chunk] *= FACTOR

x = np.ones(2, np.float32)
scale.over(2, x)
print(x)
"""


def test_a_kernel_of_ones_own_is_compiled_again_when_a_file_beside_it_changes(tmp_path):
    environment = {**os.environ, "NPU_SIM_CACHE_DIR": str(tmp_path / "cache")}
    (tmp_path / "own.py").write_text(OWN_KERNEL)
    printed = []
    # Python compares size and whole seconds of a source with those of its bytecode.
    for factor in (2, 30):
        (tmp_path / "helpers.py").write_text(f"FACTOR = {factor}")
        done = subprocess.run(
            [sys.executable, tmp_path / "own.py"],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        printed.append(done.stdout)
    assert printed == ["[2. 2.]\n", "[30. 30.]\n"]


FACTORY = """
import sys
import numpy as np
from npu_sim.kernels.engine.compile import device_function, kernel

STEP = int(sys.argv[1])

def made(value):
    @kernel
    def fill(chunk, out):
        out[chunk] = value
    return fill

def applied(function):
    compiled = device_function(function)
    @kernel
    def fill(chunk, out):
        out[chunk] = compiled(out[chunk])
    return fill

@kernel
def stepped(chunk, out):
    out[chunk] = STEP

kernels = [made(2), made(3), made(np.float32(3)), made((4, 5)[1])]
kernels += [applied(lambda x: x + 6), applied(lambda x: x + 7), stepped]
for number in 8, 9:
    if number == 8:
        @kernel
        def twice_defined(chunk, out):
            out[chunk] = 8
    else:
        @kernel
        def twice_defined(chunk, out):
            out[chunk] = 9
    kernels.append(twice_defined)

for one in kernels:
    x = np.zeros(1, np.float32)
    one.over(1, x)
    print(int(x[0]), end=" ")
"""


def test_a_kernel_on_disk_belongs_to_the_values_that_were_compiled_into_it(tmp_path):
    (tmp_path / "factory.py").write_text(FACTORY)
    files = []
    for step in (10, 11, 10):
        done = subprocess.run(
            [sys.executable, tmp_path / "factory.py", str(step)],
            env={**os.environ, "NPU_SIM_CACHE_DIR": str(tmp_path / "cache")},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == f"2 3 3 5 6 7 {step} 8 9 "
        files.append(files_of(tmp_path / "cache"))
    assert len(files[1]) == len(files[0]) + 1
    assert files[2] == files[1]


def test_what_a_killed_process_leaves_goes_with_the_next_write(tmp_path):
    path = tmp_path / "cache" / "source" / "kernel"
    code = (
        "import os, signal, sys; from pathlib import Path\n"
        "from npu_sim.kernels.engine import cache\n"
        "cache.Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "cache.write_kernel(Path(sys.argv[1]), 'key', b'half')"
    )
    for _ in range(2):
        subprocess.run([sys.executable, "-c", code, path], check=False)
        left = list(path.parent.iterdir())
        assert left
        assert all(entry.name.startswith(".npu_sim-") for entry in left)
    kernel_cache.write_kernel(path, "key", b"whole")
    assert list(path.parent.iterdir()) == [path]
    assert kernel_cache.read_kernel(path, "key") == b"whole"


def test_a_kernel_that_another_process_is_keeping_is_left_to_it(tmp_path):
    path = tmp_path / "cache" / "source" / "kernel"
    kernel_cache.write_kernel(path, "key", b"first")
    with system.replacing(path) as other:
        other.write(b"unfinished")
        kernel_cache.write_kernel(path, "key", b"second")
        assert kernel_cache.read_kernel(path, "key") == b"first"
