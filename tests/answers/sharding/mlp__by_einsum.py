def mlp_rank(x, w_gate, w_up, w_down, bias, rank, n, all_reduce):
    D, F = w_gate.shape
    gate = torch.einsum("bd,df->bf", x, w_gate.view(D, n, F // n)[:, rank])
    up = torch.einsum("bd,df->bf", x, w_up.view(D, n, F // n)[:, rank])
    inner = torch.nn.functional.silu(gate) * up
    total = all_reduce(torch.einsum("bf,fd->bd", inner, w_down.view(n, F // n, D)[rank]))
    return total + bias[None, :]
