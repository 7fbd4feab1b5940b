"""Findings of hostile use, each in a process of its own: a wild write or a hang would end it."""

import pytest

from tests.cases import every
from tests.hostile.test_races import ended

CONVOLUTION = """
import gc, signal, sys
import numpy as np
import npu_sim
from tests.hostile.calls import small_call
outer, inner = (small_call("conv_tbc_backward", seed) for seed in (1, 2))
call = lambda values: [array.tobytes() for array in npu_sim.run("conv_tbc_backward", **values)
                       .outputs.values()]
expected, expected_inside, inside = call(outer), call(inner), []
"""
SIGNAL = """
def handle(*_):
    inside.append(call(inner))
    signal.setitimer(signal.ITIMER_REAL, 1e-3)  # not before its end: handlers would nest
signal.signal(signal.SIGALRM, handle)
signal.setitimer(signal.ITIMER_REAL, 1e-3)
while len(inside) < 50:
    assert call(outer) == expected
signal.signal(signal.SIGALRM, signal.SIG_IGN)
assert all(result == expected_inside for result in inside)
"""
FINALIZER = """
class Deleted:
    def __init__(self):
        self.cycle = self
    def __del__(self):
        inside.append(call(inner))
gc.set_threshold(20)
while len(inside) < 50:
    Deleted()
    assert call(outer) == expected
gc.disable()
assert all(result == expected_inside for result in inside)
"""
NEGATIVE = """
import numpy as np, torch, npu_sim
values, gamma = torch.arange(1.0, 33).reshape(2, 16), torch.ones(16)
tensor = torch.complex(torch.zeros_like(values), -values).conj().imag
assert torch.equal(tensor, values)
expected = npu_sim.rms_norm(values.numpy(), gamma.numpy())[0]
assert np.array_equal(npu_sim.rms_norm(tensor, gamma)[0], expected)
grad, indices, out = torch.ones(3, 4), torch.tensor([0, 1, 1]), torch._neg_view(torch.zeros(2, 4))
try:
    npu_sim.embedding_dense_backward(grad, indices, num_weights=2, out=out)
except npu_sim.UsageError as error:
    assert "cannot be written in place" in str(error), error
else:
    raise AssertionError("written")
"""
WITHOUT_MEMORY = """
import torch, npu_sim
from torch._subclasses.fake_tensor import FakeTensorMode
freed = torch.ones(2, 16)
freed.untyped_storage().resize_(0)
with FakeTensorMode():
    fake = torch.ones(2, 16)
functional = torch._to_functional_tensor(torch.ones(2, 16))
for tensor in (fake, torch._efficientzerotensor((2, 16)), functional, freed):
    try:
        npu_sim.rms_norm(tensor, torch.ones(16))
    except npu_sim.UsageError as error:
        assert "has no memory for its elements" in str(error), error
    else:
        raise AssertionError("computed")
"""
COMMAND = """
import os, sys, tempfile
import numpy as np
from pathlib import Path
os.chdir(tempfile.mkdtemp())
import npu_sim.cli
def command(*arguments):
    sys.argv = ["npu-sim", *arguments]
    try:
        npu_sim.cli.main()
    except SystemExit as end:
        return end.code
"""
SAME_FILE = (
    COMMAND
    + """
for name in ("s.py", "calls.jsonl", "p.csv"):
    Path(name).write_text("1\\n")
np.save("x.npy", np.ones((4, 128), np.float32))
before = {path.name: path.read_bytes() for path in Path().iterdir()}
calls = ("preflight", "calls.jsonl")
run = ("run", "embedding_dense_backward", "--indices", "4:int64", "--num-weights", "3")
for arguments in (
    ("record", "--out", "s.py", "s.py"),
    (*calls, "--out", "calls.jsonl"),
    (*calls, "--junit", "calls.jsonl"),
    (*calls, "--report", "calls.jsonl"),
    ("profile", "p.csv", "--report", "p.csv"),
    (*run, "--grad", "x.npy", "--out", "x.npy"),
    (*calls, "--out", "same", "--junit", "same"),
):
    assert command(*arguments) == 64, arguments
assert {path.name: path.read_bytes() for path in Path().iterdir()} == before
"""
)
LINKS = (
    COMMAND
    + """
os.symlink("target.npy", "link.npy")
arguments = ("run", "embedding_dense_backward", "--grad", "4x8:fp32", "--indices", "4:int64",
             "--num-weights", "3", "--out", "link.npy")
for _ in range(2):
    assert command(*arguments) in (0, None)
assert Path("link.npy").is_symlink()
assert np.load("target.npy").shape == (3, 8)
"""
)
NAMES = (
    COMMAND
    + """
import contextlib, io, json, re
os.environ["GITHUB_ACTIONS"] = "true"
os.environ["GITHUB_STEP_SUMMARY"] = "summary.md"
name = "a\\n::stop-commands::tok\\x1b[2J\\x07\\x9b1m\\u202e<img src=x onerror=y>"
inputs = {"x": "4x128:fp32", "gamma": "12:fp32"}
Path("calls.jsonl").write_text(json.dumps({"op": "rms_norm", "name": name, "inputs": inputs}))
header = "Step Id,Name,Type,Start Time(us),Duration(us),Wait Time(us),Block Dim,Input Shapes"
Path("p.csv").write_text(f'{header}\\n1,"{name}","{name}",10,5.0,0,20,"4"\\n')
with contextlib.redirect_stdout(io.StringIO()) as out:
    for arguments in (("preflight", "calls.jsonl"), ("profile", "p.csv")):
        command(*arguments)
        text = out.getvalue()
        assert "stop-commands" in text
        assert not re.search("[\\x00-\\x09\\x0b-\\x1f\\x7f-\\x9f\\u202e]", text)
        assert not re.search("^::stop", text, re.MULTILINE)
summary = Path("summary.md").read_text()
assert "<img" not in summary and "\\n::stop" not in summary, summary
"""
)
PROGRAMS = {
    "M1 a signal handler": CONVOLUTION + SIGNAL,
    "M1 a finalizer": CONVOLUTION + FINALIZER,
    "H3 the negative bit": NEGATIVE,
    "H4 tensors without memory": WITHOUT_MEMORY,
    "H5 an output that is an input or another output": SAME_FILE,
    "L5 a link": LINKS,
    "M7 names from files": NAMES,
}


@pytest.mark.parametrize("name", every(3, PROGRAMS))
def test_a_finding_of_hostile_use(name):
    if name.startswith(("H3", "H4")):
        pytest.importorskip("torch")
    assert ended(PROGRAMS[name] + '\nprint("ended")\n', seconds=60).endswith("ended\n")
