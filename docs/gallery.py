"""Make the pictures of the README: ``python docs/gallery.py``.

Needs a Chromium (Debian package ``chromium``). Pictures are of real calls and come out the same every
time, but for the fonts of the machine.
"""

import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from urllib.parse import urlencode

import npu_sim
from npu_sim.cores import load_profile, shipped_products
from npu_sim.explorer import Explorer
from npu_sim.show.reports import Bound, Curve, curve_figure, plan_report, render, table_report

GALLERY = Path(__file__).parent / "gallery"
LARGEST_GALLERY_BYTES = 600_000
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
    """Take a picture of a page."""
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("needs chromium: apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder:
        theme = DARK if dark else LIGHT
        window = f"--window-size={size[0]},{size[1]}"
        words = [chromium, *FLAGS, theme, window, f"--user-data-dir={folder}", f"--screenshot={GALLERY / name}", address]
        subprocess.run(words, check=True, capture_output=True)


def shoot_document(html: str, name: str, size: tuple[int, int], *, dark: bool = False) -> None:
    """Take a picture of a report."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.html"
        file.write_text(html, encoding="utf-8")
        shoot(file.as_uri(), name, size, dark=dark)


def plan_picture() -> None:
    """The report of one plan."""
    profile = load_profile("atlas_a2")
    arguments = {"dy": "4096x8192:bf16", "x": "4096x8192:bf16", "rstd": "4096:fp32", "gamma": "8192:bf16"}
    plan = npu_sim.plan("rms_norm_grad", profile=profile, **arguments)
    shoot_document(render(plan_report(plan)), "report.png", (1080, 1180))


def explorer_picture() -> None:
    """The explorer with two panes, in dark."""
    explorer = Explorer({name: load_profile(name) for name in shipped_products()})
    threading.Thread(target=explorer.server.serve_forever, daemon=True).start()
    state = {"operator": "embedding_dense_backward", "product": "atlas_a2", "rows": "64K", "dim": 512, "num_weights": 32000}
    other = {"product": "atlas_a3", "soc": "Ascend910_9391", "release": "8.3", "deterministic": "true", "limits": "documented"}
    state |= {f"other.{name}": value for name, value in other.items()}
    shoot(f"{explorer.address}#{urlencode(state)}", "explorer.png", (1500, 1000), dark=True)
    explorer.server.shutdown()


def curve_picture() -> None:
    """Unified Buffer of one core against embeddingDim, with the change of path and the capacity."""
    profile = load_profile("atlas_a2")
    dims = [*range(8, 513, 8), 513, *range(520, 1100, 20)]
    used = []
    for dim in dims:
        plan = npu_sim.plan("embedding_dense_backward", profile=profile, grad=f"65536x{dim}:fp32", indices="65536:int32", num_weights=32000)
        used.append(plan.memories[0].used_bytes)
    bounds = (Bound("small dim up to", 512), Bound("usable", profile.device.ub_bytes, "y"))
    curve = Curve("bytes used", dims, used)
    figure = curve_figure("embeddingDim", "Unified Buffer of one core, bytes", [curve], bounds)
    sentence = "EmbeddingDenseBackward, 65536 rows, fp32: the Unified Buffer against embeddingDim"
    shoot_document(render(table_report("A sweep", sentence, [], [figure])), "curves.png", (1080, 640))


def main() -> None:
    """Make every picture."""
    GALLERY.mkdir(exist_ok=True)
    plan_picture()
    explorer_picture()
    curve_picture()
    total = sum(picture.stat().st_size for picture in GALLERY.glob("*.png"))
    print(f"{total} bytes in {GALLERY}")
    if total > LARGEST_GALLERY_BYTES:
        sys.exit(f"more than the {LARGEST_GALLERY_BYTES} bytes that the gallery may have")


if __name__ == "__main__":
    main()
