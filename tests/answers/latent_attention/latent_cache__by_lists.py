class LatentCache:
    def __init__(self, B, S_max, R, rope_dim, theta):
        self.room, self.R, half = S_max, R, rope_dim // 2
        self.speed = torch.tensor([theta ** (-i / half) for i in range(half)], dtype=torch.float64)
        self.kept = []

    def append(self, down):
        if len(self.kept) + down.shape[1] > self.room:
            raise ValueError("full")
        for token in down.unbind(1):
            angle = len(self.kept) * self.speed
            latent, key = token[:, : self.R], token[:, self.R :].double()
            a, b = key.chunk(2, dim=1)
            x, y = a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()
            self.kept.append((latent, torch.cat([x, y], 1).float()))
        return tuple(torch.stack(parts, 1) for parts in zip(*self.kept))
