class KVCache:
    def __init__(self, B, S_max, K, H, dtype):
        self.places = torch.full((S_max, 2, B, K, H), float("nan"), dtype=getattr(torch, dtype))
        self.length = 0

    def append(self, k, v):
        free = self.places[self.length :]
        if k.shape[1] > len(free):
            raise ValueError(f"{len(free)} places are free")
        free[: k.shape[1]] = torch.stack([k, v]).permute(2, 0, 1, 3, 4)
        self.length += k.shape[1]
        keys, values = self.places[: self.length].permute(1, 2, 0, 3, 4)
        return [keys, values]

    def reset(self):
        self.length = 0
        self.places.fill_(float("nan"))
        return self
