"""CrossEntropyLoss: declaration, plan, computation, timeline and studies."""
