"""Slow reference of CrossEntropyLoss on Atlas A2 and A3, written from its specification page.

exp and ln are computed in float64 and rounded to fp32.
"""

import numpy as np

F = np.float32


def exp(values):
    """Return exp of fp32 numbers, rounded once."""
    return np.exp(values.astype(np.float64)).astype(F)


def ln(value):
    """Return the logarithm of an fp32 number, rounded once."""
    return np.log(np.float64(value)).astype(F)


def tree(values):
    """Return the sum of neighbours, level by level, of values padded with +0 to a power of two."""
    values = np.asarray(values, F)
    level = np.zeros(1 << max(len(values) - 1, 0).bit_length(), F)
    level[: len(values)] = values
    while len(level) > 1:
        level = level[0::2] + level[1::2]
    return level[0] + F(0)


def row_sum(values, chunk):
    """Return the sum of a row: chunks, each cut anew into pieces of 8192, added one by one."""
    total = F(0)
    for start in range(0, len(values), chunk):
        part = values[start : start + chunk]
        for begin in range(0, len(part), 8192):
            total = total + tree(part[begin : begin + 8192])
    return total


def core_ranges(rows, cores):
    """Return row ranges: the first rows % cores cores (or all) take ceil(rows, cores)."""
    front = rows % cores or cores
    sizes = [-(-rows // cores) if core < front else rows // cores for core in range(cores)]
    ends = np.cumsum([size for size in sizes if size])[: min(rows, cores)]
    return [(int(end) - size, int(end)) for end, size in zip(ends, sizes, strict=False)]


def core_sum(values, place=1 << 40):
    """Return the sum of a core's rows; of more than 8192 the first 4096 alone.

    From partial sum number ``place`` of 64 rows on, these overwrite the sum of the first 4096.
    """
    count = len(values)
    if count <= 4096 or count == 8192:
        return tree(values)
    first = tree(values[:4096])
    if -(-(count - 4096) // 64) > place:
        start = 4096 + 64 * place
        first = tree(values[start : start + 64])
    return first if count > 8192 else first + tree(values[4096:])


def loss_and_log_prob(
    x, target, weight, reduction, ignore_index, smoothing, cores, chunk, place=1 << 40
):
    """Return loss and log-probabilities in the dtype of x."""
    wide, e = x.astype(F), F(smoothing)
    log_prob = np.empty(wide.shape, F)
    losses, w, s = (np.zeros(len(x), F) for _ in range(3))
    with np.errstate(all="ignore"):
        for row, values in enumerate(wide):
            m = max(F(np.finfo(F).min), values.max())
            lse = ln(row_sum(exp(values + (-m)), chunk)) + m
            log_prob[row] = values + (-lse)
            s[row] = F(-0.0)
            if target[row] == ignore_index:
                continue
            w[row] = F(1) if weight is None else weight[target[row]]
            losses[row] = log_prob[row, target[row]] * w[row]
            if e > 0:
                products = log_prob[row] if weight is None else log_prob[row] * weight
                s[row] = -row_sum(products, chunk)
        k, e1 = e / F(x.shape[1]), e - F(1)
        if reduction == "none":
            loss = losses * e1 + s * k if e > 0 else losses * F(-1)
        else:
            ranges = core_ranges(len(x), cores)
            overwritten = place if reduction == "mean" else 1 << 40
            total = tree([core_sum(losses[a:b], overwritten) for a, b in ranges])
            weights, smooth = (tree([core_sum(v[a:b]) for a, b in ranges]) for v in (w, s))
            loss = (e1 * total) + (smooth * k) if e > 0 else -total
            loss = np.reshape(loss / weights if reduction == "mean" else loss, 1)
        return loss.astype(x.dtype), log_prob.astype(x.dtype)
