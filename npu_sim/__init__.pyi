"""Types of the package; written by ci/signatures.py from the declarations of the operators."""

from npu_sim import aclnn as aclnn, study as study, torch as torch
from npu_sim.framework.signatures import *
from npu_sim.status import AclnnError as AclnnError
from npu_sim.status import NpuSimError as NpuSimError
from npu_sim.framework.execution import OrderMask as OrderMask
from npu_sim.plans.model import Plan as Plan
from npu_sim.cores import Profile as Profile
from npu_sim.framework.execution import Result as Result
from npu_sim.status import Status as Status
from npu_sim.numbers.formats import TensorSpec as TensorSpec
from npu_sim.status import UsageError as UsageError
from npu_sim.tools.device_kit.check import check_kit as check_kit
from npu_sim.tools.profiles.measured_profile import compare_profiles as compare_profiles
from npu_sim.tiling import decode_tiling as decode_tiling
from npu_sim.tools.failures.diagnosis import diagnose as diagnose
from npu_sim.tools.device_kit.folder import kit as kit
from npu_sim.cores import load_profile as load_profile
from npu_sim.functions import model as model
from npu_sim.functions import preflight as preflight
from npu_sim.questions.products import products as products
from npu_sim.tools.profiles.measured_profile import profile as profile
from npu_sim.tools.dumps.reader import read_dump as read_dump
from npu_sim.tools.profiles.measured_profile import read_profile as read_profile
from npu_sim.sweeps.reader import read_sweep as read_sweep
from npu_sim.framework.registration import register as register
from npu_sim.framework.registration import register_file as register_file
from npu_sim.tools.device_kit.rehearsal import rehearse_kit as rehearse_kit
from npu_sim.sweeps.runner import sweep as sweep
from npu_sim.sweeps.runner import sweep_to as sweep_to
from npu_sim.functions import timeline as timeline
from npu_sim.verdicts.verify import verify as verify
from npu_sim.functions import workspace as workspace

__version__: str
__all__: list[str]
