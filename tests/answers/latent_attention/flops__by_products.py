def flops(B, T, S, N, R, nope_dim, rope_dim, v_dim):
    def product(rows, inner, columns):
        return 2 * rows * inner * columns

    expanded = (
        product(S, R, nope_dim)  # keys
        + product(S, R, v_dim)  # values
        + product(T, nope_dim + rope_dim, S)  # scores
        + product(T, S, v_dim)  # weighted sums
    )
    absorbed = (
        product(T, nope_dim, R)  # queries
        + product(T, R, S)  # scores against latents
        + product(T, rope_dim, S)  # and against rotated keys
        + product(T, S, R)  # sums of latents
        + product(T, R, v_dim)  # values
    )
    return {"absorbed": B * N * absorbed, "expanded": B * N * expanded}
