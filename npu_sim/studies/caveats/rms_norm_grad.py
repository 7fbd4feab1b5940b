"""Documented caveats of RmsNormGrad as experiments."""

from typing import Any

from npu_sim.language import Text
from npu_sim.operators import plan
from npu_sim.studies.caveats.experiment import Caveat, Numbers

OPERATOR = "rms_norm_grad"


def _wrap() -> Numbers:
    rows, sizes = 400, {}
    for columns in (1_300_000, 1_350_000):
        spec: dict[str, Any] = {
            "dy": f"{rows}x{columns}:fp32",
            "x": f"{rows}x{columns}:fp32",
            "rstd": f"{rows}:fp32",
            "gamma": f"{columns}:fp32",
        }
        tiling = plan(OPERATOR, deterministic=True, **spec).tiling
        total = rows * columns * 8 + rows * 4 + columns * 4
        sizes[columns] = {
            "bytes": total,
            "bytes_32_bit": total % 2**32,
            "need_chunk": tiling["need_chunk"],
        }
    return {"rows": rows, "columns": sizes}


def _explain_wrap(numbers: Numbers) -> list[str]:
    lines = [
        Text(
            "{rows} x {columns}: {bytes} bytes, {bytes_32_bit} in 32 bits: need_chunk {need_chunk}",
            rows=numbers["rows"],
            columns=columns,
            bytes=size["bytes"],
            bytes_32_bit=size["bytes_32_bit"],
            need_chunk=size["need_chunk"],
        )
        for columns, size in numbers["columns"].items()
    ]
    return [
        *lines,
        "beyond 4 GiB a larger tensor is planned as a small one: the reduction of dgamma is not "
        "cut into chunks",
    ]


CAVEATS: tuple[Caveat, ...] = (
    Caveat(
        "wrap",
        "RmsNormGrad sizes its work in 32 bits",
        "RmsNormGrad, deterministic, beyond 4 GiB",
        _wrap,
        _explain_wrap,
    ),
)
