"""A masked-diffusion language model: our transformer, reading both ways (`causal=False`), with one
more token, the mask.

Tokens 0 to V − 2 are text; V − 1 is the mask. There is no cache: every token that appears changes
what all others see, so each forward pass computes the whole sequence, and pays off only if it
reveals several tokens.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from twophase.kernels.diffusion import (
    EPSILON,
    counted_loss,
    diffusion_loss,
    hidden_nats,
    mask_exactly,
    mask_tokens,
    stratified_times,
    unmask,
)
from twophase.kernels.span import whole
from twophase.models.transformer import Transformer


def mask_token(model: Transformer) -> int:
    """The number of the mask: the last of the vocabulary. ValueError if the model reads one way
    only."""
    if model.config.causal:
        raise ValueError(
            "masked diffusion needs a model that reads both ways: a Config with causal=False."
        )
    return model.config.V - 1


def training_loss(
    model: Transformer,
    tokens: torch.Tensor,
    generator: torch.Generator | None = None,
    epsilon: float = EPSILON,
) -> torch.Tensor:
    """The loss of one training step: the negative ELBO in nats per token, as one draw per sequence
    estimates it; a scalar.

    tokens: int64 [B, T], without masks. Times and masks come from `generator`, on whatever device
    it is.
    """
    mask = mask_token(model)
    t = stratified_times(len(tokens), generator, epsilon)  # [B]
    seen, masked = mask_tokens(tokens, t.to(tokens.device), mask, generator)  # [B, T] each
    return diffusion_loss(model(seen), tokens, masked, t).mean()


# The times of sequences, fp32 [B], and where their bytes are hidden, bool [B, T].
Hidden = tuple[torch.Tensor, torch.Tensor]


def draw_hidden(B: int, T: int, generator: torch.Generator, epsilon: float = EPSILON) -> Hidden:
    """What `training_loss` draws from `generator` for tokens [B, T], on the generator's device."""
    t = stratified_times(B, generator, epsilon)  # [B]
    return t, torch.rand(B, T, generator=generator, device=generator.device) < t[:, None]


def loss_of_hidden(model: Transformer, tokens: torch.Tensor, hidden: Hidden) -> torch.Tensor:
    """`training_loss` of tokens [B, T] where these are hidden. Nothing is looked at on the host, so
    that a step on a card can be captured."""
    t, masked = hidden
    seen = torch.where(masked, mask_token(model), tokens)  # [B, T]
    return (hidden_nats(model(seen), tokens, masked).mean(-1) / t).mean()


@dataclass(frozen=True)
class Bound:
    """An upper bound on the bits per byte of a model, as so many draws estimate it."""

    bits_per_byte: float
    standard_error: float  # of the estimate, over draws of masks on the same text; NaN for one draw
    n_windows: int
    n_draws: int


@torch.no_grad()
def bound_bits_per_byte(
    model: Transformer, data: np.ndarray, n_draws: int = 4, seed: int = 0, B: int = 64
) -> Bound:
    """The negative ELBO of `data` in bits per byte, over windows of the model's context that do not
    overlap.

    The law of the model's samples may need fewer bits, but not more: against an autoregressive
    model, whose bits per byte are exact, the comparison is never too kind to diffusion. Every draw
    hides a count of tokens in every window, the counts spread evenly over 1 to T across the
    windows, and each window a set of its own; draws are independent. Nothing is given: a window's
    first byte counts like all others. Raises ValueError if the data does not fill a window, or for
    n_draws < 1 or B < 1.
    """
    B = whole("the number of windows at a time, B,", B, 1)
    mask, T = mask_token(model), model.config.context
    n = len(data) // T
    if n < 1 or whole("the number of draws", n_draws, 0) < 1:
        raise ValueError(
            f"the bound needs at least 1 draw and {T} bytes; got {n_draws} and {len(data)}."
        )
    windows = torch.from_numpy(data[: n * T].reshape(n, T).astype(np.int64))  # [n, T]
    device, generator = model.device, torch.Generator().manual_seed(seed)
    draws = []
    for _ in range(n_draws):
        shift = torch.rand(1, generator=generator, dtype=torch.float64)  # [1]
        counts = 1 + ((torch.randperm(n, generator=generator) + shift) * T / n).long().clamp(
            max=T - 1
        )  # [n], 1 to T
        seen, masked = mask_exactly(windows, counts, mask, generator)  # [n, T] each
        nats = 0.0
        for i in range(0, n, B):
            inputs, tokens, hidden = (
                x[i : i + B].to(device) for x in (seen, windows, masked)
            )  # [B, T] each
            nats += float(counted_loss(model(inputs), tokens, hidden).double().sum())
        draws.append(nats / n / math.log(2))
    error = float(np.std(draws, ddof=1)) / math.sqrt(n_draws) if n_draws > 1 else float("nan")
    return Bound(sum(draws) / n_draws, error, n, n_draws)


@dataclass(frozen=True)
class Completion:
    """What `complete` made: the new tokens, and how they came."""

    prompt: list[int]
    tokens: list[int]  # the new ones
    pass_of: list[int]  # the forward pass that revealed each of them, from 1
    times_s: list[float]  # when the tokens of each forward pass were there, counted from the call

    @property
    def n_passes(self) -> int:
        """Forward passes run, each over the prompt, all new tokens and the suffix."""
        return len(self.times_s)

    @property
    def tokens_per_pass(self) -> float:
        """New tokens per forward pass; an autoregressive model makes 1. NaN if there is no new
        token."""
        return len(self.tokens) / self.n_passes if self.n_passes else float("nan")


@torch.inference_mode()
def complete(
    model: Transformer,
    prompt_tokens: Sequence[int],
    n_new: int,
    n_steps: int,
    *,
    suffix_tokens: Sequence[int] = (),
    block: int | None = None,
    order: str = "ancestral",
    temperature: float = 1.0,
    generator: torch.Generator | None = None,
) -> Completion:
    """n_new tokens between a prompt and a suffix, both of which may be empty, in n_steps steps of
    unmasking.

    `block`: tokens come left to right in blocks of so many, each unmasked in its share of the steps
    while everything after it is still hidden; None: all at once. `order`, `temperature`: see
    `unmask`. Raises ValueError for a token that is no text, n_new < 0, block < 1, fewer steps than
    blocks, or options out of range.
    """
    mask = mask_token(model)
    given = (*prompt_tokens, *suffix_tokens)
    if bad := [t for t in given if not hasattr(t, "__index__") or not 0 <= t < mask]:
        raise ValueError(
            f"token {bad[0]} is no text: that is 0 to {mask - 1}, and {mask} is the mask."
        )
    plan = _blocks(n_new, n_steps, block)
    canvas = torch.tensor([[*prompt_tokens, *[mask] * n_new, *suffix_tokens]], device=model.device)
    started, begun_s, pass_of = time.perf_counter(), list[float](), list[int]()

    def network(tokens: torch.Tensor) -> torch.Tensor:
        begun_s.append(time.perf_counter() - started)
        T = tokens.shape[1]
        return model(torch.cat([tokens, canvas[:, T:]], dim=1))[:, :T]  # type: ignore[no-any-return]  # [1, T, V]

    options = {"order": order, "temperature": temperature, "generator": generator}
    end = len(prompt_tokens)
    for size, steps in plan:
        end += size
        passes_before = len(begun_s)
        made = unmask(network, canvas[:, :end], steps, mask, **options)  # type: ignore[arg-type]
        canvas = torch.cat([made.tokens, canvas[:, end:]], dim=1)  # [1, T]
        pass_of += (passes_before + made.pass_of[0, end - size :]).tolist()
    tokens = canvas[0, len(prompt_tokens) : end].tolist()
    times_s = [*begun_s[1:], time.perf_counter() - started] if begun_s else []
    return Completion(list(prompt_tokens), tokens, pass_of, times_s)


def _blocks(n_new: int, n_steps: int, block: int | None) -> list[tuple[int, int]]:
    """The size of each block and its share of the steps, earlier blocks first when the shares are
    not even."""
    for n in (n_new, n_steps, block or 1):
        if isinstance(n, bool) or not hasattr(n, "__index__"):
            raise ValueError(f"n_new, n_steps and block are whole numbers; got {n!r} among them.")
    if n_new < 0 or (block is not None and block < 1):
        raise ValueError(
            f"n_new is at least 0 and a block at least 1 token; got {n_new} and {block}."
        )
    block = block or max(1, n_new)
    sizes = [min(block, n_new - start) for start in range(0, n_new, block)]
    if n_steps < max(1, len(sizes)):
        raise ValueError(
            f"every block needs a step: {len(sizes)} blocks cannot be unmasked in n_steps ="
            f" {n_steps}."
        )
    return [(size, (n_steps - 1 - i) // len(sizes) + 1) for i, size in enumerate(sizes)]
