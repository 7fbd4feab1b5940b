"""SwiGluGrad: declaration, plan, computation, timeline and studies."""
