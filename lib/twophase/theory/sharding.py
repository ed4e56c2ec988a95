"""What chips must send each other so that one transformer runs on all of them, and how far that
carries.

Letters of the mesh: X Y Z are the chips along its axes. `Win[D_X, F_YZ]` is a matrix of D rows and
F columns whose rows are cut over X and whose columns are cut over Y and Z: each chip has D / X by
F / (Y Z) of it. Bytes are those that each chip sends, message by message as `messages`
lists them; times leave out hops, which `links` adds. Chips divide everything evenly.

Sources: Shoeybi et al. 2019 (Megatron-LM); Pope et al. 2022 (arXiv 2211.05102, ESTI) for 2D
weight-stationary sharding and attention split over the batch; Huang et al. 2019 (GPipe) for
bubbles; Austin et al., How to Scale Your Model, for the limits.
"""

from twophase.theory import messages
from twophase.theory._domain import Number, formula
from twophase.theory._ops import maximum, sqrt, where


@formula(whole=("n_chips",))
def tensor_sent_bytes(
    n_tokens: Number, D: Number, n_chips: Number, bytes_per_activation: Number = 2
) -> Number:
    """Tensor parallelism, `Win[D, F_Y]`, `Wout[F_Y, D]`: one all-reduce of the result [n_tokens, D]
    for an MLP, and one for attention with its heads cut."""
    return messages.sent_bytes(messages.tensor_part(n_tokens, D, (n_chips,), bytes_per_activation))


@formula(whole=("n_chips",))
def gathered_sent_bytes(n_params: Number, n_chips: Number, bytes_per_param: Number = 2) -> Number:
    """Weights stored in pieces and gathered before use (FSDP): tokens stay where they are, and
    every chip receives what it lacks of the n_params weights."""
    return messages.sent_bytes(messages.gathered_part(n_params, (n_chips,), bytes_per_param))


@formula()
def gathered_equal_tokens(
    F: Number,
    n_matrices: Number = 3,
    bytes_per_param: Number = 2,
    bytes_per_activation: Number = 2,
) -> Number:
    """Tokens in a step at which gathering an MLP's weights sends as much as reducing its results:
    more tokens, and the weights are the lighter load. Neither D nor the chips occur."""
    return n_matrices * F * bytes_per_param / (2 * bytes_per_activation)


@formula(whole=("n_chips",))
def sequence_sent_bytes(
    n_tokens: Number, K: Number, H: Number, n_chips: Number, bytes_per_kv: Number = 2
) -> Number:
    """Prefill with the prompt's positions cut over chips, weights whole on each: keys and values of
    all positions are gathered, once in each layer."""
    return messages.sent_bytes(
        messages.sequence_attention(n_tokens, K, H, (n_chips,), bytes_per_kv)
    )


@formula(whole=("n_chips",))
def batch_split_sent_bytes(
    B: Number,
    N: Number,
    K: Number,
    H: Number,
    n_chips: Number,
    bytes_per_activation: Number = 2,
) -> Number:
    """Decode attention with the cache cut by sequence, projections cut by head: an all-to-all
    brings queries, keys and values of the B tokens to the chips of their sequences, another brings
    the outputs back."""
    widths = (B, N, K, H, (n_chips,), bytes_per_activation)
    return messages.sent_bytes(messages.batch_split_attention(*widths))


@formula(whole=("n_chips",))
def length_split_sent_bytes(
    B: Number,
    N: Number,
    K: Number,
    H: Number,
    n_chips: Number,
    bytes_per_activation: Number = 2,
    bytes_per_partial: Number = 4,
) -> Number:
    """Decode attention with the cache cut by position, projections cut by head: queries, keys and
    values of the B tokens are gathered, for any chip may hold the new position; then an all-to-all
    brings each head's partial outputs [H], maximum and sum to the chip that merges it."""
    widths = (B, N, K, H, (n_chips,), bytes_per_activation, bytes_per_partial)
    return messages.sent_bytes(messages.length_split_attention(*widths))


@formula(whole=("n_in",), least={"X": 1, "n_chips": 1}, ordered=(("X", "n_chips"),))
def weight_stationary_sent_bytes(
    n_tokens: Number,
    D: Number,
    F: Number,
    X: Number,
    n_chips: Number,
    n_in: Number = 1,
    bytes_per_activation: Number = 2,
) -> Number:
    """An MLP cut both ways, `Win[D_X, F_YZ]`, `Wout[F_YZ, D_X]`, Y Z = n_chips / X: gather the
    input [n_tokens, D_X] over YZ, reduce-scatter each of n_in products [n_tokens, F_YZ] over X,
    gather one, reduce-scatter the result over YZ.

    A gated MLP has n_in = 2: its two products are summed, multiplied in pieces, gathered once.
    """
    cut = ((X,), (n_chips / X,), bytes_per_activation)
    return messages.sent_bytes(messages.weight_stationary_part(n_tokens, D, n_in * F, F, *cut))


@formula(whole=("n_axes",))
def tensor_s(
    n_tokens: Number,
    D: Number,
    link_bytes_per_s: Number,
    n_axes: Number = 1,
    bytes_per_activation: Number = 2,
) -> Number:
    """Seconds of that all-reduce on so many chips that (n - 1) / n is 1: it does not fall with
    their number."""
    array_bytes = n_tokens * D * bytes_per_activation
    return 2 * array_bytes / (n_axes * link_bytes_per_s)


@formula(
    least={"n_axes": 2, "X": 1, "n_chips": 1},
    whole=("n_axes", "n_in"),
    ordered=(("X", "n_chips"),),
)
def weight_stationary_s(
    n_tokens: Number,
    D: Number,
    F: Number,
    X: Number,
    n_chips: Number,
    link_bytes_per_s: Number,
    n_axes: Number = 3,
    n_in: Number = 1,
    bytes_per_activation: Number = 2,
) -> Number:
    """Seconds of 2D weight-stationary sharding with the factors (n - 1) / n left out: X has one
    axis, YZ the other n_axes - 1. For three axes, n_in = 1 and bf16: 2BD/(X W) + 4BF/(YZ W)."""
    outer = 2 * n_tokens * D * bytes_per_activation / (X * (n_axes - 1))
    inner = (n_in + 1) * n_tokens * F * bytes_per_activation * X / n_chips
    return (outer + inner) / link_bytes_per_s


@formula(least={"n_axes": 2}, whole=("n_axes", "n_in"))
def weight_stationary_best_x(
    D: Number, F: Number, n_chips: Number, n_axes: Number = 3, n_in: Number = 1
) -> Number:
    """The X of least time, were it free to be any number: sqrt(n/8) for F = 4 D, three axes and
    n_in = 1. With the factors (n - 1) / n it is the same: they take off what X does not change."""
    return sqrt(2 * D * n_chips / ((n_axes - 1) * (n_in + 1) * F))


@formula(least={"n_axes": 2}, whole=("n_axes", "n_in"))
def weight_stationary_best_s(
    n_tokens: Number,
    D: Number,
    F: Number,
    n_chips: Number,
    link_bytes_per_s: Number,
    n_axes: Number = 3,
    n_in: Number = 1,
    bytes_per_activation: Number = 2,
) -> Number:
    """Its seconds at that X: they fall with the root of the number of chips."""
    root = sqrt(2 * (n_in + 1) * D * F / ((n_axes - 1) * n_chips))
    return 2 * n_tokens * bytes_per_activation * root / link_bytes_per_s


@formula(least={"n_axes": 2}, whole=("n_axes", "n_in"))
def weight_stationary_crossover_chips(
    D: Number, F: Number, n_axes: Number = 3, n_in: Number = 1, ring_factors: bool = False
) -> Number:
    """Chips beyond which 2D weight-stationary sharding sends for less time than tensor parallelism
    over the same axes, at the best X: 18 F / D on three axes, 16 F / D on two, for n_in = 1.

    `ring_factors`: with (n - 1) / n in each collective; 1 where 2D is never slower.
    """
    tensor = 2 * D / n_axes
    outer, inner = 2 * D / (n_axes - 1), (n_in + 1) * F
    if not ring_factors:
        return 4 * outer * inner / tensor**2
    under = (outer - tensor) * (inner - tensor)
    root = (sqrt(outer * inner) + sqrt(maximum(under, 0))) / tensor
    return where(under > 0, root**2, 1)


@formula(whole=("n_axes",))
def tensor_limit_chips(
    B: Number,
    F: Number,
    hbm_bytes_per_s: Number,
    link_bytes_per_s: Number,
    n_axes: Number = 1,
    n_matrices: Number = 2,
    bytes_per_param: Number = 2,
    bytes_per_activation: Number = 2,
) -> Number:
    """Chips of tensor parallelism at which the all-reduce of an MLP takes as long as reading the
    chip's part of its weights: F / (B beta), beta = hbm / link rate, for two matrices, one axis and
    equal formats. D does not occur; (n - 1) / n and hops are left out."""
    beta = hbm_bytes_per_s / (n_axes * link_bytes_per_s)
    return n_matrices * F * bytes_per_param / (2 * B * bytes_per_activation * beta)


@formula(whole=("n_axes",))
def tensor_limit_chips_prefill(
    F: Number,
    flops_per_s: Number,
    link_bytes_per_s: Number,
    n_axes: Number = 1,
    n_matrices: Number = 2,
    bytes_per_activation: Number = 2,
) -> Number:
    """The same where products, not weights, take the time: F / alpha, alpha = peak / link rate, for
    two matrices in bf16 on one axis. Neither D nor the number of tokens occurs."""
    return n_matrices * F * n_axes * link_bytes_per_s / (bytes_per_activation * flops_per_s)


@formula(zero_ok=("hop_s",), whole=("n_chips",))
def latency_step_s(read_s: Number, n_chips: Number, n_all_reduces: Number, hop_s: Number) -> Number:
    """Seconds of a decode step that a chip alone would read for `read_s`, on n_chips: its part of
    the reading, and 2 (n - 1) hops for each all-reduce through a switch. Bytes are left out."""
    return read_s / n_chips + 2 * n_all_reduces * (n_chips - 1) * hop_s


@formula()
def latency_best_chips(read_s: Number, n_all_reduces: Number, hop_s: Number) -> Number:
    """The number of chips at which that is least: another chip would save less reading than it
    adds hops."""
    return sqrt(read_s / (2 * n_all_reduces * hop_s))


@formula(whole=("n_stages", "n_microbatches"))
def pipeline_idle_share(n_stages: Number, n_microbatches: Number) -> Number:
    """The share of a pipeline's time that a stage waits, filling and draining (Huang et al.
    2019)."""
    return (n_stages - 1) / (n_microbatches + n_stages - 1)


@formula()
def hidden_transfer_bytes_per_s(cache_bytes: Number, prefill_s: Number) -> Number:
    """The least rate at which a prompt's cache must travel from the chips that filled it to those
    that decode, so that sending is done when the next prompt's prefill is."""
    return cache_bytes / prefill_s
