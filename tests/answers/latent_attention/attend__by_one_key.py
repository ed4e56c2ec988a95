def attend(q_latent, q_rope, latent, k_rope, scale):
    B, T, N, R = q_latent.shape
    S = latent.shape[1]
    q = torch.cat([q_latent, q_rope], dim=3).transpose(1, 2).double()
    k = torch.cat([latent, k_rope], dim=2)[:, None].double()
    scores = (q @ k.transpose(2, 3)) * scale
    visible = torch.ones(T, S).tril(S - T).bool()
    scores = scores.masked_fill(~visible, float("-inf"))
    scores = scores - scores.amax(3, keepdim=True)
    weights = scores.exp() / scores.exp().sum(3, keepdim=True)
    return (weights @ latent[:, None].double()).transpose(1, 2).float()
