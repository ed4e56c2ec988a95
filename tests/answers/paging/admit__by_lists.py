def admit(prompts, n_free, n_blocks, block_size, percent):
    watermark = (n_blocks * percent - n_blocks * percent % 100) // 100
    needed = [n // block_size + bool(n % block_size) for n in prompts]
    never = [n_blocks < watermark + blocks for blocks in needed]
    admitted, end = [], len(prompts)
    for i, blocks in enumerate(needed):
        if never[i]:
            continue
        if n_free < watermark + blocks:
            end = i
            break
        n_free = n_free - blocks
        admitted.append(i)
    return {"admitted": admitted, "refused": [i for i in range(end) if never[i]]}
