"""ApplyAdamWV2: declaration, plan, computation, timeline and studies."""
