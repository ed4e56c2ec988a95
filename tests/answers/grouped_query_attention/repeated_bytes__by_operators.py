def attention_bytes(B, S, N, K, H, bytes_per_value):
    def size(*shape):
        return math.prod(shape) * bytes_per_value

    one_repeat = size(B, S, K, H) + size(B, S, N, H)
    by_heads = {heads: size(B, N, H) + 2 * size(B, S, heads, H) + size(B, N, H) for heads in (N, K)}
    return {"repeated": 2 * one_repeat + by_heads[N], "shared": by_heads[K]}
