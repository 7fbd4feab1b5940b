"""ConvTbcBackward: declaration, plan, computation, timeline and studies."""
