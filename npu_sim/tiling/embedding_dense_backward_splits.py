"""How EmbeddingDenseGradV2 cuts rows over cores, batches and vector instructions: pure integer functions.

Source: specification page ``embedding_dense_backward``, section "Tiling, Atlas A2/A3". All sizes are elements.
"""

from typing import Annotated, NamedTuple

from npu_sim.tiling.fields import Field
from npu_sim.tiling.integers import ceil_div

VECTOR_LANES = 64
"""fp32 lanes of one vector instruction (page, "Vector split")."""
BATCH_BOUND = "max(ub_bytes, rows)"


class VectorSplit(NamedTuple):
    """A dim cut into whole vector instructions and a tail."""

    compute_rep_time: Annotated[int, Field("vector instructions", "dim", vendor="ComputeRepTime")]
    compute_former_num: Annotated[
        int, Field("columns they cover", "dim", vendor="ComputeFormerNum")
    ]
    compute_tail_num: Annotated[int, Field("columns left", "dim", vendor="ComputeTailNum")]


class RowSplit(NamedTuple):
    """The first ``former_row_rep_time`` cores take ``former_row_num`` rows, the others ``tail_row_num``."""

    former_row_num: Annotated[
        int, Field("rows of the first cores", "rows + 1", vendor="formerRowNum")
    ]
    tail_row_num: Annotated[int, Field("rows of the other cores", "rows + 1", vendor="tailRowNum")]
    former_row_rep_time: Annotated[
        int,
        Field("how many cores take the longer share", "vector_cores", vendor="formerRowRepTime"),
    ]


class WeightSplit(NamedTuple):
    """The same split of weight rows, for the cores that scale them."""

    former_row_num: Annotated[
        int, Field("weight rows of the first cores", "num_weights + 1", vendor="formerCoreRowNum")
    ]
    tail_row_num: Annotated[
        int, Field("weight rows of the other cores", "num_weights + 1", vendor="tailCoreRowNum")
    ]
    former_row_rep_time: Annotated[
        int,
        Field(
            "how many cores take the longer share", "vector_cores", vendor="formerCoreRowRepTime"
        ),
    ]


class SmallDimSplit(NamedTuple):
    """Rows and batches of the small-dim kernel: every core but the last copies ``former_copy_row`` rows."""

    part_num: Annotated[int, Field("parts", vendor="partNum")]
    former_copy_row: Annotated[
        int, Field("rows of every core but the last", "rows + 1", vendor="formerCopyRow")
    ]
    tail_copy_row: Annotated[int, Field("rows of the last core", "rows + 1", vendor="tailCopyRow")]
    former_copy_time: Annotated[
        int, Field("batches of every core but the last", "rows + 1", vendor="formerCopyTime")
    ]
    tail_copy_time: Annotated[
        int, Field("batches of the last core", "rows + 1", vendor="tailCopyTime")
    ]
    max_row_in_ub: Annotated[int, Field("rows of one batch", BATCH_BOUND, vendor="maxRowInUb")]
    former_last_row: Annotated[
        int, Field("rows of the last batch", BATCH_BOUND, vendor="formerLastRow")
    ]
    tail_last_row: Annotated[
        int, Field("rows of the last batch of the last core", BATCH_BOUND, vendor="tailLastRow")
    ]


def split_vector(dim: int) -> VectorSplit:
    """Cut a dim into whole instructions of 64 lanes and a tail."""
    rep_time = dim // VECTOR_LANES
    return VectorSplit(rep_time, rep_time * VECTOR_LANES, dim - rep_time * VECTOR_LANES)


def split_rows(rows: int, cores: int) -> RowSplit:
    """Spread rows over cores as evenly as possible, longer shares first."""
    tail = rows // cores
    return RowSplit(tail + 1, tail, rows % cores)


def split_small_dim(rows: int, cores: int, max_row_in_ub: int) -> SmallDimSplit:
    """Cut the rows of the small-dim kernel over cores, the remainder on the last, and into batches."""
    former = rows // cores
    tail = rows - former * (cores - 1)
    former_time = ceil_div(former, max_row_in_ub)
    tail_time = ceil_div(tail, max_row_in_ub)
    return SmallDimSplit(
        part_num=1,
        former_copy_row=former,
        tail_copy_row=tail,
        former_copy_time=former_time,
        tail_copy_time=tail_time,
        max_row_in_ub=max_row_in_ub,
        former_last_row=former - max_row_in_ub * (former_time - 1),
        tail_last_row=tail - max_row_in_ub * (tail_time - 1),
    )
