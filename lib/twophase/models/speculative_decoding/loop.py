"""The loop: draft, verify in one pass of the target, keep, take back the rest.

Every sequence of a batch keeps another number of tokens; the cache takes that (`Cache.commit`). The
target's pass reads the last token said and the drafted ones, so that one that keeps nothing still
says one token, as a plain step does.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from twophase.kernels.sampling import Choose, stop_reason
from twophase.kernels.span import whole
from twophase.kernels.speculative_decoding import depths
from twophase.models.cache import Cache
from twophase.models.generate import Generation, check_generation, on_path
from twophase.models.speculative_decoding.drafts import Drafter, FeatureReader
from twophase.models.speculative_decoding.judging import Judge
from twophase.models.speculative_decoding.law import Dice, Law
from twophase.models.transformer import Transformer


@dataclass(frozen=True)
class Call:
    """One pass of the target over a draft, for one sequence."""

    drafted: tuple[int, ...]
    parents: tuple[int, ...]
    kept: tuple[int, ...]  # which of the drafted tokens stayed
    token: int  # what the target said after them
    draft_s: float  # of the whole batch
    verify_s: float


@dataclass
class Speculation(Generation):
    """What a generation with drafts made, and how."""

    calls: list[Call] = field(default_factory=list)

    @property
    def tokens_per_call(self) -> float:
        """Tokens that a pass of the target said, the prefill and its token left out. NaN without
        one."""
        made = sum(len(call.kept) + 1 for call in self.calls)
        return made / len(self.calls) if self.calls else float("nan")

    @property
    def acceptance(self) -> float:
        """The share of judged tokens that stayed: in a chain, those kept and the one refused; what
        comes behind a refusal is not judged. NaN if none was. Of a tree: of its levels."""
        kept = sum(len(call.kept) for call in self.calls)
        refused = sum(len(call.kept) < max(depths(call.parents), default=0) for call in self.calls)
        return kept / (kept + refused) if kept + refused else float("nan")


def speculate(
    target: Transformer,
    drafter: Drafter,
    prompt_tokens: Sequence[int],
    n_new: int,
    *,
    record: Speculation | None = None,
    generator: torch.Generator | None = None,
    **options: Any,
) -> Iterator[list[int]]:
    """Yield the tokens of each pass that continue one prompt: `speculate_batch` for a batch of one,
    with its other options."""
    records = None if record is None else [record]
    generators = None if generator is None else [generator]
    steps = speculate_batch(
        target, drafter, [prompt_tokens], n_new, records=records, generators=generators, **options
    )
    return (tokens for (tokens,) in steps)


def speculate_batch(
    target: Transformer,
    drafter: Drafter,
    prompts: Sequence[Sequence[int]],
    n_new: int,
    *,
    gamma: int = 4,
    law: Law = Law(),  # noqa: B008  (a frozen record)
    stop: Sequence[Sequence[int]] = (),
    generators: Sequence[torch.Generator] | None = None,
    choose: Choose | None = None,
    records: Sequence[Speculation] | None = None,
    path: str = "plain",
) -> Iterator[list[list[int]]]:
    """Continue B prompts, of any lengths, by up to n_new tokens each; yield, pass by pass, the new
    tokens of each, none for those that have ended.

    Their law is that of `generate_batch` with the same temperature, top-k and top-p (`law`);
    greedily they are its very tokens, but where two logits are equal to the last digits. `gamma`:
    tokens drafted at a time (of a tree: levels). The rest as in `generate_batch`. Raises ValueError
    at once for what that refuses, gamma < 0, and a drafter that is not for this target.
    """
    check_generation(target, prompts, n_new, stop)
    for name, given in (("generators", generators), ("records", records)):
        if given is not None and len(given) != len(prompts):
            raise ValueError(f"{len(prompts)} prompts need as many {name}; got {len(given)}.")
    whole("the number of drafted tokens", gamma, 0)
    records = [Speculation() for _ in prompts] if records is None else records
    for record, prompt in zip(records, prompts, strict=True):
        record.prompt, record.tokens, record.times_s, record.calls = list(prompt), [], [], []
        record.finish_reason = stop_reason([], n_new, stop)
    longest = max(map(len, prompts)) + n_new
    size = drafter.begin(target.config.V, len(prompts), longest, gamma)
    cache = target.new_cache(len(prompts), longest + size, rollback=gamma)
    run, dice = on_path(target, path), Dice(generators, choose)
    reader = drafter if isinstance(drafter, FeatureReader) else None
    return _loop(Judge(target, run, law, dice, reader), drafter, cache, n_new, gamma, stop, records)


def _loop(
    target: Judge,
    drafter: Drafter,
    cache: Cache,
    n_new: int,
    gamma: int,
    stop: Sequence[Sequence[int]],
    records: Sequence[Speculation],
) -> Iterator[list[list[int]]]:
    """The prefill, then draft and verify until every sequence has ended."""
    if not n_new:
        return
    started = time.perf_counter()
    prompts = [record.prompt for record in records]
    with torch.inference_mode():
        new = [[token] for token in target.first(prompts, cache)]
    yield _append(records, new, n_new, stop, started)
    while any(record.finish_reason is None for record in records):
        with torch.inference_mode():
            new = _draft_and_verify(target, drafter, cache, n_new, gamma, records)
        yield _append(records, new, n_new, stop, started)


def _draft_and_verify(
    target: Judge,
    drafter: Drafter,
    cache: Cache,
    n_new: int,
    gamma: int,
    records: Sequence[Speculation],
) -> list[list[int]]:
    """One round for every sequence that goes on: the tokens that it yields."""
    going = [record.finish_reason is None for record in records]
    # the target says one token more than it keeps, so the last one is never drafted
    counts = [
        min(gamma, n_new - len(record.tokens) - 1) if goes else 0
        for record, goes in zip(records, going, strict=True)
    ]
    texts = [
        [*record.prompt, *record.tokens] if goes else None
        for record, goes in zip(records, going, strict=True)
    ]
    before = time.perf_counter()
    drafts = drafter.propose(texts, counts, target.law, target.dice.of)
    between = time.perf_counter()
    said = [text[-1] if text else None for text in texts]
    verdicts = target.judge(said, drafts, cache)
    after = time.perf_counter()
    new: list[list[int]] = []
    for record, draft, verdict in zip(records, drafts, verdicts, strict=True):
        if verdict is None:
            new.append([])
            continue
        drafted, parents = tuple(draft.tokens), tuple(draft.parents or ())
        record.calls.append(
            Call(drafted, parents, verdict.kept, verdict.token, between - before, after - between)
        )
        new.append([*(drafted[i] for i in verdict.kept), verdict.token])
    return new


def _append(
    records: Sequence[Speculation],
    new: Sequence[Sequence[int]],
    n_new: int,
    stop: Sequence[Sequence[int]],
    started: float,
) -> list[list[int]]:
    """Add the new tokens to the records, up to the one that ends a sequence; return those added."""
    now, added = time.perf_counter() - started, []
    for record, tokens in zip(records, new, strict=True):
        before = len(record.tokens)
        for token in tokens:
            if record.finish_reason is None:
                record.tokens.append(token)
                record.times_s.append(now)
                record.finish_reason = stop_reason(record.tokens, n_new, stop)
        added.append(record.tokens[before:])
    return added
