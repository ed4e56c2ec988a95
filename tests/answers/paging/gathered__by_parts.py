def moved_bytes(lengths, block_size, K, H, bytes_per_number):
    def bytes_of(tokens):
        keys = values = tokens * K * H * bytes_per_number
        return keys + values

    once = sum(bytes_of(n) for n in lengths)
    blocks = max((n + block_size - 1) // block_size for n in lengths)
    row = bytes_of(blocks * block_size)
    read_blocks = write_copy = read_copy = row * len(lengths)
    return {
        "in_place": once,
        "one_by_one": once + once + once,
        "padded": read_blocks + write_copy + read_copy,
    }
