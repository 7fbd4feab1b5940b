"""EmbeddingDenseBackward on Ascend 950: declaration, plan, computation, timeline and study."""
