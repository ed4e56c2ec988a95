"""Kernels on a card say what they say on the CPU, and leave their results on the card."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from device_tools import needs_a_card, same_on_a_card

from twophase.kernels.attention import causal_attention, full_attention, naive_attention, visible
from twophase.kernels.continuous_batching import padded_attention, ragged_attention
from twophase.kernels.expert_capacity import run_in_bins
from twophase.kernels.grouped_query_attention import decode_by_head, pool_heads
from twophase.kernels.latent_attention import (
    absorbed_attention,
    attend_latents,
    expanded_attention,
)
from twophase.kernels.linear_attention import (
    chunked_linear_attention,
    parallel_linear_attention,
    recurrent_step,
)
from twophase.kernels.mixture_of_experts import load_balance_loss, route, run_experts
from twophase.kernels.mlp import gated_mlp
from twophase.kernels.norm import rms_norm
from twophase.kernels.online_softmax import (
    flash_attention,
    merge,
    online_softmax,
    partial_attention,
)
from twophase.kernels.pruning.distillation import hidden_loss, logits_loss
from twophase.kernels.pruning.masks import kept_per_row, magnitude, two_four, wanda
from twophase.kernels.pruning.storage import Bitmap, TwoFour
from twophase.kernels.rope import RopeScaling, apply_rope, rope_tables
from twophase.kernels.sampling import sampling_probs
from twophase.kernels.state_space import causal_conv, selective_scan

pytestmark = needs_a_card
n = torch.randn
Call = tuple[Callable[..., Any], Sequence[Any]]

# T, S, width of values, and options; H is 8, N = 6 query heads share K = 2
ATTENTION: dict[str, tuple[int, int, int, dict[str, Any]]] = {
    "a prefill": (9, 9, 8, {}),
    "a decode step": (1, 9, 8, {}),
    "a chunk": (4, 9, 8, {}),
    "wider values": (9, 9, 12, {}),
    "narrower values": (4, 9, 5, {}),
    "a window": (9, 9, 8, {"window": 3}),
    "a window of a decode step": (1, 9, 8, {"window": 3}),
    "blocks of queries": (300, 700, 8, {"window": 40}),
    "a soft cap": (4, 9, 8, {"softcap": 2.0}),
    "a soft cap in a window": (9, 9, 8, {"softcap": 2.0, "window": 4}),
    "a scale": (9, 9, 8, {"scale": 0.7}),
}


def heads(T: int, S: int, Hv: int, K: int = 2) -> tuple[torch.Tensor, ...]:
    return n(2, T, 6, 8), n(2, S, K, 8), n(2, S, K, Hv)


@pytest.mark.parametrize("kernel", [causal_attention, naive_attention])
@pytest.mark.parametrize("name", ATTENTION)
def test_attention_is_the_same(name: str, kernel: Callable[..., Any]) -> None:
    T, S, Hv, options = ATTENTION[name]
    same_on_a_card(partial(kernel, **options), *heads(T, S, Hv))


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_in_bf16_is_the_same_to_bf16(name: str) -> None:
    T, S, Hv, options = ATTENTION[name]
    inputs = [x.bfloat16() for x in heads(T, S, Hv)]
    # weights and outputs are rounded to 8 bits, in another order on each
    same_on_a_card(partial(causal_attention, **options), *inputs, rtol=0.03, atol=0.03)


@pytest.mark.parametrize("options", [{}, {"softcap": 2.0}])
@pytest.mark.parametrize("Hv", [8, 5])
def test_a_mask_of_its_own_for_each_sequence_hides_the_same(Hv: int, options: dict) -> None:
    mask = visible(4, 9).expand(2, -1, -1).clone()  # [B, T, S]
    mask[0, :, 2:5] = False
    mask[1, 1] = False  # a query that sees nothing

    def masked(*inputs: torch.Tensor) -> torch.Tensor:
        q, k, v, mask = inputs
        out = causal_attention(q, k, v, mask=mask, **options)
        assert not out[1, 1].any()
        return out

    same_on_a_card(masked, *heads(4, 9, Hv), mask)


def latents() -> tuple[torch.Tensor, ...]:
    """q_nope, q_rope, latent, k_rope, w_uk, w_uv of T = 3 and S = 7."""
    return n(2, 3, 4, 6), n(2, 3, 4, 2), n(2, 7, 5), n(2, 7, 2), n(4, 6, 5), n(4, 3, 5)


def linear(T: int = 70) -> tuple[torch.Tensor, ...]:
    return n(2, T, 3, 4), n(2, T, 3, 4), n(2, T, 3, 5)


def scan() -> tuple[torch.Tensor, ...]:
    """x, dt, A, B, C, skip and a state."""
    dt, A = torch.rand(2, 9, 6), -torch.rand(6, 3)
    return n(2, 9, 6), dt, A, n(2, 9, 3), n(2, 9, 3), n(6), n(2, 6, 3)


def experts(E: int = 4) -> tuple[torch.Tensor, ...]:
    """x, the experts and weights of each token, and matrices; some experts meet nobody."""
    chosen = torch.tensor([[0, 2], [2, 0], [0, 3], [3, 2], [0, 2]])
    return n(5, 6), chosen, torch.rand(5, 2), n(E, 7, 6), n(E, 7, 6), n(E, 6, 7)


def chunk_with_padding(*inputs: torch.Tensor) -> Any:
    q, k, v, real = inputs
    sums = q.new_zeros(2, 3, 1 + 4 + 16, 6)
    out, sums = chunked_linear_attention(q, k, v, sums, 16, real=real)
    return out, recurrent_step(q[:, :1], k[:, :1], v[:, :1], sums, real=real[:, :1])


def merged(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    scores = (q @ k.mT).masked_fill(visible(4, 9, q.device)[0].logical_not(), -torch.inf)
    parts = [partial_attention(scores[..., i : i + 3], v[:, i : i + 3]) for i in (6, 0, 3)]
    return merge(merge(parts[0], parts[1]), parts[2]).value()


def turned(scaling: RopeScaling | None, pairing: str, x: torch.Tensor) -> Any:
    positions = torch.arange(1000, 1009, device=x.device)
    tables = rope_tables(positions, 8, scaling=scaling)
    return tables, apply_rope(x, *tables, pairing)


def stored(weight: torch.Tensor) -> Any:
    bits, fours = Bitmap.of(weight), TwoFour.of(weight)
    assert torch.equal(bits.dense(), weight)
    assert torch.equal(fours.dense(), weight)
    return bits, fours


SCALINGS = {
    "none": None,
    "linear": RopeScaling("linear", 4.0),
    "llama3": RopeScaling("llama3", 8.0, 512),
    "yarn": RopeScaling("yarn", 8.0, 512),
}
REAL = torch.arange(70) < torch.tensor([[70], [11]])  # [B, T]
LENGTHS = [3, 1, 4], [5, 6, 4]  # new and held tokens of three sequences
ROWS = (8, 15, 15)  # their sums

KERNELS: dict[str, Callable[[], Call]] = {
    "full attention": lambda: (full_attention, heads(9, 4, 8)),
    "flash attention": lambda: (partial(flash_attention, block_q=4, block_k=3), heads(7, 9, 8)),
    "softmax in one pass": lambda: (partial(online_softmax, block_size=5), [3 * n(3, 17)]),
    "partial attention, merged": lambda: (merged, [n(2, 4, 8), n(2, 9, 8), n(2, 9, 8)]),
    "a norm": lambda: (rms_norm, [n(3, 8), n(8)]),
    "an MLP": lambda: (gated_mlp, [n(3, 8), n(12, 8), n(12, 8), n(8, 12)]),
    "an MLP with gelu": lambda: (
        partial(gated_mlp, activation="gelu_tanh"),
        [n(3, 8), n(12, 8), n(12, 8), n(8, 12)],
    ),
    "expanded latents": lambda: (expanded_attention, latents()),
    "absorbed latents": lambda: (absorbed_attention, latents()),
    "latents under a mask": lambda: (
        lambda *given: attend_latents(*given[:4], scale=0.4, mask=given[4]),
        [n(2, 3, 4, 5), n(2, 3, 4, 2), n(2, 7, 5), n(2, 7, 2), visible(3, 7, window=2)],
    ),
    "linear attention": lambda: (parallel_linear_attention, linear()),
    "linear attention in chunks": lambda: (chunk_with_padding, [*linear(), REAL]),
    "a scan": lambda: (selective_scan, scan()),
    "a convolution": lambda: (
        causal_conv,
        [n(2, 9, 6), n(6, 4), n(6), n(2, 6, 4), torch.tensor([9, 2])],
    ),
    "a router": lambda: (partial(route, k=2), [n(9, 8)]),
    "a router with groups": lambda: (
        lambda logits, bias: route(
            logits, 2, score="sigmoid", groups=4, groups_kept=2, group_top=2, bias=bias
        ),
        [n(9, 8), n(8)],
    ),
    "experts": lambda: (run_experts, experts()),
    "experts in bins": lambda: (partial(run_in_bins, capacity=2), experts()),
    "balance": lambda: (load_balance_loss, [n(5, 4).softmax(-1), experts()[1]]),
    "a ragged batch": lambda: (
        lambda *rows: ragged_attention(*rows, *LENGTHS),
        [n(ROWS[0], 6, 8), n(ROWS[1], 2, 8), n(ROWS[2], 2, 8)],
    ),
    "a padded batch": lambda: (
        lambda *rows: padded_attention(*rows, *LENGTHS),
        [n(ROWS[0], 6, 8), n(ROWS[1], 2, 8), n(ROWS[2], 2, 8)],
    ),
    "a decode step by head": lambda: (decode_by_head, [n(6, 8), n(9, 2, 8), n(9, 2, 8)]),
    "pooled heads": lambda: (lambda w: pool_heads(w, 6, 2), [n(48, 8)]),
    "greedy law": lambda: (lambda x: sampling_probs(x, 0), [n(5, 40)]),
    "top-k and top-p": lambda: (lambda x: sampling_probs(x, 0.7, 20, 0.9), [n(5, 40)]),
    "masks of weights": lambda: (
        lambda w, x: (magnitude(w), kept_per_row(wanda(w, x), 3), two_four(magnitude(w))),
        [n(5, 8), torch.rand(8)],
    ),
    "weights without zeros": lambda: (
        stored,
        [torch.where(two_four(magnitude(x := n(5, 12))), x, 0.0)],
    ),
    "distillation": lambda: (
        lambda a, b: (
            logits_loss(a, b, 2.0),
            logits_loss(a, b, reverse=True),
            hidden_loss([a], [b]),
        ),
        [n(3, 9), n(3, 9)],
    ),
    **{
        f"RoPE, {name}, {pairing}": partial(
            lambda scaling, pairing: (partial(turned, scaling, pairing), [n(2, 9, 3, 12)]),
            scaling,
            pairing,
        )
        for name, scaling in SCALINGS.items()
        for pairing in ("half", "interleaved")
    },
}


@pytest.mark.parametrize("name", KERNELS)
def test_the_kernel_is_the_same(name: str) -> None:
    function, inputs = KERNELS[name]()
    same_on_a_card(function, *inputs)
