"""Write dumps of a small model with the real msprobe, in an environment of its own.

    python -m venv env
    env/bin/pip install torch==2.13.0 numpy pandas pyyaml tqdm rich einops packaging matplotlib
    env/bin/pip install pytz tensorboard openpyxl psutil       # "numpy<2" for msprobe 8
    env/bin/pip install --no-deps mindstudio-probe==26.2.0
    env/bin/python ci/write_dumps.py tests/data/dumps/26.2.0.zip

PyTorch computes on the CPU, so the dumps have the functions that exist there: embedding and
conv_tbc with their gradients. The archive has a folder for each of ``RUNS``.
"""

import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROWS, COLUMNS, WEIGHTS = 24, 8, 12
"""Looked-up rows, columns of the weight, and its rows."""
RUNS = {
    "tensor_l1": ("tensor", "L1", {}),
    "tensor_l0": ("tensor", "L0", {}),
    "tensor_mix": ("tensor", "mix", {}),
    "statistics_l1": ("statistics", "L1", {"summary_mode": "statistics"}),
    "statistics_l0": ("statistics", "L0", {"summary_mode": "statistics"}),
    "md5_l1": ("statistics", "L1", {"summary_mode": "md5"}),
    "md5_l0": ("statistics", "L0", {"summary_mode": "md5"}),
    "xor_l1": ("statistics", "L1", {"summary_mode": "xor"}),  # 26.1 and later
    "xor_l0": ("statistics", "L0", {"summary_mode": "xor"}),
}
"""Name of a dump: task, level and settings of the task."""


def write(folder: Path, run: str) -> None:
    """Write the dump of one training step."""
    import torch
    from msprobe.pytorch import PrecisionDebugger
    from torch.nn import functional

    class Model(torch.nn.Module):
        """An embedding module, a lookup with padding, a convolution with keywords, and a loss."""

        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(WEIGHTS, COLUMNS)
            self.padded = torch.nn.Parameter(torch.randn(WEIGHTS, COLUMNS))
            self.kernel = torch.nn.Parameter(torch.randn(3, COLUMNS, COLUMNS) / 8)
            self.bias = torch.nn.Parameter(torch.zeros(COLUMNS))
            self.head = torch.nn.Linear(COLUMNS, 5)

        def forward(self, indices: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            """Return the loss of indices (rows, 2)."""
            found = self.table(indices)
            found = found + functional.embedding(indices, self.padded, padding_idx=-1)
            mixed = torch.conv_tbc(found, self.kernel, bias=self.bias, pad=1)
            return functional.cross_entropy(self.head(mixed).flatten(0, 1), target.flatten())

    task, level, settings = RUNS[run]
    torch.manual_seed(0)
    model = Model()
    indices = torch.randint(0, WEIGHTS, (ROWS // 2, 2))
    target = torch.randint(0, 5, (ROWS // 2, 2))
    config = folder / "config.json"
    common = {"task": task, "dump_path": str(folder / run), "rank": [], "step": [], "level": level}
    chosen = {"scope": [], "list": [], "data_mode": ["all"], **settings}
    config.write_text(json.dumps({**common, task: chosen}))
    debugger = PrecisionDebugger(config_path=str(config))
    debugger.start(model=model)
    model(indices, target).backward()
    debugger.stop()
    debugger.step()


def main() -> None:
    """Write every dump in a process of its own, and pack what they wrote."""
    if len(sys.argv) == 3:
        write(Path(sys.argv[1]), sys.argv[2])
        return
    with (
        tempfile.TemporaryDirectory() as folder,
        zipfile.ZipFile(sys.argv[1], "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for run in RUNS:
            ended = subprocess.run([sys.executable, __file__, folder, run], check=False)
            print(run, "written" if ended.returncode == 0 else "not written")
        for path in sorted(Path(folder).glob("*/step*/**/*")):
            if path.name == "dump.json" or path.suffix == ".pt":
                archive.write(path, path.relative_to(folder))


if __name__ == "__main__":
    main()
