"""Common parts of the permutations of tokens and their gradients: tokens routed to experts."""
