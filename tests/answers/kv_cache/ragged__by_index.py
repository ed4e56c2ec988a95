class RaggedKVCache:
    def __init__(self, B, S_max, K, H):
        self.k = torch.full((B, S_max, K, H), float("nan"))
        self.v = self.k.clone()
        self.lengths = torch.zeros(B, dtype=torch.int64)

    def append(self, k, v, n_new):
        n_new = torch.tensor(n_new)
        if ((self.lengths + n_new) > self.k.size(1)).any():
            raise ValueError("a sequence has no room")
        real = torch.arange(k.size(1))[None, :] < n_new[:, None]
        b, t = torch.where(real)
        place = self.lengths[b] + t
        self.k[b, place] = k[b, t]
        self.v[b, place] = v[b, t]
        self.lengths += n_new
        S = int(self.lengths.max())
        return self.k[:, :S], self.v[:, :S], self.lengths.tolist()

    def free(self, b):
        self.lengths[b] = 0
