"""FLOPs of training, prefill, a decode step and whole generations, with and without a cache; the
times people feel.

`n_params` are the weights a token is multiplied with (`Architecture.n_matmul_params()`). Softmax,
norms and activations are left out. Every weight product is counted at every position, the head's
too, though a server needs the head only at the last position of a prompt: `head_params` takes that
back.

A generation of n_output tokens ends when the last is sampled: that token is never fed back.
"""

from twophase.theory._domain import Number, formula
from twophase.theory._ops import half
from twophase.theory.arithmetic_intensity import attention_pairs

SECONDS_PER_DAY = 86_400


@formula()
def forward_flops_per_token(n_params: Number) -> Number:
    """A multiply and an add for each weight: 2 FLOPs per parameter."""
    return 2 * n_params


@formula()
def forward_flops(n_tokens: Number, n_params: Number) -> Number:
    """FLOPs of the weights' products for n_tokens tokens, attention's pairs left out."""
    return forward_flops_per_token(n_params) * n_tokens


@formula()
def training_flops_per_token(n_params: Number) -> Number:
    """Forward 2, backward 4 (gradients of inputs and of weights): 6 FLOPs per parameter."""
    return 6 * n_params


@formula()
def training_flops(n_params: Number, n_tokens: Number) -> Number:
    """FLOPs of a training run, attention's pairs left out."""
    return training_flops_per_token(n_params) * n_tokens


@formula()
def attention_flops_per_pair(L: Number, N: Number, H: Number) -> Number:
    """FLOPs of one query meeting one key in all layers: a product for the score, one for the
    value."""
    return 4 * L * N * H


@formula(zero_ok=("head_params",))
def dense_prefill_flops(
    B: Number,
    T: Number,
    n_params: Number,
    L: Number,
    N: Number,
    H: Number,
    causal: bool = True,
    head_params: Number = 0,
) -> Number:
    """FLOPs of B prompts of T tokens where every layer attends to all of them.

    `head_params` = V D: the head runs at the last position only; 0: at all. For layers of several
    kinds there is `Architecture.prefill_flops`.
    """
    weights = forward_flops(T, n_params) - 2 * head_params * (T - 1)
    pairs = attention_pairs(T, T, causal)
    return B * (weights + attention_flops_per_pair(L, N, H) * pairs)


@formula()
def dense_decode_step_flops(
    B: Number, S: Number, n_params: Number, L: Number, N: Number, H: Number
) -> Number:
    """FLOPs of one new token for each of B sequences; every layer attends to S keys, the new one
    included. For layers of several kinds there is `Architecture.decode_step_flops`."""
    return B * (forward_flops_per_token(n_params) + attention_flops_per_pair(L, N, H) * S)


def _sum_of_integers(first: Number, count: Number) -> Number:
    """first + (first + 1) + ... over `count` terms."""
    return count * first + half(count * (count - 1))


def _sum_of_squares(first: Number, count: Number) -> Number:
    """first^2 + (first + 1)^2 + ... over `count` terms."""
    m = count - 1
    squares = m * (m + 1) * (2 * m + 1)
    sixth = squares // 6 if isinstance(squares, int) else squares / 6
    return count * first**2 + first * m * (m + 1) + sixth


@formula(whole=("n_prompt", "n_output"))
def naive_generation_flops(
    n_prompt: Number,
    n_output: Number,
    n_params: Number,
    L: Number,
    N: Number,
    H: Number,
    causal: bool = True,
) -> Number:
    """FLOPs of one generation that runs the whole text anew for each token: weights quadratic,
    pairs cubic in length.

    Step i of n_output works on n_prompt + i tokens, i from 0.
    """
    tokens = _sum_of_integers(n_prompt, n_output)
    squares = _sum_of_squares(n_prompt, n_output)
    pairs = half(squares + tokens) if causal else squares
    weights = forward_flops_per_token(n_params) * tokens
    return weights + attention_flops_per_pair(L, N, H) * pairs


@formula(whole=("n_prompt", "n_output"))
def cached_generation_flops(
    n_prompt: Number,
    n_output: Number,
    n_params: Number,
    L: Number,
    N: Number,
    H: Number,
    causal: bool = True,
) -> Number:
    """FLOPs of one generation with a KV cache: weights linear, pairs quadratic in length.

    One prefill gives the first token, then n_output - 1 steps.
    """
    steps = n_output - 1
    pairs = attention_pairs(n_prompt, n_prompt, causal) + _sum_of_integers(n_prompt + 1, steps)
    weights = forward_flops_per_token(n_params) * (n_prompt + steps)
    return weights + attention_flops_per_pair(L, N, H) * pairs


@formula(zero_ok=("tpot_s",), whole=("n_output",))
def total_latency_s(
    ttft_s: Number, tpot_s: Number, n_output: Number, first_included: bool = True
) -> Number:
    """Seconds from request to last token. The first token arrives at TTFT, so n_output - 1 more
    follow.

    `first_included=False` gives the common TTFT + n_output x TPOT, one TPOT too many.
    """
    return ttft_s + (n_output - 1 if first_included else n_output) * tpot_s


@formula()
def requests_per_s(B: Number, latency_s: Number) -> Number:
    """Requests finished per second when B are always in flight, each for `latency_s` (Little's
    law)."""
    return B / latency_s


@formula()
def requests_in_flight(requests_per_s: Number, latency_s: Number) -> Number:
    """How many requests are in the system on average (Little's law)."""
    return requests_per_s * latency_s


@formula()
def per_second(per_day: Number) -> Number:
    """A daily count as a rate per second."""
    return per_day / SECONDS_PER_DAY
