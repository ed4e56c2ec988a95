"""FLOPs, bytes and intensity of latent attention (MLA) in its two forms, and where they cross.

Expanded: keys and values of all N heads are unfolded from the latents, then attended to. Absorbed:
the two up-projections move to the queries and past the sum, and attention runs on the latents. R is
the width of a latent, `nope_dim` and `rope_dim` are the unrotated and the rotated part of a query,
`v_dim` is the width of a head's value. T queries, S positions. What is cached takes
`kv_cache.latent_bytes_per_token_per_layer`.

Bytes: each product with an up-projection is a kernel of its own, attention is one that keeps its
scores on the chip. Source: DeepSeek-AI 2024 (arXiv 2405.04434), section 2.1.
"""

from twophase.theory._domain import Number, formula
from twophase.theory._ops import divide_or_infinity
from twophase.theory.arithmetic_intensity import attention_pairs
from twophase.theory.kv_cache import latent_bytes_per_token_per_layer


@formula()
def up_projection_params(N: Number, R: Number, nope_dim: Number, v_dim: Number) -> Number:
    """Numbers of w_uk [N, nope_dim, R] and w_uv [N, v_dim, R]: a token's FLOPs to unfold its
    latent, or to absorb both into its query and its output, are twice this."""
    return N * R * (nope_dim + v_dim)


@formula(zero_ok=("rope_dim",))
def expanded_flops_per_pair(N: Number, nope_dim: Number, rope_dim: Number, v_dim: Number) -> Number:
    """Score and weighted value of one query and one position, for all N heads: a head's own key
    and value."""
    return 2 * N * (nope_dim + rope_dim + v_dim)


@formula(zero_ok=("rope_dim",))
def absorbed_flops_per_pair(N: Number, R: Number, rope_dim: Number) -> Number:
    """The same on latents: each is key and value, R wide in both."""
    return 2 * N * (2 * R + rope_dim)


@formula(zero_ok=("rope_dim",))
def expanded_flops(
    B: Number,
    T: Number,
    S: Number,
    N: Number,
    R: Number,
    nope_dim: Number,
    rope_dim: Number,
    v_dim: Number,
    causal: bool = False,
) -> Number:
    """FLOPs of attention that unfolds S latents for each of B sequences, then meets them with T
    queries. Softmax is not counted; causal counts only the pairs that are used."""
    unfolding = 2 * S * up_projection_params(N, R, nope_dim, v_dim)
    per_pair = expanded_flops_per_pair(N, nope_dim, rope_dim, v_dim)
    return B * (unfolding + attention_pairs(T, S, causal) * per_pair)


@formula(zero_ok=("rope_dim",))
def absorbed_flops(
    B: Number,
    T: Number,
    S: Number,
    N: Number,
    R: Number,
    nope_dim: Number,
    rope_dim: Number,
    v_dim: Number,
    causal: bool = False,
) -> Number:
    """FLOPs of the same attention with both up-projections absorbed: T queries and T outputs go
    through them, not S latents."""
    absorbing = 2 * T * up_projection_params(N, R, nope_dim, v_dim)
    per_pair = absorbed_flops_per_pair(N, R, rope_dim)
    return B * (absorbing + attention_pairs(T, S, causal) * per_pair)


@formula()
def crossover_queries(S: Number, R: Number, nope_dim: Number, v_dim: Number) -> Number:
    """Queries at which both forms take equally many FLOPs over S positions, every query taken to
    see all of them; fewer are cheaper absorbed. A causal pass has T ≤ S: where this is S or more,
    absorbed is never the dearer form. Infinite where it is so for any number.

    It tends to R (nope_dim + v_dim) / (2 R - nope_dim - v_dim) for long contexts; neither N nor
    rope_dim occurs.
    """
    unfolded = nope_dim + v_dim
    return divide_or_infinity(S * R * unfolded, R * unfolded + S * (2 * R - unfolded))


@formula(zero_ok=("rope_dim",))
def expanded_bytes(
    B: Number,
    T: Number,
    S: Number,
    N: Number,
    R: Number,
    nope_dim: Number,
    rope_dim: Number,
    v_dim: Number,
    bytes_per_param: Number = 2,
    bytes_per_activation: Number = 2,
    bytes_per_kv: Number = 2,
) -> Number:
    """Bytes of the expanded form: unfolding reads weights and latents and writes keys and values;
    attention reads those, the rotated keys and the queries and writes its output."""
    unfolded = S * N * (nope_dim + v_dim)
    queries_and_outputs = T * N * (nope_dim + rope_dim + v_dim)
    cached = S * latent_bytes_per_token_per_layer(R, rope_dim, bytes_per_kv)
    weights = bytes_per_param * up_projection_params(N, R, nope_dim, v_dim)
    return weights + B * (cached + bytes_per_activation * (2 * unfolded + queries_and_outputs))


@formula(zero_ok=("rope_dim",))
def absorbed_bytes(
    B: Number,
    T: Number,
    S: Number,
    N: Number,
    R: Number,
    nope_dim: Number,
    rope_dim: Number,
    v_dim: Number,
    bytes_per_param: Number = 2,
    bytes_per_activation: Number = 2,
    bytes_per_kv: Number = 2,
) -> Number:
    """Bytes of the absorbed form: queries are read and written R wide, `absorbed_attention_bytes`,
    then sums of latents are read and outputs written."""
    weights = bytes_per_param * up_projection_params(N, R, nope_dim, v_dim)
    around = B * T * N * (nope_dim + 2 * R + v_dim)
    inside = absorbed_attention_bytes(B, T, S, N, R, rope_dim, bytes_per_activation, bytes_per_kv)
    return weights + bytes_per_activation * around + inside


@formula(zero_ok=("rope_dim",))
def absorbed_attention_bytes(
    B: Number,
    T: Number,
    S: Number,
    N: Number,
    R: Number,
    rope_dim: Number,
    bytes_per_activation: Number = 2,
    bytes_per_kv: Number = 2,
) -> Number:
    """Bytes of attention on latents alone: read the absorbed queries and, once for all heads, what
    is cached; write a sum of latents for each query and head."""
    queries_and_sums = B * T * N * (2 * R + rope_dim)
    cached = B * S * latent_bytes_per_token_per_layer(R, rope_dim, bytes_per_kv)
    return bytes_per_activation * queries_and_sums + cached


@formula(zero_ok=("rope_dim",))
def absorbed_intensity(
    T: Number,
    S: Number,
    N: Number,
    R: Number,
    rope_dim: Number,
    bytes_per_activation: Number = 2,
    bytes_per_kv: Number = 2,
) -> Number:
    """FLOPs per byte of attention on latents, without a mask. The batch does not occur: each
    sequence brings its own cache and its own FLOPs."""
    n_bytes = absorbed_attention_bytes(1, T, S, N, R, rope_dim, bytes_per_activation, bytes_per_kv)
    return T * S * absorbed_flops_per_pair(N, R, rope_dim) / n_bytes


@formula(zero_ok=("rope_dim",))
def absorbed_intensity_simple(
    T: Number, N: Number, R: Number, rope_dim: Number, bytes_per_kv: Number = 2
) -> Number:
    """The same where the context is so long that the cache is all that is read: nearly 4 T N /
    bytes_per_kv, since each of N heads uses a cached number twice, as key and as value."""
    cached = latent_bytes_per_token_per_layer(R, rope_dim, bytes_per_kv)
    return T * absorbed_flops_per_pair(N, R, rope_dim) / cached
