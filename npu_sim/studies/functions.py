"""The studies under the names of their commands, as ``npu_sim.study``."""

from npu_sim.studies.certificate import certify as certificate
from npu_sim.studies.determinism import study_determinism as determinism
from npu_sim.studies.invariance import study_invariance as invariance
from npu_sim.studies.precision import study_precision as precision

__all__ = ["certificate", "determinism", "invariance", "precision"]
