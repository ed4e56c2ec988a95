def attend(q_latent, q_rope, latent, k_rope, scale):
    B, T, N, R = q_latent.shape
    S = latent.shape[1]
    out = torch.empty(B, T, N, R)
    for b in range(B):
        for t in range(T):
            upto = S - T + t + 1
            c = latent[b, :upto]
            scores = q_latent[b, t] @ c.T + q_rope[b, t] @ k_rope[b, :upto].T
            out[b, t] = torch.softmax(scores * scale, dim=1) @ c
    return out
