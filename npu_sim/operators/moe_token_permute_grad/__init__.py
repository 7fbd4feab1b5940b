"""MoeTokenPermuteGrad: declaration, plan, computation, timeline and studies."""
