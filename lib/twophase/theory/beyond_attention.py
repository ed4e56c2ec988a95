"""What mixers without a growing cache weigh and compute: linear attention and the selective state
space.

Their states, whose size does not depend on the context, are in `theory.kv_cache`. Sources: Arora et
al. 2024 (BASED, arXiv 2402.18668); Gu and Dao 2023 (Mamba, arXiv 2312.00752).
"""

from twophase.theory._domain import Number, formula


@formula()
def taylor_features(feature_dim: Number) -> Number:
    """Features of the second-order Taylor map of exp: 1, every number, every product of two."""
    return 1 + feature_dim + feature_dim * feature_dim


@formula()
def linear_attention_params(D: Number, N: Number, H: Number, feature_dim: Number) -> Number:
    """Queries and keys of width feature_dim, values and output of width H, for each of N heads."""
    return D * N * (2 * feature_dim + 2 * H)


@formula()
def state_space_params(
    D: Number, d_inner: Number, d_state: Number, conv_width: Number, dt_rank: Number
) -> Number:
    """Mamba's mixer: input (with its gate) and output projections, the convolution, step size, B
    and C, A, and the skip."""
    projections = 2 * D * d_inner + d_inner * D
    convolution = d_inner * (conv_width + 1)
    selection = d_inner * (dt_rank + 2 * d_state) + (dt_rank + 1) * d_inner
    return projections + convolution + selection + d_inner * d_state + d_inner


@formula()
def linear_attention_flops(N: Number, n_features: Number, H: Number) -> Number:
    """FLOPs of a token's step from state to state, besides projections and features.

    Each of N heads adds an outer product of n_features x H to its sum and reads the sum once; the
    normalizer is one more column, and H divisions follow. The context does not occur.
    """
    write = n_features * (2 * H + 1)  # the normalizer is added to without a product
    read = 2 * n_features * (H + 1)
    return N * (write + read + H)


@formula(zero_ok=("conv_width",))
def state_space_flops(d_inner: Number, d_state: Number, conv_width: Number) -> Number:
    """FLOPs of a token's step of Mamba, besides projections; exponentials and gates are not
    counted.

    For each number of the state: dt A, its fading, the write, its addition, and two to read it; for
    each channel the convolution, dt x, and the skip.
    """
    return d_inner * (6 * d_state + 2 * conv_width + 3)
