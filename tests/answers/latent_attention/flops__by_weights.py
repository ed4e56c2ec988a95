def flops(B, T, S, N, R, nope_dim, rope_dim, v_dim):
    params = N * (nope_dim + v_dim) * R  # in both up-projections
    pairs = B * N * T * S
    wide, narrow = R * 2 + rope_dim, nope_dim + v_dim + rope_dim
    return dict(
        expanded=2 * (B * S * params + pairs * narrow),
        absorbed=2 * (B * T * params + pairs * wide),
    )
