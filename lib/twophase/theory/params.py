"""How many numbers the parts of a transformer hold. Symbols work too; `Architecture` adds these up
for real models."""

from twophase.theory._domain import Number, formula


@formula()
def embedding_params(V: Number, D: Number) -> Number:
    """One row of width D per token of the vocabulary."""
    return V * D


@formula()
def attention_params(D: Number, N: Number, K: Number, H: Number) -> Number:
    """Query and output projections D x N H, key and value projections D x K H. N H need not be
    D."""
    return 2 * D * N * H + 2 * D * K * H


@formula()
def latent_attention_params(
    D: Number,
    N: Number,
    R: Number,
    nope_dim: Number,
    rope_dim: Number,
    v_dim: Number,
    q_rank: Number | None = None,
) -> Number:
    """MLA's matrices: queries (through q_rank or directly), latent and rotated key, up-projections,
    output."""
    q_width = N * (nope_dim + rope_dim)
    queries = D * q_width if q_rank is None else D * q_rank + q_rank * q_width
    return queries + D * (R + rope_dim) + R * N * (nope_dim + v_dim) + N * v_dim * D


@formula()
def mlp_params(D: Number, F: Number, gated: bool = True) -> Number:
    """Three D x F matrices if gated (up, gate, down), else two."""
    return (3 if gated else 2) * D * F


@formula()
def transformer_params(
    L: Number,
    D: Number,
    F: Number,
    N: Number,
    K: Number,
    H: Number,
    V: Number,
    gated: bool = True,
    tied: bool = False,
) -> Number:
    """The matrices of a dense model, embedding and head counted once if tied. Norms and biases are
    left out. With `tied=True` these are the weights that a token is multiplied with."""
    tables = (1 if tied else 2) * embedding_params(V, D)
    return L * (attention_params(D, N, K, H) + mlp_params(D, F, gated)) + tables


@formula()
def moe_transformer_params(
    L: Number,
    D: Number,
    F: Number,
    N: Number,
    K: Number,
    H: Number,
    V: Number,
    E: Number,
    tied: bool = False,
) -> Number:
    """`transformer_params` with E gated experts of width F and a D x E router in place of each MLP:
    what is stored. E = k: active parameters, but for the router's other columns."""
    one_expert = transformer_params(L, D, F, N, K, H, V, tied=tied)
    return one_expert + L * ((E - 1) * mlp_params(D, F) + D * E)
