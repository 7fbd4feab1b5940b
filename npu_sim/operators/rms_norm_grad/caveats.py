"""Documented caveats of RmsNormGrad as experiments."""

from typing import Any

import numpy as np

from npu_sim.language import Text
from npu_sim.operators import plan, run
from npu_sim.operators.shared.study import Caveat, Numbers, different

OPERATOR = "rms_norm_grad"
LATER = "ascend_950"


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
        facts = {"bytes": total, "bytes_32_bit": total % 2**32}
        sizes[columns] = {**facts, "need_chunk": tiling["need_chunk"]}
    return {"rows": rows, "columns": sizes}


def _explain_wrap(numbers: Numbers) -> list[str]:
    lines = [
        Text(
            "{rows} x {columns}: {bytes} bytes, {bytes_32_bit} in 32 bits: need_chunk {need_chunk}",
            rows=numbers["rows"],
            columns=columns,
            **size,
        )
        for columns, size in numbers["columns"].items()
    ]
    return [
        *lines,
        "beyond 4 GiB a larger tensor is planned as a small one: the reduction of dgamma is not "
        "cut into chunks",
    ]


LEFT_OUT_COLUMNS = (8192, 8193, 8194)


def _last_column() -> Numbers:
    differing = {}
    for columns in LEFT_OUT_COLUMNS:
        ones = np.ones((1, columns), np.float32)
        changed = ones.copy()
        changed[0, -1] = 1000
        call: dict[str, Any] = {"x": ones, "rstd": np.ones(1, np.float32), "gamma": ones[0]}
        first, second = (
            run(OPERATOR, product=LATER, dy=dy, **call).outputs["dx"] for dy in (ones, changed)
        )
        differing[columns] = different(first[0, :-1], second[0, :-1])
    return {"product": LATER, "different": differing}


def _explain_last_column(numbers: Numbers) -> list[str]:
    lines = [
        Text(
            "{columns} columns: a larger dy in the last one changes {count} other elements of dx",
            columns=columns,
            count=count,
        )
        for columns, count in numbers["different"].items()
    ]
    return [
        *lines,
        "with 2^k + 1 columns, from 8193 on, the mean of a row leaves out the last column; read in "
        "the public sources, not run on a device",
    ]


def _no_rows() -> Numbers:
    empty = np.ones((0, 4), np.float32)
    call: dict[str, Any] = {"dy": empty, "x": empty, "rstd": np.ones(0, np.float32)}
    dgamma = run(OPERATOR, product=LATER, **call, gamma=np.ones(4, np.float32)).outputs["dgamma"]
    return {"product": LATER, "dgamma": dgamma.tolist()}


def _explain_no_rows(numbers: Numbers) -> list[str]:
    product, values = numbers["product"], ", ".join(map(str, numbers["dgamma"]))
    return [
        Text("dgamma of 0 rows on {product}: {values}", product=product, values=values),
        "a sum of no terms is 0, which the formula gives; read in the public sources, not run on a "
        "device",
    ]


CAVEATS: tuple[Caveat, ...] = (
    Caveat(
        "last-column",
        "On Ascend 950 the mean of RmsNormGrad may leave out the last column",
        "public sources of summer 2026, RmsNormGrad, rows of 2^k + 1 columns",
        _last_column,
        _explain_last_column,
        ("last_column_left_out_of_mean",),
    ),
    Caveat(
        "no-rows",
        "On Ascend 950 dgamma of RmsNormGrad without rows is nan",
        "public sources of summer 2026, RmsNormGrad, tiling key 8000",
        _no_rows,
        _explain_no_rows,
        ("dgamma_is_nan",),
    ),
    Caveat(
        "wrap",
        "RmsNormGrad sizes its work in 32 bits",
        "RmsNormGrad, deterministic, beyond 4 GiB",
        _wrap,
        _explain_wrap,
        ("total_size_wraps",),
    ),
)
