class LatentCache:
    def __init__(self, B, S_max, R, rope_dim, theta):
        self.S_max, self.widths = S_max, [R, rope_dim]
        i = torch.arange(0, rope_dim, 2, dtype=torch.float32)
        angle = torch.outer(torch.arange(S_max, dtype=torch.float32), theta ** (-i / rope_dim))
        self.turn = torch.polar(torch.ones_like(angle), angle)  # [S_max, rope_dim/2]
        self.held = [torch.zeros(B, 0, R), torch.zeros(B, 0, rope_dim)]

    def append(self, down):
        start = self.held[0].shape[1]
        end = start + down.shape[1]
        if not end <= self.S_max:
            raise ValueError(f"only {self.S_max - start} more")
        latent, key = down.split(self.widths, dim=2)
        half = self.widths[1] // 2
        points = torch.complex(key[..., :half].contiguous(), key[..., half:].contiguous())
        points = points * self.turn[start:end]
        key = torch.cat([points.real, points.imag], dim=2)
        self.held = [torch.cat(pair, dim=1) for pair in zip(self.held, (latent, key))]
        return list(self.held)
