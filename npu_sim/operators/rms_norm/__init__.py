"""RmsNorm: declaration, plan, computation, timeline and studies."""
