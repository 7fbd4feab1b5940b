"""EmbeddingDenseBackward: declaration, plan, computation, timeline and studies."""
