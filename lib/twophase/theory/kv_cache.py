"""Bytes of the KV cache for every kind of attention, and what memory then allows.

S is the number of cached positions. bf16 is 2 bytes per value. The factor 2 is one key and one
value. Sources: Shazeer 2019 (MQA); Ainslie et al. 2023 (GQA); DeepSeek-AI 2024 (MLA); Brandon et
al. 2024 (CLA).
"""

from twophase.theory._domain import Number, formula
from twophase.theory._ops import ceil_div, exact, floor_div, maximum, minimum

# A state is a running sum, kept in fp32 whatever the weights are in: in bf16 adding ones to it
# stops at 256.
BYTES_PER_STATE = 4


@formula()
def kv_bytes_per_token_per_layer(K: Number, H: Number, bytes_per_kv: Number = 2) -> Number:
    """One key and one value of width H for each of K heads. K = N is MHA, 1 < K < N is GQA, K = 1
    is MQA."""
    return 2 * K * H * bytes_per_kv


@formula()
def kv_bytes_per_token(L: Number, K: Number, H: Number, bytes_per_kv: Number = 2) -> Number:
    """Keys and values of one position in L layers. `Architecture.cache_bytes_per_token` is that of
    a model, latents and shared caches included."""
    return L * kv_bytes_per_token_per_layer(K, H, bytes_per_kv)


@formula(zero_ok=("S",))
def kv_bytes_per_sequence(
    S: Number, L: Number, K: Number, H: Number, bytes_per_kv: Number = 2
) -> Number:
    """Cache bytes of one sequence of S positions under full attention."""
    return S * kv_bytes_per_token(L, K, H, bytes_per_kv)


@formula(zero_ok=("rope_dim",))
def latent_bytes_per_token_per_layer(
    R: Number, rope_dim: Number, bytes_per_kv: Number = 2
) -> Number:
    """MLA: one latent of width R and one rotated key of width rope_dim, shared by all heads. No
    factor 2."""
    return (R + rope_dim) * bytes_per_kv


@formula(zero_ok=("S", "rope_dim"))
def latent_bytes_per_sequence(
    S: Number, L: Number, R: Number, rope_dim: Number, bytes_per_kv: Number = 2
) -> Number:
    """Cache bytes of one sequence under MLA."""
    return S * L * latent_bytes_per_token_per_layer(R, rope_dim, bytes_per_kv)


@formula(zero_ok=("S",))
def window_bytes_per_sequence(
    S: Number, window: Number, L: Number, K: Number, H: Number, bytes_per_kv: Number = 2
) -> Number:
    """Sliding window: each layer keeps the last `window` positions, so that the cache stops growing
    at S = window."""
    return minimum(S, window) * kv_bytes_per_token(L, K, H, bytes_per_kv)


@formula(zero_ok=("S", "n_global_layers", "n_local_layers"))
def hybrid_bytes_per_sequence(
    S: Number,
    n_global_layers: Number,
    n_local_layers: Number,
    window: Number,
    K: Number,
    H: Number,
    bytes_per_kv: Number = 2,
) -> Number:
    """A stack of global layers (S positions each) and local layers (at most `window` each)."""
    positions = n_global_layers * S + n_local_layers * minimum(S, window)
    return positions * kv_bytes_per_token_per_layer(K, H, bytes_per_kv)


@formula(zero_ok=("S",))
def shared_bytes_per_sequence(
    S: Number, L: Number, layers_per_cache: Number, K: Number, H: Number, bytes_per_kv: Number = 2
) -> Number:
    """Cross-layer attention: `layers_per_cache` neighbors use one cache; a last, smaller group
    still needs its own."""
    return S * ceil_div(L, layers_per_cache) * kv_bytes_per_token_per_layer(K, H, bytes_per_kv)


@formula(zero_ok=("conv_width",))
def state_space_bytes(
    L: Number,
    d_inner: Number,
    d_state: Number,
    conv_width: Number = 4,
    bytes_per_state: Number = BYTES_PER_STATE,
) -> Number:
    """Mamba: a d_inner x d_state state and the last conv_width inputs per layer. S does not
    occur."""
    return L * d_inner * (d_state + conv_width) * bytes_per_state


@formula()
def linear_attention_bytes(
    L: Number, N: Number, feature_dim: Number, H: Number, bytes_per_state: Number = BYTES_PER_STATE
) -> Number:
    """Linear attention: per head a feature_dim x H sum of outer products and a normalizer. S does
    not occur."""
    return L * N * feature_dim * (H + 1) * bytes_per_state


@formula()
def weight_bytes(n_params: Number, bytes_per_param: Number = 2) -> Number:
    """Bytes of the weights: 2 per parameter in bf16, 1 in int8, 0.5 in int4, scales not counted."""
    return n_params * bytes_per_param


@formula(zero_ok=("n_logits",))
def activation_bytes(
    B: Number,
    T: Number,
    D: Number,
    F: Number,
    V: Number,
    n_logits: Number = 1,
    bytes_per_value: Number = 2,
) -> Number:
    """The most that tensors between operators take at one time: a dense model with gated MLPs, T
    tokens of each of B sequences, run operator by operator, attention fused.

    End of an MLP: its input, the stream, the normed copy and the output; gate, up and product. End
    of the pass: the normed stream, and logits for `n_logits` of the T tokens. Attention's own
    tensors are taken to be fewer than the MLP's.
    """
    in_a_layer = T * (4 * D + 3 * F)
    at_the_end = T * D + n_logits * V
    return bytes_per_value * B * maximum(in_a_layer, at_the_end)


@formula(
    zero_ok=(
        "weight_bytes",
        "cache_bytes",
        "activation_bytes",
        "overhead_bytes",
        "overhead_fraction",
    )
)
def memory_bytes(
    weight_bytes: Number,
    cache_bytes: Number,
    activation_bytes: Number = 0,
    overhead_bytes: Number = 0,
    overhead_fraction: Number = 0,
) -> Number:
    """Weights + cache + activations + overhead, the last a fixed size plus a fraction of the other
    three."""
    used = weight_bytes + cache_bytes + activation_bytes
    return used + overhead_bytes + overhead_fraction * used


@formula(zero_ok=("reserved_bytes", "overhead_fraction"))
def max_batch(
    capacity_bytes: Number,
    weight_bytes: Number,
    cache_bytes_per_sequence: Number,
    reserved_bytes: Number = 0,
    overhead_fraction: Number = 0,
) -> Number:
    """The largest number of equally long sequences that fits; 0 when not even one does.

    `capacity_bytes` of all chips together, weights counted once. `reserved_bytes`: activations and
    overhead of a fixed size; `overhead_fraction` comes on top of weights and caches. Exact for
    plain numbers: a float counts as the decimal it is written as, and a memory that is full to the
    last byte is full, not too small.
    """
    capacity, weights, cache, reserved, overhead = exact(
        capacity_bytes, weight_bytes, cache_bytes_per_sequence, reserved_bytes, overhead_fraction
    )
    free = (capacity - reserved) / (1 + overhead) - weights
    return maximum(0, floor_div(free, cache))


@formula(zero_ok=("reserved_bytes", "overhead_fraction"))
def max_context(
    capacity_bytes: Number,
    weight_bytes: Number,
    B: Number,
    cache_bytes_per_token: Number,
    reserved_bytes: Number = 0,
    overhead_fraction: Number = 0,
) -> Number:
    """The most positions that each of B sequences can have, for a cache that grows with every
    position. Exact, as `max_batch`."""
    return max_batch(
        capacity_bytes, weight_bytes, B * cache_bytes_per_token, reserved_bytes, overhead_fraction
    )


@formula()
def crossover_context(weight_bytes: Number, B: Number, cache_bytes_per_token: Number) -> Number:
    """The context at which the caches of B sequences weigh as much as the weights."""
    return weight_bytes / (B * cache_bytes_per_token)
