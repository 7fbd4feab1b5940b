"""Orders of addition: summation trees, and the declarations of operators that studies examine."""

from npu_sim.orders import trees
from npu_sim.orders.claims import Claim, LastWrites, OpenRule, Parts, count_units, probe_terms
from npu_sim.orders.trees import Tree, fold_adds, folded, left_fold, shape_hash, width_of

__all__ = [
    "Claim",
    "LastWrites",
    "OpenRule",
    "Parts",
    "Tree",
    "count_units",
    "fold_adds",
    "folded",
    "left_fold",
    "probe_terms",
    "shape_hash",
    "trees",
    "width_of",
]
