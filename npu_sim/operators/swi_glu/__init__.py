"""SwiGlu: declaration, plan, computation, timeline and studies; SwiGluGrad shares most of them."""
