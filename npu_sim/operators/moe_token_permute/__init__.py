"""MoeTokenPermute: declaration, plan, computation, timeline and studies."""
