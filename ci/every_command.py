"""Run every command that needs no device, as a user would: every_command.py FOLDER [DATA].

It runs the npu_sim of the interpreter that runs it, in FOLDER, which must not exist. DATA is
``tests/data`` of the clone. Results go to ``FOLDER/results``: two runs can be compared byte by
byte. A command whose extra is not installed must say which one it needs.
"""

import csv
import json
import os
import re
import subprocess
import sys
import time
import urllib.request
import zipfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np

RMS = ("rms_norm_grad", "--dy", "4096x8192:bf16", "--gamma", "8192:bf16")
EMBEDDING = ("--grad", "g.npy", "--indices", "i.npy", "--num-weights", "300")
SWEEP = ("rms_norm_grad", "--grid", "rows=1..300", "--grid", "columns=64,8192")
TRAINING = """import torch
x = torch.ones(4, 64, requires_grad=True)
torch.nn.functional.rms_norm(x, (64,), torch.ones(64)).sum().backward()
"""
INTERRUPTED = """
import sys
from npu_sim import sweep_to

def stop(done, rows):
    if done >= 100 and sys.argv[1] == "stop":
        sys.exit()

options = {{"chunk_rows": 100, "progress": stop, "resume": sys.argv[1] == "resume"}}
sweep_to("results/resumed.csv", "rms_norm_grad", {axes}, **options)
"""
CALLS = (
    {"op": "rms_norm", "inputs": {"x": "4x128:fp32", "gamma": "128:fp32"}},
    {"op": "rms_norm_grad", "inputs": {"dy": "64x128:bf16", "gamma": "128:bf16"}},
)
PROFILE = {
    "Type": "RmsNormGrad",
    "Duration(us)": "95.0",
    "Block Dim": "40",
    "Input Shapes": '"4096,1,1024;4096,1,1024;4096,1,1;1024"',
    "Input Data Types": "DT_BF16;DT_BF16;FLOAT;DT_BF16",
    "Output Shapes": '"4096,1,1024;1024"',
    "Output Data Types": "DT_BF16;FLOAT",
}


def npu_sim(*arguments: object, code: int = 0, extra: str = "") -> str:
    """Run a command; return its standard output.

    ``extra`` is the module that an extra of npu_sim brings: without it, the command is refused.
    """
    command = [sys.executable, "-m", "npu_sim", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, check=False, timeout=600)
    output, errors = done.stdout.decode("latin-1"), done.stderr.decode("latin-1")
    missing = bool(extra) and find_spec(extra) is None
    print(f"{done.returncode:3d}  npu-sim", *arguments, flush=True)
    if missing and done.returncode == 64 and "pip install" in errors:
        return ""
    if missing or done.returncode != code or "Traceback" in errors:
        sys.exit(f"{output}\n{errors}\nexit code {done.returncode}, expected {code}")
    return output


def inputs(data: Path) -> None:
    """Write the files that the commands read; texts have the line ends of Windows."""
    rng = np.random.default_rng(7)
    np.save("g.npy", rng.standard_normal((600, 16), np.float32))
    np.save("i.npy", rng.integers(0, 300, 600).astype(np.int32))
    texts = {
        "calls.jsonl": "".join(f"{json.dumps(call)}\n" for call in CALLS),
        "train.py": TRAINING,
        "error.txt": json.loads((data / "failures" / "texts.jsonl").open("rb").readline())["text"],
    }
    for name, text in texts.items():
        Path(name).write_text(text, encoding="utf-8", newline="\r\n")
    with open("op_summary.csv", "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([PROFILE, PROFILE.values()])
    with zipfile.ZipFile(data / "dumps" / "26.2.0.zip") as dumps:
        dumps.extractall("dumps")
    Path("results").mkdir()


def commands(data: Path) -> None:
    """Run the commands, in the order of ``npu-sim --help``."""
    npu_sim("demo")
    npu_sim("products")
    texts = {"plan": npu_sim("plan", *RMS, "--json"), "explain": npu_sim("explain", *RMS, "--json")}
    npu_sim("plan", *RMS, "--report", "plan.html", "--figure", "cores.svg", "--workspace")
    npu_sim("plan", *RMS, "--product", "Atlas A2 训练系列产品")
    for order in ("sequential", "reverse"):
        out = f"results/{order}.npy"
        npu_sim("run", "embedding_dense_backward", *EMBEDDING, "--core-order", order, "--out", out)
    npu_sim("run", *RMS[:1], "--dy", "64x96:bf16", "--gamma", "96:bf16", "--out", "results/y.npz")
    npu_sim("run", "embedding_dense_backward", *EMBEDDING, "--out", "missing/w.npy", code=64)
    texts["diff"] = npu_sim("diff", *RMS, "--json")
    texts["limits"] = npu_sim("limits", *RMS, "--json")
    texts["timeline"] = npu_sim("timeline", *RMS, "--socs", "all", "--json")
    npu_sim("model", data / "models" / "llama_3_8b.json", extra="transformers")
    npu_sim("record", "--out", "recorded.jsonl", "train.py", extra="torch")
    npu_sim("emulate", "train.py", extra="torch")
    out = ("--out", "results/preflight.jsonl")
    npu_sim("preflight", "calls.jsonl", "--products", "all", *out, code=1)  # some are refused
    npu_sim("sweep", *SWEEP, "--out", "results/sweep.csv")
    npu_sim("sweep", *SWEEP, "--out", "results/sweep", "--check", "20")
    npu_sim("profile", "op_summary.csv", "--soc", "Ascend910B3")
    measured = ("--grad-weight", "results/reverse.npy")
    npu_sim("verify", "embedding_dense_backward", *EMBEDDING, *measured)
    for study in ("determinism", "precision"):
        npu_sim("study", study, "embedding_dense_backward", *EMBEDDING)
    npu_sim("caveats")
    npu_sim("caveats", "counters")
    npu_sim("kit", "calls.jsonl", "--out", "kit")
    npu_sim("diagnose", "error.txt")
    npu_sim("dump", "dumps/tensor_l0", "--soc", "Ascend910B3")
    npu_sim("new-operator", "scale_rows", "--out", ".")
    own = ("--operators", "scale_rows/scale_rows.py")
    npu_sim(*own, "plan", "scale_rows", "--x", "4096x1000:bf16")
    npu_sim(*own, "run", "scale_rows", "--x", "64x100:bf16", "--out", "results/own.npy")
    for name, text in texts.items():
        Path("results", f"{name}.json").write_text(text, encoding="utf-8")


def resumed_sweep() -> None:
    """Interrupt a sweep, go on with it, and compare it with the one that was not interrupted."""
    axes = {"rows": "1..300", "columns": "64,8192"}
    program = (sys.executable, "-c", INTERRUPTED.format(axes=axes))
    subprocess.run([*program, "stop"], check=True)
    if Path("results/resumed.csv").exists():
        sys.exit("the sweep was not interrupted")
    subprocess.run([*program, "resume"], check=True)
    if Path("results/resumed.csv").read_bytes() != Path("results/sweep.csv").read_bytes():
        sys.exit("the resumed sweep has other rows")


def explorer() -> None:
    """Start the explorer, fetch its page, and end it."""
    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        npu_sim("explore", extra="starlette")
        return
    command = [sys.executable, "-u", "-m", "npu_sim", "explore", "--port", "0", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            address = None
            while address is None:
                line = server.stdout.readline().decode("latin-1")
                if not line:
                    sys.exit("the explorer ended")
                address = re.search(r"http://\S+", line)
            cookies = urllib.request.HTTPCookieProcessor()  # the address grants access by a cookie
            direct = urllib.request.ProxyHandler({})
            opener = urllib.request.build_opener(cookies, direct)
            with opener.open(address[0], timeout=60) as answer:
                if b"<html" not in answer.read():
                    sys.exit("the explorer has no page")
            print("  0  npu-sim explore")
        finally:
            server.terminate()


def main() -> None:
    """Run everything, in the folder that the command line names."""
    sys.stdout.reconfigure(errors="backslashreplace")
    folder = Path(sys.argv[1]).absolute()
    data = Path(sys.argv[2] if len(sys.argv) > 2 else "tests/data").absolute()
    folder.mkdir(parents=True)
    os.chdir(folder)
    begun = time.monotonic()
    listed = set(re.findall(r"^  ([a-z][a-z-]*)  ", npu_sim("--help"), re.M))
    known = set(re.findall(r'npu_sim\((?:\*own, )?"([a-z-]+)"', Path(__file__).read_text("utf-8")))
    if listed - known:
        sys.exit(f"no example of {', '.join(sorted(listed - known))}")
    inputs(data)
    commands(data)
    resumed_sweep()
    explorer()
    print(f"every command of npu-sim ran, in {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
