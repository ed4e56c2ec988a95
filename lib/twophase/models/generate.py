"""The generation loop, naive and cached, with a clock.

Naive: each new token runs the whole sequence again. Cached: the prompt runs once (prefill), then
each new token runs alone against the cache (decode). Both give the same tokens.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch

from twophase.kernels.sampling import Choose, check_sampling, sample, stop_reason
from twophase.kernels.span import whole
from twophase.models.cache import Cache
from twophase.models.transformer import Transformer

PATHS = ("plain", "compiled")


@dataclass
class Generation:
    """What a generation made, and when."""

    prompt: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    times_s: list[float] = field(default_factory=list)  # when each token was there, from the call
    finish_reason: str | None = None  # "stop", "length", or None while it runs

    @property
    def ttft_s(self) -> float:
        """Time to first token: the prefill and one sample. NaN if there is no token."""
        return self.times_s[0] if self.times_s else float("nan")

    @property
    def tpot_list_s(self) -> list[float]:
        """Time of every further token."""
        return [after - before for before, after in pairwise(self.times_s)]

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
    record: Generation | None = None,
    generator: torch.Generator | None = None,
    **options: Any,
) -> Iterator[int]:
    """Yield up to n_new tokens that continue one prompt: `generate_batch` for a batch of one, with
    its other options. `record`, if given, is filled as tokens come."""
    records = None if record is None else [record]
    generators = None if generator is None else [generator]
    steps = generate_batch(
        model, [prompt_tokens], n_new, records=records, generators=generators, **options
    )
    return (token for (token,) in steps if token is not None)


def generate_batch(
    model: Transformer,
    prompts: Sequence[Sequence[int]],
    n_new: int,
    *,
    cache: bool = True,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    stop: Sequence[Sequence[int]] = (),
    generators: Sequence[torch.Generator] | None = None,
    choose: Choose | None = None,
    records: Sequence[Generation] | None = None,
    all_logits: bool = False,
    path: str = "plain",
) -> Iterator[list[int | None]]:
    """Continue B prompts, of any lengths, by up to n_new tokens each, greedily unless a temperature
    is given; yield, step by step, the new token of each, None for those that have ended.

    `stop` lists token sequences; the one that ended a sequence is yielded too. Every sequence draws
    from a generator of its own, and so gets what it would get alone. `records`, one for each, are
    filled as tokens come. `all_logits`: make those of every token that is fed, as formulas that
    count 2·n_params FLOPs a token suppose; else of the last ones only. `path`: "plain", the model
    in torch, or "compiled", its decode steps in loops (`models.compiled`). Raises ValueError at
    once for a model of masked diffusion or one that this path cannot run, no prompt or an empty
    one, a token outside the vocabulary, a stop sequence that is none, n_new < 0, another path, or
    sampling parameters out of range.
    """
    check_generation(model, prompts, n_new, stop)
    check_sampling(temperature, top_k, top_p)
    for name, given in (("generators", generators), ("records", records)):
        if given is not None and len(given) != len(prompts):
            raise ValueError(f"{len(prompts)} prompts need as many {name}; got {len(given)}.")
    records = [Generation() for _ in prompts] if records is None else records
    for record, prompt in zip(records, prompts, strict=True):
        record.prompt, record.tokens, record.times_s = list(prompt), [], []
        record.finish_reason = stop_reason([], n_new, stop)

    def draw(logits: torch.Tensor, b: int) -> int:
        own = None if generators is None else generators[b]
        return sample(logits, temperature, top_k, top_p, generator=own, choose=choose)

    run = on_path(model, path)
    if path == "compiled" and not cache:
        raise ValueError(
            "the compiled path is for decode steps, which need a cache: take path='plain' without"
            " one."
        )
    return _loop(model, run, n_new, cache, draw, stop, records, all_logits)


def on_path(model: Any, path: str) -> Any:
    """What runs a model's passes: itself ("plain"), or its compiled form, which is called in the
    same way. ValueError for another name, and for a model that has no compiled form."""
    if path not in PATHS:
        raise ValueError(f"`path` is one of {', '.join(PATHS)}; got {path!r}.")
    if path == "plain":  # or compiled, if that is what came in
        return model
    from twophase.models.compiled import CompiledTransformer  # Numba takes a moment to start

    return model if isinstance(model, CompiledTransformer) else CompiledTransformer(model)


def check_generation(
    model: Transformer,
    prompts: Sequence[Sequence[int]],
    n_new: int,
    stop: Sequence[Sequence[int]],
) -> None:
    """Raise ValueError, in one sentence, unless the model can continue the prompts."""
    if not model.config.causal:
        raise ValueError(
            "a model that reads both ways fills in masked text (models.diffusion): it continues"
            " nothing."
        )
    if not prompts:
        raise ValueError("there is no prompt: a batch needs at least one.")
    if not isinstance(stop, Sequence):
        raise ValueError(f"`stop` is a list of token sequences; got {stop!r}.")
    for what, lists in (("a prompt", prompts), ("a stop sequence", stop)):
        for tokens in lists:
            if not isinstance(tokens, Sequence) or not all(hasattr(t, "__index__") for t in tokens):
                raise ValueError(f"{what} is a list of tokens, whole numbers; got {tokens!r}.")
    for prompt in prompts:
        if not prompt:
            raise ValueError("the prompt is empty: the model needs at least one token to continue.")
        if bad := [t for t in prompt if not 0 <= t < model.config.V]:
            raise ValueError(f"token {bad[0]} is outside the vocabulary of {model.config.V}.")
    whole("the number of new tokens", n_new, 0)


def _loop(
    model: Transformer,
    run: Callable[..., torch.Tensor],
    n_new: int,
    cache: bool,
    draw: Callable[[torch.Tensor, int], int],
    stop: Sequence[Sequence[int]],
    records: Sequence[Generation],
    all_logits: bool,
) -> Iterator[list[int | None]]:
    """The loop itself: feed what the cache does not hold, draw a token for each that goes on."""
    started = time.perf_counter()
    longest = max(len(record.prompt) for record in records) + n_new
    store = model.new_cache(len(records), longest) if cache and n_new else None
    while any(record.finish_reason is None for record in records):
        new: list[int | None] = [None] * len(records)
        with torch.inference_mode():
            for b, logits in _next_logits(run, model.device, records, store, all_logits):
                new[b] = draw(logits, b)
        now = time.perf_counter() - started
        for token, record in zip(new, records, strict=True):
            if token is not None:
                record.tokens.append(token)
                record.times_s.append(now)
                record.finish_reason = stop_reason(record.tokens, n_new, stop)
        yield new


def _next_logits(
    run: Callable[..., torch.Tensor],
    device: torch.device,
    records: Sequence[Generation],
    store: Cache | None,
    all_logits: bool,
) -> Iterator[tuple[int, torch.Tensor]]:
    """Each sequence that goes on, with the logits [V] for its next token: with a cache from one
    pass for all, without one from a pass over each whole text."""
    held = [0] * len(records) if store is None else store.lengths
    fed = [
        [] if record.finish_reason else [*record.prompt, *record.tokens][n:]
        for record, n in zip(records, held, strict=True)
    ]
    going = [b for b, new in enumerate(fed) if new]
    if store is None:
        return ((b, last_logits(run, device, [fed[b]], None, all_logits)[0]) for b in going)
    logits = last_logits(run, device, fed, store, all_logits)  # [B, V]
    return ((b, logits[b]) for b in going)


def last_logits(
    run: Callable[..., torch.Tensor],
    device: torch.device,
    fed: Sequence[Sequence[int]],
    store: Cache | None,
    all_logits: bool = False,
) -> torch.Tensor:
    """Logits [B, V] after the last token of each sequence that is fed, padded to one block."""
    counts, T = [len(new) for new in fed], max(map(len, fed))
    tokens = torch.tensor([[*new, *[0] * (T - len(new))] for new in fed], device=device)
    n_new = None if store is None else counts
    if not all_logits:
        return run(tokens, store, n_new=n_new, at=-1)
    logits = run(tokens, store, n_new=n_new)  # [B, T, V]
    return logits[range(len(fed)), [n - 1 for n in counts]]  # [B, V]


def complete(
    model: Transformer, prompt_tokens: Sequence[int], n_new: int, **options: Any
) -> Generation:
    """Run `generate` to its end, with its options, and return the record."""
    record = Generation()
    for _ in generate(model, prompt_tokens, n_new, record=record, **options):
        pass
    return record


def complete_batch(
    model: Transformer, prompts: Sequence[Sequence[int]], n_new: int, **options: Any
) -> list[Generation]:
    """Run `generate_batch` to its end, with its options, and return the records."""
    records = [Generation() for _ in prompts]
    for _ in generate_batch(model, prompts, n_new, records=records, **options):
        pass
    return records
