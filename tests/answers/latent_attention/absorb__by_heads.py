def absorb(w_q, w_uk, w_uv, w_o):
    queries = [up.T @ q for up, q in zip(w_uk, w_q)]
    outputs = [w_o[:, n] @ w_uv[n] for n in range(len(w_uv))]
    return torch.stack(queries), torch.stack(outputs)
