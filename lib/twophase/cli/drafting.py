"""`twophase generate --draft`: who drafts, whether both models mean the same tokens, and what it
was worth."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twophase.cli.speakers import CourseModel, HuggingFaceModel, Speaker
from twophase.cli.stored_speakers import open_directory

if TYPE_CHECKING:
    from twophase.models.generate import Generation
    from twophase.models.speculative_decoding import Drafter, Speculation
    from twophase.models.transformer import Transformer

LOOKUP, QUANTIZED = "lookup", "quantized"
MOST_DRAFTED = 64


def check_draft(draft: str | None, drafted: int, cache: bool) -> None:
    """ValueError for drafts that cannot be."""
    if draft is None:
        return
    if not 1 <= drafted <= MOST_DRAFTED:
        raise ValueError(
            f"--drafted is 1 to {MOST_DRAFTED} tokens at a time; got {drafted}. Leave out --draft"
            " for none."
        )
    if not cache:
        raise ValueError("--draft takes back tokens of a cache: leave out --no-cache.")


def load_drafter(
    draft: str, speaker: Speaker, device: str, dtype: str, path: str, n_tokens: int
) -> Drafter:
    """What drafts for the model that speaks: the text itself, the model in few bits, heads that
    were trained on it, a checkpoint of the course, or a directory. ValueError if its tokens are
    others."""
    from twophase.models.speculative_decoding import (
        LookupDrafter,
        ModelDrafter,
        in_few_bits,
        trained,
    )

    if draft == LOOKUP:
        return LookupDrafter()
    if draft == QUANTIZED:
        return ModelDrafter(in_few_bits(speaker.load(n_tokens)), draft, path)
    if draft in trained.NAMES:
        if not isinstance(speaker, CourseModel):
            raise ValueError(
                f"{draft} was trained on a model of the course: give a directory a draft with the"
                " same tokenizer, or lookup."
            )
        return trained.drafter(draft, speaker.load(n_tokens), speaker.name)
    small = _small_speaker(draft, speaker, device, dtype)
    return ModelDrafter(small.load(n_tokens), draft, path)


def _small_speaker(draft: str, speaker: Speaker, device: str, dtype: str) -> Speaker:
    """A checkpoint of the course or a directory, as it speaks. ValueError if its tokens are not
    those of the model that it drafts for."""
    from twophase.models import checkpoints

    bytes_wanted, folder = isinstance(speaker, CourseModel), Path(draft)
    if bytes_wanted and (draft in checkpoints.available() or not folder.is_dir()):
        return CourseModel(draft, device, dtype, [])
    ids = isinstance(speaker, HuggingFaceModel) and speaker.tokenizer is None
    small = open_directory(folder, device, dtype, [], ids)
    if isinstance(small, CourseModel) != bytes_wanted:
        theirs, own = ("bytes", "a tokenizer's")[:: 1 if bytes_wanted else -1]
        raise ValueError(
            f"{draft} cannot draft for this model: its tokens are {own}, the model's are {theirs};"
            " take a draft with the same tokens."
        )
    if isinstance(speaker, HuggingFaceModel) and isinstance(small, HuggingFaceModel):
        known = speaker.tokenizer, small.tokenizer
        if known[0] is not None and known[1] is not None:
            check_tokenizers(known[0].rules.get_vocab(), known[1].rules.get_vocab(), draft)
    return small


def check_tokenizers(target: dict[str, int], draft: dict[str, int], name: str) -> None:
    """ValueError unless every token that both number is the same text."""
    texts = {token: text for text, token in target.items()}
    for text, token in draft.items():
        if texts.get(token, text) != text:
            raise ValueError(
                f"{name} cannot draft for this model: its token {token} is {text!r}, the model's is"
                f" {texts[token]!r}; take a draft with the same tokenizer."
            )


def speculation_facts(
    record: Speculation, name: str, gamma: int, without_s: float
) -> dict[str, Any]:
    """What drafts were worth, as plain data; null where nothing was drafted or timed."""
    return {
        "by": name,
        "tokens_at_a_time": gamma,
        "calls": len(record.calls),
        "acceptance": _number(record.acceptance),
        "tokens_per_call": _number(record.tokens_per_call),
        "tpot_without_s": _number(without_s),
        "speedup": _number(without_s / record.tpot_s),
    }


def speculation_sentence(facts: dict[str, Any]) -> str:
    """The same for a person."""
    named = {LOOKUP: "looked up in the text", QUANTIZED: "drafted by the model itself in 4 bits"}
    by = named.get(facts["by"], f"drafted by {facts['by']}")
    if facts["calls"] == 0:
        return f"No token was {by}: there was none to say after the first."
    kept = facts["acceptance"]
    judged = "none were found" if kept is None else f"{kept:.0%} of those judged were kept"
    sentence = (
        f"Up to {facts['tokens_at_a_time']} tokens {by} at a time: {judged},"
        f" {facts['tokens_per_call']:.2f} tokens a call"
    )
    if facts["speedup"] is None:
        return f"{sentence}."
    return (
        f"{sentence}; {facts['speedup']:.2f} times as fast as without drafts, which took"
        f" {facts['tpot_without_s'] * 1e3:.2f} ms a token"
    )


def tpot_without_drafts(network: Transformer, record: Generation, **options: Any) -> float:
    """Seconds a token of the same model without drafts, on the same prompt and as many tokens; two
    before, whose time is not told: with drafts no single token may have had its loops compiled."""
    from twophase.models.generate import complete

    complete(network, record.prompt[:2], min(2, len(record.tokens)), **options)
    return complete(network, record.prompt, len(record.tokens), **options).tpot_s


def flat(steps: Iterable[Sequence[int]]) -> Iterator[int]:
    """The tokens of a stream of lists."""
    return (token for tokens in steps for token in tokens)


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
