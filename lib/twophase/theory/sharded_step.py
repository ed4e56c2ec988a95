"""A pass of a model on the chips of a mesh: what the fullest chip holds, reads and computes under a
layout, and what it sends.

One format for all weights. Heads are cut as `layout.chip_part` says; whatever else is cut, is cut
evenly. Experts are reached evenly.
"""

from dataclasses import dataclass
from functools import cached_property
from math import prod

from twophase.theory import messages
from twophase.theory._ops import ceil_div
from twophase.theory.architecture import Architecture
from twophase.theory.hardware import Hardware
from twophase.theory.layout import chip_part
from twophase.theory.links import Link
from twophase.theory.messages import Collective, Messages
from twophase.theory.mixture_of_experts import expected_experts

CACHES = ("heads", "batch", "length")


@dataclass(frozen=True)
class Pass:
    """B sequences with T new tokens each and S positions in the end: decode with T = 1, prefill
    with T = S."""

    arch: Architecture
    B: int
    S: int
    T: int = 1
    bytes_per_param: float = 2
    bytes_per_kv: float = 2
    bytes_per_activation: float = 2

    @property
    def n_tokens(self) -> int:
        """Tokens of all sequences."""
        return self.B * self.T

    def flops(self, arch: Architecture, B: float) -> float:
        """FLOPs of this pass for B sequences of a model, or of a chip's part of one."""
        if self.T == 1:
            return float(arch.decode_step_flops(B, self.S))
        return float(arch.prefill_flops(B, self.T, head_at_last_only=True))

    def weights_read(self, arch: Architecture, n_tokens: float) -> float:
        """Bytes of weights that so many tokens need."""
        return float(arch.step_weight_bytes(n_tokens, self.bytes_per_param))

    def caches(self, arch: Architecture, B: float, S: float) -> float:
        """Bytes of B caches of S positions."""
        return float(B * arch.cache_bytes(S, self.bytes_per_kv))


@dataclass(frozen=True)
class Load:
    """What the fullest chip has to do in one pass. read_bytes: weights and caches from its memory;
    messages: what it takes part in, one after the other."""

    weight_bytes: float
    cache_bytes: float
    read_bytes: float
    flops: float
    messages: Messages

    @property
    def held_bytes(self) -> float:
        """Weights and caches in the chip's memory."""
        return self.weight_bytes + self.cache_bytes

    @cached_property
    def sent_bytes(self) -> float:
        """Bytes that the chip sends."""
        return float(messages.sent_bytes(self.messages))

    def work_s(self, chip: Hardware, dtype: str = "bf16") -> float:
        """Seconds of reading or computing, whichever takes longer."""
        return max(
            self.read_bytes / chip.hbm_bytes_per_s, self.flops / chip.peak_flops_per_s(dtype)
        )

    def sending_s(self, link: Link) -> float:
        """Seconds of all messages."""
        return messages.time_s(self.messages, link)

    def step_s(
        self, chip: Hardware, link: Link, dtype: str = "bf16", overlap: bool = False
    ) -> float:
        """Seconds of the pass: the work, then the messages; with perfect overlap, the longer."""
        both = self.work_s(chip, dtype), self.sending_s(link)
        return max(both) if overlap else sum(both)


def tensor(p: Pass, sides: tuple[int, ...], cache: str = "heads") -> Load:
    """Heads, columns, rows and vocabulary over all chips. The cache is cut by "heads" (copied where
    there are more chips than KV heads, or latents), by sequence ("batch") or position ("length");
    ValueError for another word, and for latents cut in the latter two ways, whose messages are not
    those of heads."""
    if cache not in CACHES or (cache != "heads" and p.arch.mla is not None):
        raise ValueError(
            f"A cache is cut by one of {', '.join(CACHES)}, one of latents by heads (then it is"
            f" copied) or with sequences dealt out ('experts'); got {cache!r}."
        )
    arch, n = p.arch, prod(sides)
    once = messages.tensor_part(p.n_tokens, arch.D, sides, p.bytes_per_activation)
    layer = (*once, *once)
    widths = (p.n_tokens, arch.N, arch.K, arch.H, sides, p.bytes_per_activation)
    part, cut = (chip_part(arch, n), 1) if cache == "heads" else (arch, n)  # without copies: evenly
    if cache == "heads":
        kept = p.caches(part, p.B, p.S)
    elif cache == "batch":
        kept = p.caches(arch, ceil_div(p.B, n), p.S)
        layer += messages.batch_split_attention(*widths)
    else:
        kept = p.caches(arch, p.B, ceil_div(p.S, n))
        layer += messages.length_split_attention(*widths)
    return Load(
        weight_bytes=part.n_params() * p.bytes_per_param / cut,
        cache_bytes=kept,
        read_bytes=p.weights_read(part, p.n_tokens) / cut + _read_again(p, kept),
        flops=p.flops(part, p.B) / cut,
        messages=messages.repeated(layer, arch.L) + _vocabulary(p, sides),
    )


def stationary(p: Pass, x_sides: tuple[int, ...], yz_sides: tuple[int, ...]) -> Load:
    """2D weight-stationary: D over X; MLP columns and heads over YZ; in attention the batch over X,
    so that the cache is cut by both."""
    arch, n = p.arch, prod(x_sides) * prod(yz_sides)
    wide_in = (2 if arch.gated_mlp else 1) * arch.F
    cut = (x_sides, yz_sides, p.bytes_per_activation)
    mlp = messages.weight_stationary_part(p.n_tokens, arch.D, wide_in, arch.F, *cut)
    qkv, out = (arch.N + 2 * arch.K) * arch.H, arch.N * arch.H
    attention = messages.weight_stationary_part(p.n_tokens, arch.D, qkv, out, *cut)
    kept = p.caches(chip_part(arch, prod(yz_sides)), ceil_div(p.B, prod(x_sides)), p.S)
    return Load(
        weight_bytes=arch.n_params() * p.bytes_per_param / n,
        cache_bytes=kept,
        read_bytes=p.weights_read(arch, p.n_tokens) / n + _read_again(p, kept),
        flops=p.flops(arch, p.B) / n,
        messages=messages.repeated(attention + mlp, arch.L) + _vocabulary(p, x_sides + yz_sides),
    )


def gathered(p: Pass, sides: tuple[int, ...]) -> Load:
    """FSDP: weights in pieces, each layer's gathered before use; sequences dealt out, or, where
    there are fewer than chips, left to some of them: the others wait."""
    arch, n = p.arch, prod(sides)
    own = ceil_div(p.B, n)
    kept = p.caches(arch, own, p.S)
    read = p.weights_read(arch, own * p.T)  # of experts only those that the chip's tokens visit
    needed = arch.step_weight_bytes(p.n_tokens, p.bytes_per_param)
    return Load(
        weight_bytes=arch.n_params() * p.bytes_per_param / n,
        cache_bytes=kept,
        read_bytes=read + _read_again(p, kept),
        flops=p.flops(arch, own),
        messages=messages.repeated(
            messages.gathered_part(needed / arch.L, sides, bytes_per_param=1), arch.L
        ),
    )


def pipeline(p: Pass, n_stages: int) -> Load:
    """Layers dealt out to stages, as many micro-batches as stages, all of them busy: each stage
    works once for each micro-batch while a token passes through all of them."""
    arch = p.arch
    each = p.B / n_stages
    kept = p.caches(arch, p.B, p.S) / n_stages
    read = n_stages * p.weights_read(arch, max(each * p.T, 1)) / n_stages
    row = each * p.T * arch.D * p.bytes_per_activation
    return Load(
        weight_bytes=arch.n_params() * p.bytes_per_param / n_stages,
        cache_bytes=kept,
        read_bytes=read + _read_again(p, kept),
        flops=p.flops(arch, p.B) / n_stages,
        messages=(Collective("send", row, (n_stages,), "residual stream", n_stages),),
    )


def experts(p: Pass, sides: tuple[int, ...]) -> Load:
    """Experts dealt out whole, everything else copied, sequences dealt out with their caches: a
    token travels to its experts and back. ValueError for a model without experts."""
    arch, n = p.arch, prod(sides)
    if arch.moe is None:
        raise ValueError(f"{arch.name} has no experts to deal out.")
    own = ceil_div(p.B, n)
    one = arch.n_moe_layers * arch.n_expert_params() * p.bytes_per_param  # an expert of each layer
    touched = float(expected_experts(p.n_tokens, arch.moe.E, arch.moe.k))
    own_touched = float(expected_experts(own * p.T, arch.moe.E, arch.moe.k))
    kept = p.caches(arch, own, p.S)
    copied = p.weights_read(arch, own * p.T) - own_touched * one
    return Load(
        weight_bytes=arch.n_params() * p.bytes_per_param - arch.moe.E * one * (1 - 1 / n),
        cache_bytes=kept,
        read_bytes=copied + touched * one / n + _read_again(p, kept),
        flops=p.flops(arch, own),
        messages=messages.repeated(
            messages.expert_part(p.n_tokens, arch.D, arch.moe.k, sides, p.bytes_per_activation),
            arch.n_moe_layers,
        ),
    )


def replicas(p: Pass, n_replicas: int) -> Load:
    """The whole model on each chip, sequences dealt out: nothing is sent."""
    own = ceil_div(p.B, n_replicas)
    kept = p.caches(p.arch, own, p.S)
    return Load(
        weight_bytes=p.arch.n_params() * p.bytes_per_param,
        cache_bytes=kept,
        read_bytes=p.weights_read(p.arch, own * p.T) + _read_again(p, kept),
        flops=p.flops(p.arch, own),
        messages=(),
    )


def _read_again(p: Pass, cache_bytes: float) -> float:
    """Decode reads what is kept; a prompt's keys and values are written as they are made."""
    return cache_bytes if p.T == 1 else 0.0


def _vocabulary(p: Pass, sides: tuple[int, ...]) -> Messages:
    widths = (p.n_tokens, p.B, p.arch.D, p.arch.V, sides, p.bytes_per_activation)
    return messages.vocabulary_part(*widths)
