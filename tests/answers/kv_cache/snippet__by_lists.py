def expose():
    one = {
        "n_sequences": 2,
        "S_max": 5,
        "dtype": "float32",
        "blocks": [([0, 1], 1), ([1], 1), ([0, 1], 1)],
    }
    two = {"n_sequences": 2, "S_max": 5, "dtype": "float32", "blocks": [([0, 1], 3), ([0, 1], 3)]}
    three = {"n_sequences": 2, "S_max": 5, "dtype": "float16", "blocks": [([0, 1], 3)]}
    return (one, two, three)


class Cache:
    def __init__(self, n_sequences, S_max, K, H, dtype):
        self.limit = S_max
        nothing = torch.zeros(0, K, H, dtype=getattr(torch, dtype))
        self.blocks = [[(nothing, nothing)] for _ in range(n_sequences)]

    def _count(self, b):
        return sum(k.shape[0] for k, _ in self.blocks[b])

    def update(self, rows, k, v):
        for b in rows:
            if self._count(b) + k.shape[1] > self.limit:
                raise ValueError(f"sequence {b} is full")
        for i, b in enumerate(rows):
            self.blocks[b].append((k[i], v[i]))

    def read(self, b):
        return [torch.cat(x) for x in zip(*self.blocks[b])]
