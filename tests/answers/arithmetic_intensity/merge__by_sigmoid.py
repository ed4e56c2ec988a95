def expose():
    none = float("-inf")
    return [
        [[[1]], [-200], [[3]], [-200]],
        [[[0, 0]], [none], [[0, 0]], [none]],
        [[[1, 2]], [0], [[3, 4]], [0.0]],
    ]


def merge(out_a, lse_a, out_b, lse_b):
    share = torch.sigmoid(lse_a - lse_b).nan_to_num(0.5)[:, None]
    return [share * out_a + (1 - share) * out_b, torch.logaddexp(lse_a, lse_b)]
