def intensity(B, D, F, bytes_per_param, bytes_per_activation):
    b, d, f = torch.tensor([B, D, F], dtype=torch.float32)
    return 2 * b * d * f / (bytes_per_activation * b * (d + f) + bytes_per_param * d * f)
