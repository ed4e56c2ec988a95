def expose():
    rows, others = np.ones((2, 3)), np.full((2, 3), 2.0)
    large = [rows, np.array([10_000.0, -10_000.0]), others, np.array([9_999.5, -9_999.0])]
    empty = [
        torch.zeros(16, 16),
        torch.full((16,), -math.inf),
        torch.zeros(16, 16),
        torch.full((16,), -math.inf),
    ]
    return (large, empty)


def merge(out_a, lse_a, out_b, lse_b):
    lse = torch.stack([lse_a, lse_b]).double()
    weights = torch.softmax(lse, dim=0).nan_to_num(0.0)
    out = torch.einsum("pt,pth->th", weights, torch.stack([out_a, out_b]).double())
    return out.float(), torch.logsumexp(lse, dim=0).float()
