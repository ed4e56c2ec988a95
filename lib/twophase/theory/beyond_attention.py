"""What mixers without a growing cache weigh: linear attention and the selective state space.

Their states, whose size does not depend on the context, are in `theory.kv_cache`. Sources: Arora et al. 2024 (BASED,
arXiv 2402.18668); Gu and Dao 2023 (Mamba, arXiv 2312.00752).
"""

from twophase.theory._ops import Number, formula


@formula()
def taylor_features(feature_dim: Number) -> Number:
    """Features of the second-order Taylor map of exp: 1, every number, every product of two."""
    return 1 + feature_dim + feature_dim * feature_dim


@formula()
def linear_attention_params(D: Number, N: Number, H: Number, feature_dim: Number) -> Number:
    """Queries and keys of width feature_dim, values and output of width H, for each of N heads."""
    return D * N * (2 * feature_dim + 2 * H)


@formula()
def state_space_params(D: Number, d_inner: Number, d_state: Number, conv_width: Number, dt_rank: Number) -> Number:
    """Mamba's mixer: input (with its gate) and output projections, the convolution, step size, B and C, A, and the skip."""
    projections = 2 * D * d_inner + d_inner * D
    convolution = d_inner * (conv_width + 1)
    selection = d_inner * (dt_rank + 2 * d_state) + (dt_rank + 1) * d_inner
    return projections + convolution + selection + d_inner * d_state + d_inner
