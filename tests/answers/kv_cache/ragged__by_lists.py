class RaggedKVCache:
    def __init__(self, B, S_max, K, H):
        self.S_max = S_max
        self.shape = (K, H)
        self.rows = [([], []) for _ in range(B)]

    def append(self, k, v, n_new):
        if any(len(row[0]) + n > self.S_max for row, n in zip(self.rows, n_new)):
            raise ValueError("no room")
        for b, n in enumerate(n_new):
            self.rows[b][0].extend(k[b, :n])
            self.rows[b][1].extend(v[b, :n])
        lengths = torch.tensor([len(row[0]) for row in self.rows])
        keys, values = (torch.zeros(len(self.rows), self.S_max, *self.shape) for _ in range(2))
        for b, row in enumerate(self.rows):
            for s in range(lengths[b]):
                keys[b, s], values[b, s] = row[0][s], row[1][s]
        return keys, values, lengths

    def free(self, b):
        self.rows[b] = ([], [])
