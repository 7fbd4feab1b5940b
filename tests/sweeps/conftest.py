import pytest

GRID = {
    "rows": "0..5000:+11",
    "dim": "1,64,512,513,30000",
    "num_weights": "0,1,1000",
    "grad_dtype": "fp32,bf16",
}
FEW = (
    "product",
    "rows",
    "dim",
    "num_weights",
    "grad_dtype",
    "status",
    "block_dim",
    "tiling_key",
    "workspace_bytes",
)


@pytest.fixture(scope="session")
def small():
    """A sweep of 13650 rows with few columns: operator, grid, and further keywords of a sweep."""
    return "embedding_dense_backward", GRID, {"columns": FEW}
