"""AddRmsNorm: declaration, plan, computation, timeline and studies."""
