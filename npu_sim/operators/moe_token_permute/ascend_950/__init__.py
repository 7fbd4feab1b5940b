"""MoeTokenPermute on Ascend 950: its declaration, plan, computation and timeline."""
