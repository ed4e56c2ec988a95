import math


def admit(prompts, n_free, n_blocks, block_size, percent):
    stay = math.floor(n_blocks * percent / 100)
    room, most = n_free - stay, n_blocks - stay
    said = {"admitted": [], "refused": []}
    taken = 0
    for i, n in enumerate(prompts):
        blocks = (n + block_size - 1) // block_size
        if blocks > most:
            said["refused"] += [i]
            continue
        taken += blocks
        if taken > room:
            return said
        said["admitted"] += [i]
    return said
