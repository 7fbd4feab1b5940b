"""SwiGlu: declaration, plan, computation, timeline and studies; most serve SwiGluGrad too."""
