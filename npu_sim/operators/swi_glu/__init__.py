"""SwiGlu: declaration, plan, computation, timeline and studies."""
