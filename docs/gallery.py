"""Make the pictures of the gallery: ``python docs/gallery.py``.

Needs Chromium (Debian package ``chromium``), the extra ``explore``, PyTorch and transformers. The
pictures show real calls. They are reproducible up to the fonts of the machine.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlencode

import npu_sim
from npu_sim.cores import load_profile, shipped_products
from npu_sim.operators.timelines import timeline, tracks
from npu_sim.plans.model import Plan
from npu_sim.show.forms.html import render
from npu_sim.show.forms.layout import Document
from npu_sim.show.plan_report import plan_report, steps_section
from npu_sim.show.timeline_report import time_section
from npu_sim.tools.explorer.application import Explorer, serving

ROOT = Path(__file__).parents[1]
GALLERY = ROOT / "docs/gallery"
LARGEST_GALLERY_BYTES = 1_200_000
MODELS = {
    "qwen3_0_6b": ("--optimizer", "adamw"),
    "llama_3_8b": (),
    "qwen3_30b_a3b": (),
    "mixtral_8x7b": (),
}
"""Configurations of models, in tests/data/models, with the options of their pages."""
STEP_ON = """
const slider = document.querySelector("input[type=range]");
document.querySelectorAll(".core-choice button")[17].click();
slider.value = 150;
slider.dispatchEvent(new Event("input"));
"""
"""Selects a core and a tile in the middle of its work."""
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--virtual-time-budget=4000",
)
DARK = "--blink-settings=preferredColorScheme=0"
LIGHT = "--blink-settings=preferredColorScheme=1"


def shoot(address: str, name: str, size: tuple[int, int], *, dark: bool = False) -> None:
    """Write a screenshot of a page."""
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("Chromium is missing: apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder:
        theme = DARK if dark else LIGHT
        window = f"--window-size={size[0]},{size[1]}"
        command = [
            chromium,
            *FLAGS,
            theme,
            window,
            f"--user-data-dir={folder}",
            f"--screenshot={GALLERY / name}",
            address,
        ]
        subprocess.run(command, check=True, capture_output=True)


def shoot_document(html: str, name: str, size: tuple[int, int], *, dark: bool = False) -> None:
    """Write a screenshot of a report."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.html"
        file.write_text(html, encoding="utf-8")
        shoot(file.as_uri(), name, size, dark=dark)


def plan_picture() -> None:
    """Write a screenshot of the report of a plan."""
    shoot_document(render(plan_report(long_rows())), "report.png", (1080, 1180))


def long_rows() -> Plan:
    """Return a plan whose rows are too long for one piece."""
    arguments = {
        "dy": "4096x8192:bf16",
        "x": "4096x8192:bf16",
        "rstd": "4096:fp32",
        "gamma": "8192:bf16",
    }
    return npu_sim.plan("rms_norm_grad", product=load_profile("atlas_a2"), **arguments)


def work_picture() -> None:
    """Write a screenshot of a call over time and of one core in the middle of its work."""
    plan, profile = long_rows(), load_profile("atlas_a2")
    sections = (time_section(tracks(plan, profile, timeline(plan, profile))), steps_section(plan))
    sentence = "RmsNormGrad, 4096 x 8192 bf16: work over time, and one core step by step"
    html = render(Document(sentence, sentence, sections)).replace(
        "</body>", f"<script>{STEP_ON}</script></body>"
    )
    shoot_document(html, "steps.png", (1080, 1120))


def explorer_picture() -> None:
    """Write a screenshot of the explorer with two panes, in dark mode."""
    explorer = Explorer({name: load_profile(name) for name in shipped_products()})
    state = {
        "operator": "embedding_dense_backward",
        "product": "atlas_a2",
        "rows": "64K",
        "dim": 512,
        "num_weights": 32000,
    }
    other = {"product": "atlas_a3", "deterministic": "true", "dim": 513}
    state |= {f"other.{name}": value for name, value in other.items()}
    with serving(explorer):
        address = f"{explorer.access.address}#{urlencode(state)}"
        shoot(address, "explorer.png", (1366, 1000), dark=True)


def sweep_picture() -> None:
    """Write a screenshot of the report of a sweep."""
    grid = {"row": "1..5000", "col": "64..16384:+64", "dtype": "float32,bfloat16"}
    grid["product"] = "atlas_a2,atlas_a3"
    options = [f"--grid={name}={values}" for name, values in grid.items()]
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "sweep.html"
        run_command(Path(folder), "sweep", "rms_norm_grad", *options, "--report", page.name)
        shoot(page.as_uri(), "sweep.png", (1080, 1470))


def model_pages() -> None:
    """Write the report of each model for A2 and Ascend 950, and a screenshot of one."""
    for model, options in MODELS.items():
        config, page = f"tests/data/models/{model}.json", f"docs/gallery/{model}.html"
        run_command(ROOT, "model", config, *options, "--products", "A2,950", "--report", page)
    shoot((GALLERY / "qwen3_30b_a3b.html").as_uri(), "model.png", (1080, 1120))


def ablation_picture() -> None:
    """Write a screenshot of the report of an ablation."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "ablation.html"
        script = shutil.copy(ROOT / "examples" / "train_llama.py", folder)
        options = ("--product", "A2", "--ablate", "--report", page.name, Path(script).name)
        run_command(Path(folder), "emulate", *options)
        shoot(page.as_uri(), "ablation.png", (1080, 1180))


def run_command(folder: Path, *arguments: str) -> None:
    """Run npu-sim in a folder."""
    subprocess.run([sys.executable, "-m", "npu_sim", *arguments], check=True, cwd=folder)


def main() -> None:
    """Make every picture."""
    GALLERY.mkdir(exist_ok=True)
    plan_picture()
    explorer_picture()
    work_picture()
    sweep_picture()
    model_pages()
    ablation_picture()
    total = sum(file.stat().st_size for file in GALLERY.iterdir())
    print(f"{total} bytes in {GALLERY}")
    if total > LARGEST_GALLERY_BYTES:
        sys.exit(f"the gallery is larger than {LARGEST_GALLERY_BYTES} bytes")


if __name__ == "__main__":
    main()
