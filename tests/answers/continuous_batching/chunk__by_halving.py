def largest_chunk(read_bytes, token_flops, bytes_per_s, flops_per_s, B, prompt, limit_s):
    def keeps(n):
        return max(read_bytes / bytes_per_s, (B + n) * token_flops / flops_per_s) <= limit_s

    if not keeps(0):
        return {"chunk": None, "passes": None}
    low, high = 0, prompt + 1
    while high - low > 1:
        middle = (low + high) // 2
        if keeps(middle):
            low = middle
        else:
            high = middle
    return {"chunk": low, "passes": (prompt - 1) // low + 1 if low else None}
