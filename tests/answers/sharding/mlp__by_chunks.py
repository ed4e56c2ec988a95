def mlp_rank(x, w_gate, w_up, w_down, bias, rank, n, all_reduce):
    gate = w_gate.chunk(n, dim=1)[rank]
    up = w_up.chunk(n, dim=1)[rank]
    down = w_down.chunk(n, dim=0)[rank]
    h = x @ gate
    h = h * torch.sigmoid(h) * (x @ up)
    return bias + all_reduce(h @ down)
