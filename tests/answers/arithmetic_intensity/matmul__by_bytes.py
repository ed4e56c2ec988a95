def intensity(B, D, F, bytes_per_param, bytes_per_activation):
    flops = B * F * 2 * D
    read = B * D * bytes_per_activation + D * F * bytes_per_param
    written = B * F * bytes_per_activation
    return flops / (read + written)
