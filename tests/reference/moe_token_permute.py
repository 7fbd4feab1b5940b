"""Slow reference of MoeTokenPermute, from specification page ``moe_token_permute``.

Uses Python's sort on exact fractions, and no code of the package.
"""

import numpy as np


def as_fp32(number):
    """Return an integer rounded to 24 bits, ties away from zero."""
    size, unit = abs(number), 1
    while size // unit >= 2**24:
        unit *= 2
    rounded = (2 * size + unit) // (2 * unit) * unit
    return rounded if number >= 0 else -rounded


def moe_token_permute(tokens, indices, num_out_tokens=0, rounds=False):
    """Return permuted_tokens and sorted_indices; ``rounds`` sorts the ids as fp32."""
    flat = [int(one) for one in indices.reshape(-1)]
    keys = [as_fp32(one) if rounds else one for one in flat]
    first = sorted(range(len(flat)), key=lambda copy: keys[copy])  # Python's sort is stable
    wanted = num_out_tokens + len(flat) if num_out_tokens <= 0 else num_out_tokens
    kept = min(max(wanted, 0), len(flat))
    experts = indices.shape[1] if indices.ndim == 2 else 1
    permuted = np.empty((kept, *tokens.shape[1:]), tokens.dtype)
    places = np.empty(len(flat), np.int32)
    for place, copy in enumerate(first):
        places[copy] = place
        if place < kept:
            permuted[place] = tokens[copy // experts]
    return permuted, places
