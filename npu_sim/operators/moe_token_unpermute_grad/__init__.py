"""MoeTokenUnpermuteGrad: declaration, plan, computation, timeline and studies."""
