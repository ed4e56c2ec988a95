def choose(lengths, sizes, pool):
    best, best_rate = None, -1.0
    for size in sizes:
        blocks = int(pool["pool_bytes"] // (size * pool["token_bytes"]))
        seconds, n_running = pool["other_s"], 0
        for n in lengths:
            needed = (n + size - 1) // size
            if needed > blocks:
                break
            blocks -= needed
            n_running += 1
            seconds += n * pool["token_bytes"] / pool["bytes_per_s"] + needed * pool["block_s"]
        rate = n_running / seconds if n_running else 0.0
        if rate > best_rate:
            best, best_rate = size, rate
    return best
