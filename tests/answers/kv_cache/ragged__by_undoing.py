class RaggedKVCache:
    def __init__(self, B, S_max, K, H):
        self.k = torch.full((B, S_max, K, H), torch.nan)
        self.v = self.k.clone()
        self.n = np.zeros(B, dtype=int)

    def append(self, k, v, n_new):
        before = self.n.copy()
        try:
            for b in range(len(self.n)):
                for t in range(n_new[b]):
                    self.k[b, self.n[b]], self.v[b, self.n[b]] = k[b, t], v[b, t]
                    self.n[b] += 1
        except IndexError:
            self.n = before
            raise ValueError("no room") from None
        return [self.k, self.v, torch.from_numpy(self.n)]

    def free(self, b):
        self.n[b] = 0
        return self
