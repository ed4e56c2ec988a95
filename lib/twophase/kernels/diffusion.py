"""Masked diffusion: text that is made by unmasking, several tokens per forward pass (Austin et al.,
2021, arXiv 2107.03006; MDLM: Sahoo et al., 2024, arXiv 2406.07524; LLaDA: Nie et al., 2025, arXiv
2502.09992).

At time t in [0, 1] every token is hidden with probability t, independently: nothing at 0,
everything at 1 (MDLM's linear schedule, alpha_t = 1 − t). A network that reads both ways sees what
is left and gives, for every position, a law of the token there: logits [B, T, V + 1]. The mask is
one more token, the last; the laws leave it out.

The loss. At a random t, add −log of the probability of every hidden token and divide by t. The mean
over t and masks is the negative ELBO, an upper bound on −log of the probability of the sequence.
The same number, without t: hide a random count of tokens, uniform over 1 to T, and take the mean of
−log over those (LLaDA uses it to evaluate). And, since a set of that many hidden tokens is where a
random order of all tokens stands at a random moment, the same again: the mean, over all T! orders,
of the loss of a network that guesses one token after the other in that order (Uria et al., 2014,
arXiv 1310.1757; Hoogeboom et al., 2022, arXiv 2110.02037). Tests enumerate all three.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional

from twophase.kernels.attention_inputs import check_tensors
from twophase.kernels.sampling import check_sampling, sampling_probs
from twophase.kernels.span import whole

Network = Callable[
    [torch.Tensor], torch.Tensor
]  # tokens, some of them masks, int64 [B, T] → logits [B, T, V + 1]

EPSILON = 1e-3  # the smallest t of training: below, most sequences hide nothing, and 1/t explodes
ORDERS = ("ancestral", "confidence")


def stratified_times(
    B: int, generator: torch.Generator | None = None, epsilon: float = EPSILON
) -> torch.Tensor:
    """B times in [epsilon, 1], one in each of B equal parts of that range: fp32 [B], the latest
    first.

    One random shift moves all of them. Each alone is as good as uniform; together they cover the
    range evenly, so that the mean loss of a batch varies less than with independent times (Kingma
    et al., 2021, arXiv 2107.00630; MDLM). ValueError for less than one time, or an epsilon outside
    of [0, 1).
    """
    B = whole("the number of times", B, 1)
    if not 0 <= epsilon < 1:
        raise ValueError(f"times are between an epsilon and 1, so it is in [0, 1); got {epsilon}.")
    device = None if generator is None else generator.device
    shift = torch.rand(1, generator=generator, device=device)  # [1], in [0, 1)
    return 1 - (1 - epsilon) * (torch.arange(B, device=device) + shift) / B  # [B]


def mask_tokens(
    tokens: torch.Tensor, t: torch.Tensor, mask_token: int, generator: torch.Generator | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Hide each of `tokens` [B, T] with the probability t [B] of its sequence.

    Returns what the network sees, int64 [B, T], and where tokens are hidden, bool [B, T].
    Raises ValueError unless there is one t in [0, 1] for each sequence, and for what are no tokens.
    """
    _check_tokens(tokens, mask_token)
    if t.shape != tokens.shape[:1] or not bool(((t >= 0) & (t <= 1)).all()):
        raise ValueError(
            f"each of the {len(tokens)} sequences needs a probability t in [0, 1]; got"
            f" {t.tolist()}."
        )
    masked = _uniform(tokens, generator) < t[:, None].to(tokens.device)  # [B, T]
    return torch.where(masked, mask_token, tokens), masked


def mask_exactly(
    tokens: torch.Tensor,
    counts: torch.Tensor,
    mask_token: int,
    generator: torch.Generator | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Hide exactly `counts` [B] of the tokens [B, T] of each sequence, every set of that size as
    likely as any other.

    Returns as `mask_tokens` does. Raises ValueError unless there is a count from 0 to T for each
    sequence, and for what are no tokens.
    """
    _check_tokens(tokens, mask_token)
    B, T = tokens.shape
    if counts.shape != (B,) or bool(((counts < 0) | (counts > T)).any()):
        raise ValueError(
            f"each of the {B} sequences needs a count from 0 to T = {T}; got {counts.tolist()}."
        )
    masked = _largest(_uniform(tokens, generator), counts.to(tokens.device))  # [B, T]
    return torch.where(masked, mask_token, tokens), masked


def _check_tokens(tokens: torch.Tensor, mask_token: int) -> None:
    whole("the mask's token", mask_token, 0)
    if tokens.ndim != 2 or tokens.dtype != torch.int64:
        raise ValueError(
            f"what is hidden are tokens, int64 [B, T]; got {tokens.dtype} {list(tokens.shape)}."
        )


def hidden_nats(logits: torch.Tensor, tokens: torch.Tensor, masked: torch.Tensor) -> torch.Tensor:
    """−log of the probability of each hidden token, 0 where nothing is hidden: [B, T], in fp32 at
    least.

    logits: [B, T, V + 1], whose last column, the mask, is left out; tokens: the true ones, int64
    [B, T]. Raises ValueError if shapes do not fit, and for tokens outside the vocabulary.
    """
    check_tensors("the loss", logits)
    if tokens.dtype != torch.int64 or masked.dtype != torch.bool:
        raise ValueError(
            f"the loss needs tokens of int64 and masked of bool; got {tokens.dtype} and"
            f" {masked.dtype}."
        )
    if tokens.shape != masked.shape or logits.shape[:-1] != tokens.shape:
        raise ValueError(
            "the loss needs logits [B, T, V + 1] and tokens and masked of [B, T]; "
            f"got {list(logits.shape)}, {list(tokens.shape)} and {list(masked.shape)}."
        )
    laws = logits[..., :-1].to(torch.promote_types(logits.dtype, torch.float32))  # [B, T, V]
    nats = functional.cross_entropy(laws.transpose(1, 2), tokens, reduction="none")  # [B, T]
    return torch.where(masked, nats, 0.0)


def diffusion_loss(
    logits: torch.Tensor, tokens: torch.Tensor, masked: torch.Tensor, t: torch.Tensor
) -> torch.Tensor:
    """The negative ELBO, in nats per token, as one draw of t and of a mask by `mask_tokens`
    estimates it: [B]. ValueError unless there is one t above 0 and at most 1 for each sequence."""
    if t.shape != tokens.shape[:1] or not bool(((t > 0) & (t <= 1)).all()):
        raise ValueError(
            f"each of the {len(tokens)} sequences needs a t above 0 and at most 1; got"
            f" {t.tolist()}."
        )
    return hidden_nats(logits, tokens, masked).mean(-1) / t.to(logits.device)  # [B]


def counted_loss(logits: torch.Tensor, tokens: torch.Tensor, masked: torch.Tensor) -> torch.Tensor:
    """The same, as one draw of a count, uniform over 1 to T, and of a mask by `mask_exactly`
    estimates it: [B].

    Better for a measurement: no t is left out, and no draw is larger than its worst token. NaN if
    nothing is hidden.
    """
    return hidden_nats(logits, tokens, masked).sum(-1) / masked.sum(-1)  # [B]


@dataclass(frozen=True)
class Unmasked:
    """What `unmask` made, and in how many forward passes."""

    tokens: torch.Tensor  # int64 [B, T], no mask left
    pass_of: (
        torch.Tensor
    )  # int64 [B, T]: the forward pass that revealed each token, from 1; 0 if it was given
    n_passes: int  # forward passes run, each over all B·T positions

    @property
    def tokens_per_pass(self) -> float:
        """Tokens revealed in one sequence per forward pass, mean over the sequences; NaN if nothing
        was hidden."""
        revealed = float((self.pass_of > 0).sum()) / len(self.tokens)
        return revealed / self.n_passes if self.n_passes else float("nan")


def unmask(
    network: Network,
    tokens: torch.Tensor,
    n_steps: int,
    mask_token: int,
    *,
    order: str = "ancestral",
    temperature: float = 1.0,
    generator: torch.Generator | None = None,
) -> Unmasked:
    """Replace the masks in `tokens` [B, T] in `n_steps` steps from t = 1 to 0; tokens that are no
    masks stay.

    Tokens of one step are drawn independently, each from its own law: the fewer the steps, the less
    they know of each other. A step that reveals nothing in any sequence runs no forward pass.

    order "ancestral": the time of each token is uniform, whatever the others do. That is the
    reverse of `mask_tokens` (of the tokens still hidden at t, a step to u reveals each with
    probability (t − u)/t; MDLM, section 3). As n_steps grows, the samples follow the law whose −log
    the loss bounds. order "confidence": each step reveals an equal share of the tokens, those whose
    draw the network finds most probable (MaskGIT: Chang et al., 2022, arXiv 2202.04200; LLaDA's
    low-confidence remasking). Better text in few steps, but even one token at a time it does not
    follow that law: what is probable comes first, and too often.

    Raises ValueError for n_steps < 1, another order, or a negative temperature. Temperature 0 takes
    the most probable token everywhere.
    """
    check_sampling(temperature, None, None)
    if whole("the number of steps", n_steps, 0) < 1:
        raise ValueError(f"unmasking needs at least 1 step; got {n_steps}.")
    if order not in ORDERS:
        raise ValueError(f'the order of unmasking is "ancestral" or "confidence"; got "{order}".')
    step_of = (
        _uniform(tokens, generator) * n_steps
    ).long()  # [B, T]: when a token is due, 0 to n_steps − 1
    pass_of, n_passes = torch.zeros_like(tokens), 0
    for step in range(n_steps):
        hidden = tokens == mask_token  # [B, T]
        due = hidden & (step_of == step) if order == "ancestral" else hidden  # [B, T]
        if not due.any():
            continue
        n_passes += 1
        drawn, confidence = _draw(network(tokens)[..., :-1], temperature, generator)  # [B, T] each
        if order == "confidence":
            share = -(
                -hidden.sum(-1) // (n_steps - step)
            )  # [B]: what is left, over the steps left, rounded up
            due = _largest(confidence.masked_fill(~hidden, -1.0), share)  # [B, T]
        tokens = torch.where(due, drawn, tokens)
        pass_of = torch.where(due, n_passes, pass_of)
    return Unmasked(tokens, pass_of, n_passes)


def _draw(
    logits: torch.Tensor, temperature: float, generator: torch.Generator | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """A token for every position, and its probability at temperature 1: logits [B, T, V] → two [B,
    T]."""
    laws = sampling_probs(logits, temperature).flatten(0, 1)  # [B·T, V]
    if generator is not None:
        laws = laws.to(generator.device)
    drawn = (
        torch.multinomial(laws, 1, generator=generator).to(logits.device).view(logits.shape[:2])
    )  # [B, T]
    confidence = logits.float().softmax(-1).gather(-1, drawn[..., None])[..., 0]  # [B, T]
    return drawn, confidence


def _largest(score: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """Where the `counts` [B] largest numbers of each row of `score` [B, T] are: bool [B, T]; the
    first among equals."""
    rank = score.argsort(dim=-1, descending=True, stable=True).argsort(
        dim=-1
    )  # [B, T]: 0 for the largest
    return rank < counts[:, None]


def _uniform(like: torch.Tensor, generator: torch.Generator | None) -> torch.Tensor:
    """Numbers from [0, 1) of the shape and on the device of `like`, drawn on the device of the
    generator."""
    device = like.device if generator is None else generator.device
    return torch.rand(like.shape, generator=generator, device=device).to(like.device)
