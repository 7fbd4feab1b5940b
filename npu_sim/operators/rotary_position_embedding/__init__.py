"""RotaryPositionEmbedding: declaration, plan, computation, timeline and studies."""
