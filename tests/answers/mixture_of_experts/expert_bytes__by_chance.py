def expert_bytes(B, E, k, D, F, bytes_per_param):
    left_alone = math.pow((E - k) / E, B)
    return (1 - left_alone) * E * (D * F + D * F + F * D) * bytes_per_param
