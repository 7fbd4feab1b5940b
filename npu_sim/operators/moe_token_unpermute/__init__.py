"""MoeTokenUnpermute: declaration, plan, computation, timeline and studies."""
