def cost(tokens_per_s, n_chips, price_per_chip_hour, busy):
    chip_seconds_per_token = n_chips / (tokens_per_s * busy)
    return torch.tensor([1.0, price_per_chip_hour]) * chip_seconds_per_token * 1e6 / 3600
