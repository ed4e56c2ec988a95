def cost(tokens_per_s, n_chips, price_per_chip_hour, busy):
    millions_a_day = 86_400 * busy * tokens_per_s / 1e6
    paid_a_day = 24 * n_chips * price_per_chip_hour
    return [24 * n_chips / millions_a_day, paid_a_day / millions_a_day]
