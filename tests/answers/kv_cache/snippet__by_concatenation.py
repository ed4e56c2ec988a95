def expose():
    half = {"n_sequences": 2, "S_max": 4, "dtype": "bfloat16", "blocks": [[[1], 2], [[0], 1]]}
    full = {
        "n_sequences": 1,
        "S_max": np.int64(1),
        "dtype": "float32",
        "blocks": [[np.array([0]), 1]] * 2,
    }
    return [half, full]


class Cache:
    def __init__(self, n_sequences, S_max, K, H, dtype):
        self.S_max = S_max
        self.held = [
            (torch.zeros(0, K, H, dtype=getattr(torch, dtype)),) * 2 for _ in range(n_sequences)
        ]

    def update(self, rows, k, v):
        if any(len(self.held[b][0]) + k.shape[1] > self.S_max for b in rows):
            raise ValueError("full")
        for b, *new in zip(rows, k, v):
            self.held[b] = tuple(map(torch.cat, zip(self.held[b], new)))
        return self

    def read(self, b):
        return self.held[b]
