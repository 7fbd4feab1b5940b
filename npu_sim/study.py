"""The studies under the names of their commands; :func:`ablation` needs PyTorch."""

from typing import Any

from npu_sim.language import Text
from npu_sim.studies.certificate import certify as certificate
from npu_sim.studies.determinism import study_determinism as determinism
from npu_sim.studies.invariance import study_invariance as invariance
from npu_sim.studies.precision import study_precision as precision

__all__ = ["ablation", "certificate", "determinism", "invariance", "precision"]  # noqa: F822


def __getattr__(name: str) -> Any:
    """Import PyTorch where the study of a training is used."""
    if name != "ablation":
        raise AttributeError(
            Text("module 'npu_sim' has no attribute {name}", name=repr(f"study.{name}"))
        )
    from npu_sim.torch.ablation import ablation

    return ablation
