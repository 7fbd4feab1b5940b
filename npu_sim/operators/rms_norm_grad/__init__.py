"""RmsNormGrad: declaration, plan, computation, timeline and studies."""
