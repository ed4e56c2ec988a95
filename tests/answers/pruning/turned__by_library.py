def turned(streams):
    found = []
    for i in range(len(streams) - 1):
        pair = [s.to(torch.float64) for s in streams[i : i + 2]]
        found.append(1 - torch.nn.functional.cosine_similarity(*pair, dim=1).mean().item())
    return found
