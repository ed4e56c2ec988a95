class KVCache:
    def __init__(self, B, S_max, K, H, dtype):
        self.buffers = torch.zeros(2, B, S_max, K, H, dtype=getattr(torch, dtype))
        self.length = 0

    def append(self, k, v):
        T = k.shape[1]
        if self.length + T > self.buffers.shape[2]:
            raise ValueError("the cache is full")
        new = slice(self.length, self.length + T)
        self.buffers[0][:, new] = k
        self.buffers[1][:, new] = v
        self.length += T
        return self.buffers[0][:, : self.length], self.buffers[1][:, : self.length]

    def reset(self):
        self.length = 0
