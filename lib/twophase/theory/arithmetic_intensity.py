"""FLOPs, bytes and their ratio for the matrix products of a transformer, and the roofline they are
held against.

A multiply and an add are two FLOPs. Bytes are those that must cross between the chip and its main
memory when every operand is read once and every result written once. B sequences, T queries, S
keys, D width, F MLP width, N query heads, K key/value heads, H head width. bf16 is 2 bytes per
value.

Sources: Williams et al. 2009 (roofline); Dao et al. 2022 (FlashAttention); Pope et al. 2022
(inference costs).
"""

from twophase.theory._domain import Number, at_most, formula
from twophase.theory._ops import divide_or_infinity, half, maximum, minimum
from twophase.theory.params import attention_params, mlp_params


@formula()
def matmul_flops(B: Number, D: Number, F: Number) -> Number:
    """FLOPs of [B, D] @ [D, F]."""
    return 2 * B * D * F


@formula()
def matmul_bytes(
    B: Number, D: Number, F: Number, bytes_per_param: Number = 2, bytes_per_activation: Number = 2
) -> Number:
    """Bytes of [B, D] @ [D, F]: read the input and the weights, write the output."""
    return bytes_per_activation * B * D + bytes_per_param * D * F + bytes_per_activation * B * F


@formula()
def matmul_intensity(
    B: Number, D: Number, F: Number, bytes_per_param: Number = 2, bytes_per_activation: Number = 2
) -> Number:
    """FLOPs per byte of [B, D] @ [D, F]."""
    return matmul_flops(B, D, F) / matmul_bytes(B, D, F, bytes_per_param, bytes_per_activation)


@formula()
def matmul_intensity_simple(B: Number, bytes_per_param: Number = 2) -> Number:
    """The same when B is much smaller than D and F, so that weights are all that is read: B in
    bf16, 2 B in int8."""
    return 2 * B / bytes_per_param


@formula()
def mlp_flops(B: Number, T: Number, D: Number, F: Number, gated: bool = True) -> Number:
    """FLOPs of the matrix products of an MLP: three if gated (up, gate, down), else two."""
    return 2 * B * T * mlp_params(D, F, gated)


@formula()
def mlp_bytes(
    B: Number,
    T: Number,
    D: Number,
    F: Number,
    gated: bool = True,
    bytes_per_param: Number = 2,
    bytes_per_activation: Number = 2,
) -> Number:
    """Bytes of an MLP in one fused kernel: input read once, output written once, the F-wide middle
    never stored."""
    return 2 * bytes_per_activation * B * T * D + bytes_per_param * mlp_params(D, F, gated)


@formula(zero_ok=("elementwise_passes",))
def mlp_bytes_unfused(
    B: Number,
    T: Number,
    D: Number,
    F: Number,
    gated: bool = True,
    bytes_per_param: Number = 2,
    bytes_per_activation: Number = 2,
    elementwise_passes: Number = 0,
) -> Number:
    """Bytes of an MLP run as separate matrix products, each reading its input and writing its
    output.

    `elementwise_passes` counts the further reads and writes of a [B T, F] array by the activation:
    0 counts the products alone, 3 one fused kernel for silu(gate) * up (two reads, a write), 5
    PyTorch's eager silu and multiply.
    """
    products = 3 if gated else 2
    activations = products * (D + F) + elementwise_passes * F
    return bytes_per_activation * B * T * activations + bytes_per_param * mlp_params(D, F, gated)


@formula()
def mlp_intensity(
    B: Number,
    T: Number,
    D: Number,
    F: Number,
    gated: bool = True,
    bytes_per_param: Number = 2,
    bytes_per_activation: Number = 2,
) -> Number:
    """FLOPs per byte of a fused MLP. For B T much smaller than F it is 2 B T / bytes_per_param: B T
    in bf16."""
    return mlp_flops(B, T, D, F, gated) / mlp_bytes(
        B, T, D, F, gated, bytes_per_param, bytes_per_activation
    )


@formula()
def projection_flops(B: Number, T: Number, D: Number, N: Number, K: Number, H: Number) -> Number:
    """FLOPs of the four attention projections: queries and output N H wide, keys and values K H
    wide."""
    return 2 * B * T * attention_params(D, N, K, H)


@formula()
def projection_bytes(
    B: Number,
    T: Number,
    D: Number,
    N: Number,
    K: Number,
    H: Number,
    bytes_per_param: Number = 2,
    bytes_per_activation: Number = 2,
) -> Number:
    """Bytes of the four attention projections as four separate matrix products."""
    width = H * (2 * N + 2 * K)
    weights = attention_params(D, N, K, H)
    return bytes_per_activation * B * T * (4 * D + width) + bytes_per_param * weights


@formula()
def attention_pairs(T: Number, S: Number, causal: bool = False) -> Number:
    """Query-key pairs of T queries over S keys; causal: the queries are the last T of the S
    positions.

    Raises ValueError if causal and a T exceeds its S.
    """
    if causal:
        at_most("T", T, "S", S)
    return T * S - half(T * (T - 1)) if causal else T * S


@formula()
def window_pairs(T: Number, window: Number) -> Number:
    """Causal pairs of T tokens when each query sees at most the last `window` keys, itself
    included."""
    ramp = minimum(T, window)
    return attention_pairs(ramp, ramp, causal=True) + (T - ramp) * window


@formula()
def attention_flops(
    B: Number, T: Number, S: Number, N: Number, H: Number, causal: bool = False
) -> Number:
    """FLOPs of scores and weighted values. Softmax is not counted. Causal counts only the pairs
    that are used."""
    return 4 * B * N * H * attention_pairs(T, S, causal)


@formula()
def attention_bytes(
    B: Number,
    T: Number,
    S: Number,
    N: Number,
    K: Number,
    H: Number,
    bytes_per_activation: Number = 2,
    bytes_per_kv: Number = 2,
) -> Number:
    """Bytes when scores never leave the chip (FlashAttention): read Q, K and V once, write the
    output once."""
    return 2 * bytes_per_activation * B * T * N * H + 2 * bytes_per_kv * B * S * K * H


@formula()
def attention_bytes_materialized(
    B: Number,
    T: Number,
    S: Number,
    N: Number,
    K: Number,
    H: Number,
    bytes_per_activation: Number = 2,
    bytes_per_kv: Number = 2,
) -> Number:
    """Bytes when the [T, S] scores go through memory: written, read by softmax, written again, read
    again."""
    stored = 4 * bytes_per_activation * B * N * T * S
    return attention_bytes(B, T, S, N, K, H, bytes_per_activation, bytes_per_kv) + stored


@formula()
def attention_intensity(
    B: Number,
    T: Number,
    S: Number,
    N: Number,
    K: Number,
    H: Number,
    causal: bool = False,
    bytes_per_activation: Number = 2,
    bytes_per_kv: Number = 2,
) -> Number:
    """FLOPs per byte of FlashAttention. B cancels: every sequence brings its own keys and
    values."""
    moved = attention_bytes(B, T, S, N, K, H, bytes_per_activation, bytes_per_kv)
    return attention_flops(B, T, S, N, H, causal) / moved


@formula()
def attention_intensity_simple(
    T: Number, S: Number, G: Number = 1, bytes_per_value: Number = 2
) -> Number:
    """FLOPs per byte without a mask, G = N / K query heads per KV head: S T / (S + T) for G = 1 in
    bf16."""
    return 2 * G * S * T / (bytes_per_value * (S + G * T))


@formula()
def critical_intensity(flops_per_s: Number, bytes_per_s: Number) -> Number:
    """FLOPs per byte at which compute and memory take equally long: the ridge of the roofline."""
    return flops_per_s / bytes_per_s


@formula()
def critical_batch(
    flops_per_s: Number,
    bytes_per_s: Number,
    bytes_per_param: Number = 2,
    E: Number = 1,
    k: Number = 1,
) -> Number:
    """Tokens per step above which the weights' matrix products are compute bound, activations left
    out.

    2 B k/E FLOPs for each stored parameter take as long as reading its bytes. `flops_per_s` is the
    rate of the format the products run in, whatever the weights are stored in. For E experts, k
    active, all experts are read.
    """
    return critical_intensity(flops_per_s, bytes_per_s) * bytes_per_param / 2 * E / k


@formula()
def critical_batch_exact(
    D: Number,
    F: Number,
    flops_per_s: Number,
    bytes_per_s: Number,
    bytes_per_param: Number = 2,
    bytes_per_activation: Number = 2,
) -> Number:
    """The same for [B, D] @ [D, F] with its activations. Infinite if they alone keep it memory
    bound forever."""
    ridge = critical_intensity(flops_per_s, bytes_per_s)
    return divide_or_infinity(
        ridge * bytes_per_param * D * F, 2 * D * F - ridge * bytes_per_activation * (D + F)
    )


@formula(zero_ok=("cache_bytes_per_sequence",))
def critical_batch_of_step(
    weight_bytes: Number,
    cache_bytes_per_sequence: Number,
    flops_per_sequence: Number,
    flops_per_s: Number,
    bytes_per_s: Number,
) -> Number:
    """Sequences at which computing a whole decode step takes as long as reading weights and caches.
    Infinite where one sequence's cache alone takes longer to read than its token to compute.

    The weights are the same for every batch; `Deployment.critical_batch` also knows experts, of
    which a larger batch reads more."""
    ridge = critical_intensity(flops_per_s, bytes_per_s)
    surplus_flops = flops_per_sequence - ridge * cache_bytes_per_sequence
    return divide_or_infinity(ridge * weight_bytes, surplus_flops)


@formula()
def roofline_flops_per_s(intensity: Number, flops_per_s: Number, bytes_per_s: Number) -> Number:
    """FLOP/s that a kernel of this intensity can reach: min(peak, intensity x bandwidth)."""
    return minimum(flops_per_s, intensity * bytes_per_s)


@formula(zero_ok=("flops", "n_bytes"))
def time_overlapped_s(
    flops: Number, n_bytes: Number, flops_per_s: Number, bytes_per_s: Number
) -> Number:
    """Seconds if memory traffic hides behind compute perfectly, or compute behind traffic: the
    larger of the two."""
    return maximum(flops / flops_per_s, n_bytes / bytes_per_s)


@formula(zero_ok=("flops", "n_bytes"))
def time_serial_s(
    flops: Number, n_bytes: Number, flops_per_s: Number, bytes_per_s: Number
) -> Number:
    """Seconds if nothing overlaps: the sum. Never more than twice the overlapped time."""
    return flops / flops_per_s + n_bytes / bytes_per_s
