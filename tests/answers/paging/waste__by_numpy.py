import numpy as np


def waste(held, final, max_len, block_size):
    now, end = np.array(held, dtype=np.int64), np.array(final, dtype=np.int64)

    def kinds(places):
        reach = np.minimum(end, places)
        parts = now.sum(), (reach - now).sum(), (places - reach).sum()
        return dict(zip(("used", "reserved", "internal"), map(int, parts)))

    blocks = (now + block_size - 1) // block_size
    return {"pieces": kinds(np.full_like(now, max_len)), "blocks": kinds(blocks * block_size)}
