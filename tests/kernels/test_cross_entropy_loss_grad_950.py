"""Labels of CrossEntropyLossGrad on Ascend 950."""

import numpy as np
import pytest

from npu_sim.kernels.ascend_950 import cross_entropy_loss_grad as kernels


@pytest.mark.parametrize("label", [-1, 5])
def test_the_first_label_out_of_range_is_found(label):
    labels = kernels.Labels(np.array([1, label, 2]), np.empty(0, np.float32), 5, -100)
    passes = kernels.Passes(np.array([[0, 2], [2, 3]]), 2, False)
    assert kernels.survey_labels(labels, passes, True).out_of_range == 1
