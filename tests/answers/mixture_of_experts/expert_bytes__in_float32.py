def expert_bytes(B, E, k, D, F, bytes_per_param):
    alone = torch.tensor(1 - k / E) ** B  # the chance that nobody picks a given expert
    return E * (1 - alone) * (3 * D * F) * bytes_per_param
