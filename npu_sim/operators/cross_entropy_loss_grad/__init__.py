"""CrossEntropyLossGrad: declaration, plan, computation, timeline and studies."""
