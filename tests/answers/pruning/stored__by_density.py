def stored_bytes(n, n_zero, bytes_per_number, bytes_per_index):
    dense = n * bytes_per_number
    density = 1 - n_zero / n
    return {
        "dense": dense,
        "bitmap": dense * density + n / 8,
        "indexed": (dense + n * bytes_per_index) * density,
        "two_four": dense / 2 + n / 8,
    }
