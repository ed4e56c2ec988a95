class RingCache:
    def __init__(self, B, window, K, H):
        self.window = window
        self.keys = torch.zeros(B, window, K, H)
        self.values = torch.zeros(B, window, K, H)
        self.length = 0

    def append(self, k, v):
        T = k.shape[1]
        old = torch.arange(max(0, self.length + 1 - self.window), self.length) % self.window
        new = torch.arange(self.length, self.length + T)[-self.window :] % self.window
        out = []
        for ring, block in ((self.keys, k), (self.values, v)):
            out.append(torch.cat((ring.index_select(1, old), block), 1))
            ring[:, new] = block[:, -self.window :]
        self.length += T
        return tuple(out)
