"""MoeTokenUnpermuteGrad on Ascend 950: its declaration, plan, computation, timeline and study."""
