import numpy as np


def choose(lengths, sizes, pool):
    n = np.array(lengths)
    tokens = np.cumsum(n)
    rates = []
    for size in sizes:
        taken = np.cumsum(np.ceil(n / size))
        there = np.floor(pool["pool_bytes"] / (size * pool["token_bytes"]))
        fit = int((taken <= there).sum())
        if fit == 0:
            rates.append(0.0)
            continue
        read = tokens[fit - 1] * pool["token_bytes"] / pool["bytes_per_s"]
        rates.append(fit / (pool["other_s"] + read + taken[fit - 1] * pool["block_s"]))
    return sizes[int(np.argmax(rates))]
