class Full(ValueError):
    pass


class KVCache:
    def __init__(self, B, S_max, K, H, dtype):
        self._empty = torch.empty((B, 0, K, H), dtype=vars(torch)[dtype])
        self._room = S_max
        self.reset()

    @property
    def length(self):
        return self._kv[0].size(1)

    def append(self, k, v):
        grown = [torch.cat(pair, dim=1) for pair in zip(self._kv, (k, v))]
        if grown[0].size(1) > self._room:
            raise Full(f"at most {self._room} tokens")
        self._kv = grown
        return grown

    def reset(self):
        self._kv = [self._empty, self._empty]
