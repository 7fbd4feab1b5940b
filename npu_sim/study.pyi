"""Types of the studies; written by ci/signatures.py from the declarations of the operators."""

from npu_sim.framework.signatures import certificate as certificate
from npu_sim.framework.signatures import determinism as determinism
from npu_sim.framework.signatures import invariance as invariance
from npu_sim.framework.signatures import precision as precision
from npu_sim.torch.ablation import ablation as ablation
