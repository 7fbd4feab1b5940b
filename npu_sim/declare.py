"""All names that an operator declaration uses: ``from npu_sim.declare import *``.

``docs/add_an_operator.md`` walks through it.
"""

from typing import Annotated, Any, NamedTuple

from npu_sim.cores import Device
from npu_sim.framework.arguments import Attribute, IntArray, Output, Tensor
from npu_sim.framework.axes import FLOAT_DTYPES, Derived, Number, Switch, Word
from npu_sim.framework.case import Case, Inspection
from npu_sim.framework.checks import (
    Attributes,
    Contiguous,
    Dtypes,
    DtypeTable,
    Fits,
    Formats,
    Given,
    Holds,
    Like,
    NothingToDo,
    Ranks,
    SameDtype,
    Shapes,
    Supported,
)
from npu_sim.framework.describing import Condition, Description, decision, vector_plan
from npu_sim.framework.operator import Assumed, Operator
from npu_sim.numbers.values import normal
from npu_sim.orders import trees
from npu_sim.orders.claims import Claim, count_units, probe_terms
from npu_sim.plans.answers import Evidence
from npu_sim.plans.model import Caveat, OutputOrder, WorkspacePart
from npu_sim.tiling.common import FAILED, SUCCESS, Field, Part, align, ceil_div, nothing
from npu_sim.timelines.program import (
    Copy,
    Instruction,
    Program,
    Step,
    View,
    ranged,
    rows_of_cores,
    vector_phase,
    vector_tile,
)

__all__ = [
    "FAILED",
    "FLOAT_DTYPES",
    "SUCCESS",
    "Annotated",
    "Any",
    "Assumed",
    "Attribute",
    "Attributes",
    "Case",
    "Caveat",
    "Claim",
    "Condition",
    "Contiguous",
    "Copy",
    "Derived",
    "Description",
    "Device",
    "DtypeTable",
    "Dtypes",
    "Evidence",
    "Field",
    "Fits",
    "Formats",
    "Given",
    "Holds",
    "Inspection",
    "Instruction",
    "IntArray",
    "Like",
    "NamedTuple",
    "NothingToDo",
    "Number",
    "Operator",
    "Output",
    "OutputOrder",
    "Part",
    "Program",
    "Ranks",
    "SameDtype",
    "Shapes",
    "Step",
    "Supported",
    "Switch",
    "Tensor",
    "View",
    "Word",
    "WorkspacePart",
    "align",
    "ceil_div",
    "count_units",
    "decision",
    "normal",
    "nothing",
    "probe_terms",
    "ranged",
    "rows_of_cores",
    "trees",
    "vector_phase",
    "vector_plan",
    "vector_tile",
]
