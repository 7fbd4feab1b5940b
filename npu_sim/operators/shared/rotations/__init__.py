"""What RotaryPositionEmbedding and its gradient share: pairs of columns turned by angles."""
