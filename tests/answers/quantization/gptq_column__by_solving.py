def gptq_column(w, h_inverse, rounded):
    h = torch.linalg.inv(h_inverse)
    rest = h[1:, 1:]
    error = w[:, 0] - rounded
    # the columns left minimize (d0, d) H (d0, d)^T with d0 = -error: rest d = error h[1:, 0]
    move = torch.linalg.solve(rest, h[1:, :1] @ error[None])  # [m - 1, O]
    return w[:, 1:] + move.T, torch.linalg.inv(rest)
