def expose():
    none = float("-inf")
    return [
        [[[1]], [-200], [[3]], [-200]],
        [[[0, 0]], [none], [[0, 0]], [none]],
        [[[1, 2]], [0], [[3, 4]], [0.0]],
    ]


def merge(out_a, lse_a, out_b, lse_b):
    above = (lse_a - lse_b).nan_to_num(0.0)[:, None]
    out = torch.sigmoid(above) * out_a + torch.sigmoid(-above) * out_b
    return [out, torch.logaddexp(lse_a, lse_b)]
