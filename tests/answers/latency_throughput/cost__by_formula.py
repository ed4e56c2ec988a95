def cost(tokens_per_s, n_chips, price_per_chip_hour, busy):
    hours = 1e6 / (tokens_per_s * busy) * n_chips / 3600
    return hours, hours * price_per_chip_hour
