class RaggedKVCache:
    def __init__(self, B, S_max, K, H):
        self.kv = np.full((2, B, S_max + 1, K, H), np.nan, dtype=np.float32)
        self.lengths = np.zeros(B, dtype=np.int32)
        self.S_max = S_max

    def append(self, k, v, n_new):
        after = self.lengths + np.array(n_new)
        if after.max() > self.S_max:
            raise ValueError(f"no room for {after.tolist()}")
        new = torch.stack([k, v]).numpy()
        for b, n in enumerate(n_new):
            self.kv[:, b, after[b] - n : after[b]] = new[:, b, :n]
        self.lengths = after
        keys, values = torch.from_numpy(self.kv.copy())
        return keys, values, torch.from_numpy(after)

    def free(self, b):
        self.lengths[b] = 0
        return self
