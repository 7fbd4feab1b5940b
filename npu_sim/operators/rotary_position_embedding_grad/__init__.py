"""RotaryPositionEmbeddingGrad: declaration, plan, computation, timeline and studies."""
