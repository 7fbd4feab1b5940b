"""Common parts of RotaryPositionEmbedding and its gradient: pairs of columns turned by angles."""
