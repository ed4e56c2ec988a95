def keep(cache, lengths, kept):
    B, S, H = cache.shape
    rows = torch.full((B, S), -1)
    for b in range(B):
        stay = list(range(lengths[b])) + [lengths[b] + place for place in kept[b]]
        rows[b, : len(stay)] = torch.tensor(stay, dtype=torch.long)
    taken = cache.gather(1, rows.clamp(min=0)[:, :, None].expand(B, S, H))  # [B, S, H]
    taken[rows < 0] = 0
    return taken, (rows >= 0).sum(1).tolist()
