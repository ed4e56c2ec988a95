"""From logits to a token: temperature, top-k, top-p (nucleus; Holtzman et al., 2020, arXiv
1904.09751), and when to stop.

The order is that of Hugging Face and vLLM: temperature first, then top-k, then top-p over what
top-k left, renormalized.
"""

from collections.abc import Callable, Sequence

import torch

Choose = Callable[[torch.Tensor], int]  # probabilities [V] → the index drawn


def sampling_probs(
    logits: torch.Tensor,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
) -> torch.Tensor:
    """The law that a sampler draws from: logits [..., V] → probabilities [..., V], fp32, each row
    summing to 1.

    temperature: logits are divided by it; 0 means greedy, all mass on the largest logit.
    top_k: only the k largest keep their mass. top_p: only the smallest set of largest probabilities
    whose mass *reaches* top_p, the token that crosses included, so at least one is left. Among
    equals the lower index goes first. None switches a filter off. Raises ValueError for temperature
    < 0, top_k < 1, or top_p outside (0, 1], and for logits among which NaN or +inf is the largest.
    """
    check_sampling(temperature, top_k, top_p)
    largest = logits.amax(-1, keepdim=True)  # [..., 1]
    _check_largest(largest)
    if temperature == 0:
        none = torch.zeros_like(logits, dtype=torch.float32)  # [..., V]
        return none.scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)
    scaled = (logits.float() - largest.float()) / temperature  # at most 0: nothing overflows
    probs, order = scaled.softmax(-1).sort(dim=-1, descending=True, stable=True)  # [..., V] each
    if top_k is not None:
        probs[..., top_k:] = 0.0
        probs = probs / probs.sum(-1, keepdim=True)
    if top_p is not None:
        # a token stays while the ones before it have not reached top_p
        probs = torch.where(probs.cumsum(-1) - probs < top_p, probs, 0.0)  # [..., V]
        probs = probs / probs.sum(-1, keepdim=True)
    return torch.zeros_like(probs).scatter_(-1, order, probs)  # back to the order of the vocabulary


def sample(
    logits: torch.Tensor,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    *,
    generator: torch.Generator | None = None,
    choose: Choose | None = None,
) -> int:
    """Draw one token from logits [V]; with temperature 0 nothing is drawn, the largest logit wins.

    `choose(probs)` draws if it is given (a test can then walk every branch), else torch does with
    `generator`.
    """
    if temperature == 0:
        check_sampling(temperature, top_k, top_p)
        largest, token = logits.max(-1)
        _check_largest(largest)
        return int(token)
    probs = sampling_probs(logits, temperature, top_k, top_p)  # [V]
    if choose is not None:
        return int(choose(probs))
    if generator is not None:
        probs = probs.to(generator.device)
    return int(torch.multinomial(probs, 1, generator=generator))


def stop_reason(
    tokens: Sequence[int], max_tokens: int, stop: Sequence[Sequence[int]] = ()
) -> str | None:
    """Why generation ends after `tokens`: "stop" if they end with a stop sequence, "length" if
    there are max_tokens.

    None if it goes on.
    """
    if any(list(tokens[-len(s) :]) == list(s) for s in stop if s):
        return "stop"
    return "length" if len(tokens) >= max_tokens else None


def check_sampling(temperature: float, top_k: int | None, top_p: float | None) -> None:
    """Raise ValueError, in one sentence, unless the three parameters make sense."""
    if not 0 <= temperature < float("inf"):
        raise ValueError(
            f"the temperature is a finite number of at least 0 (0 is greedy); got {temperature}."
        )
    if top_k is not None and not (
        hasattr(top_k, "__index__") and not isinstance(top_k, bool) and top_k >= 1
    ):
        raise ValueError(f"top_k keeps at least one token; got {top_k}.")
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"top_p is a probability above 0 and at most 1; got {top_p}.")


def _check_largest(largest: torch.Tensor) -> None:
    """ValueError where the largest logits are no numbers."""
    if not largest.isfinite().all():
        raise ValueError(
            "the logits hold NaN or infinity, so no token is the likeliest: the weights are"
            " damaged, or numbers on the way outgrew their dtype (fp16 ends at 65,504; bf16 does"
            " not)."
        )
