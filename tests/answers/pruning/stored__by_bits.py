def stored_bytes(n, n_zero, bytes_per_number, bytes_per_index):
    number, left = 8 * bytes_per_number, n - n_zero
    bits = {
        "dense": n * number,
        "bitmap": left * number + n,
        "indexed": left * (number + 8 * bytes_per_index),
        "two_four": n // 2 * (number + 2),
    }
    return {name: size / 8 for name, size in bits.items()}
