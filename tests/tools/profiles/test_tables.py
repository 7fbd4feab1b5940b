"""The launches of a profile as tables of pandas and Arrow."""

import pytest

import npu_sim
from tests.measured import EMBEDDING, GRAD, write_csv
from tests.plans.test_tables import require_same_tables


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    launches = [GRAD._replace(vector_us=38.6), *EMBEDDING]
    file = write_csv(tmp_path_factory.mktemp("profile") / "two.csv", launches)
    return npu_sim.read_profile(file, soc="Ascend910B3")


def test_pandas_and_arrow_have_the_same_columns_and_values(measured):
    require_same_tables(measured)


def test_a_nested_record_that_some_rows_lack_has_one_column_per_field(measured):
    columns = measured.table_columns()
    assert columns["kernel"] == ["EmbeddingDenseGradV2", "RmsNormGrad"]
    assert [value is None for value in columns["estimate.low_us"]] == [True, False]
    assert not {"estimate", "cases"} & columns.keys()
