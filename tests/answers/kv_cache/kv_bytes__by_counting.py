def kv_bytes(L, D, N, K, H, bytes_per_value):
    shapes = [(K, H) for _layer in range(L) for _kind in ("key", "value")]
    numbers = np.array([heads * width for heads, width in shapes])
    return numbers.sum() * np.float64(bytes_per_value)
