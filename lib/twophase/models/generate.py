"""The generation loop, naive and cached, with a clock.

Naive: each new token runs the whole sequence again. Cached: the prompt runs once (prefill), then
each new token runs alone against the cache (decode). Both give the same tokens.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch

from twophase.kernels.sampling import Choose, check_sampling, sample, stop_reason
from twophase.models.transformer import Transformer


@dataclass
class Generation:
    """What a generation made, and when."""

    prompt: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    times_s: list[float] = field(
        default_factory=list
    )  # when each token was there, counted from the call
    finish_reason: str | None = None  # "stop", "length", or None while it runs

    @property
    def ttft_s(self) -> float:
        """Time to first token: the prefill and one sample. NaN if there is no token."""
        return self.times_s[0] if self.times_s else float("nan")

    @property
    def tpot_list_s(self) -> list[float]:
        """Time of every further token."""
        return [
            after - before for before, after in zip(self.times_s, self.times_s[1:], strict=False)
        ]

    @property
    def tpot_s(self) -> float:
        """Time per output token, the mean after the first. NaN if there are fewer than two."""
        gaps = self.tpot_list_s
        return sum(gaps) / len(gaps) if gaps else float("nan")

    @property
    def tokens_per_s(self) -> float:
        """All tokens over all time. NaN if there is no token."""
        return len(self.tokens) / self.times_s[-1] if self.times_s else float("nan")


def encode(text: str) -> list[int]:
    """The tokens of a text: its UTF-8 bytes after a newline, which tells the model that the text
    begins a line.

    Without it a model of code cannot know how far the first line is indented, and guesses badly.
    """
    return list(b"\n" + text.encode(errors="surrogateescape"))


def decode(tokens: Sequence[int]) -> str:
    """The text of tokens; bytes that are no UTF-8 become U+FFFD."""
    return bytes(tokens).decode(errors="replace")


def generate(
    model: Transformer,
    prompt_tokens: Sequence[int],
    n_new: int,
    *,
    cache: bool = True,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    stop: Sequence[Sequence[int]] = (),
    generator: torch.Generator | None = None,
    choose: Choose | None = None,
    record: Generation | None = None,
) -> Iterator[int]:
    """Yield up to n_new tokens that continue `prompt_tokens`, greedily unless a temperature is
    given.

    `stop` lists token sequences; the one that ended the generation is yielded too. `record`, if
    given, is filled as tokens come. Raises ValueError at once for a model of masked diffusion, an
    empty prompt, a token outside the vocabulary, n_new < 0, or sampling parameters out of range.
    """
    V = model.config.V
    if not model.config.causal:
        raise ValueError(
            "a model that reads both ways fills in masked text (models.diffusion): it continues"
            " nothing."
        )
    if not prompt_tokens:
        raise ValueError("the prompt is empty: the model needs at least one token to continue.")
    if bad := [t for t in prompt_tokens if not 0 <= t < V]:
        raise ValueError(f"token {bad[0]} is outside the vocabulary of {V}.")
    if n_new < 0:
        raise ValueError(f"the number of new tokens is at least 0; got {n_new}.")
    check_sampling(temperature, top_k, top_p)
    record = Generation() if record is None else record
    record.prompt, record.tokens, record.times_s, record.finish_reason = (
        list(prompt_tokens),
        [],
        [],
        None,
    )

    def draw(logits: torch.Tensor) -> int:
        return sample(logits, temperature, top_k, top_p, generator=generator, choose=choose)

    return _loop(model, n_new, cache, draw, stop, record)


def _loop(
    model: Transformer,
    n_new: int,
    cache: bool,
    draw: Callable[[torch.Tensor], int],
    stop: Sequence[Sequence[int]],
    record: Generation,
) -> Iterator[int]:
    """The loop itself. What a step feeds the model is all that the cache does not hold: without
    one, everything."""
    tokens = list(record.prompt)
    device = model.embed_tokens.weight.device
    started = time.perf_counter()
    store = model.new_cache(1, len(tokens) + n_new) if cache and n_new else None
    while len(record.tokens) < n_new:
        fed = (
            tokens if store is None else tokens[store.length :]
        )  # prefill: the prompt; decode: one token
        with torch.inference_mode():
            logits = model(torch.tensor([fed], device=device), store)[0, -1]  # [V]
            token = draw(logits)
        tokens.append(token)
        record.tokens.append(token)
        record.times_s.append(time.perf_counter() - started)
        record.finish_reason = stop_reason(record.tokens, n_new, stop)
        yield token
        if record.finish_reason == "stop":
            return


def complete(
    model: Transformer, prompt_tokens: Sequence[int], n_new: int, **options: object
) -> Generation:
    """Run `generate` to its end, with its options, and return the record."""
    record = Generation()
    for _ in generate(model, prompt_tokens, n_new, record=record, **options):  # type: ignore[arg-type]
        pass
    return record
