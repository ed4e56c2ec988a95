def decode_q4_0(data):
    blocks = np.array(data, dtype=np.uint8).reshape(-1, 18)
    scales = blocks[:, :2].copy().view(np.float16).astype(float)
    codes = np.concatenate([blocks[:, 2:] % 16, blocks[:, 2:] // 16], axis=1)
    return ((codes.astype(float) - 8) * scales).flatten().tolist()
