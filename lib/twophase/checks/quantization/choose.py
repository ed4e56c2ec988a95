"""quantization-choose: which format for this model, chip and batch."""

from __future__ import annotations

import random
from typing import Any

from twophase.checks.answer import Answer
from twophase.checks.compare import EXACT, plain
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions
from twophase.checks.quantization import _formats as f
from twophase.checks.quantization._formats import Chip, Format, Model, chosen

wrong = Misconceptions()

reference = chosen()


def _add(slug: str, answer: Any, seen: str, says: str) -> None:
    wrong.add(slug, answer, seen, says)


def _any_loss(model: Model, chip: Chip, B: int, kind: Format) -> bool:
    return f.usable({**model, "most_loss": 1e9}, chip, B, kind)


def _any_memory(model: Model, chip: Chip, B: int, kind: Format) -> bool:
    return f.usable(model, {**chip, "memory_bytes": 1e30}, B, kind)


def _any_arithmetic(model: Model, chip: Chip, B: int, kind: Format) -> bool:
    return f.usable(model, chip, B, {**kind, "arithmetic": next(iter(chip["flops_per_s"]))})


def _no_caches(model: Model, chip: Chip, B: int, kind: Format) -> bool:
    return f.usable({**model, "cache_bytes": 0}, chip, B, kind)


def _no_others(model: Model, chip: Chip, B: int, kind: Format) -> bool:
    return f.usable({**model, "other_bytes": 0}, chip, B, kind)


def _one_cache(model: Model, chip: Chip, B: int, kind: Format) -> bool:
    return f.usable(model, chip, 1, kind)


def _sixteen_bits(model: Model, chip: Chip, B: int, kind: Format) -> float:
    """All arithmetic at the rate of bf16."""
    return f.step_s(model, chip, B, {**kind, "arithmetic": "bf16"})


def _no_caches_read(model: Model, chip: Chip, B: int, kind: Format) -> float:
    return f.step_s({**model, "cache_bytes": 0}, chip, B, kind)


def _no_others_read(model: Model, chip: Chip, B: int, kind: Format) -> float:
    return f.step_s({**model, "other_bytes": 0}, chip, B, kind)


_add(
    "fewest_bits",
    chosen(possible=_any_loss, first=lambda m, c, B, k: k["bits_per_weight"]),
    "“fewer bits are faster”",
    "You took the fewest bits, however much they lose. And with many tokens a format with quicker"
    " arithmetic wins.",
)
_add(
    "lowest_loss",
    chosen(first=lambda m, c, B, k: k["loss"]),
    "plausible",
    "You took the lowest loss. Whatever is at most most_loss is good enough; then time decides.",
)
_add(
    "loss_left_out",
    chosen(possible=_any_loss),
    "benchmarks of speed alone",
    "You did not ask whether the format is good enough: its loss must be at most most_loss.",
)
_add(
    "memory_left_out",
    chosen(possible=_any_memory),
    "plausible",
    "You did not ask whether it fits.",
)
_add(
    "arithmetic_left_out",
    chosen(possible=_any_arithmetic),
    "fp8 on a chip that has none",
    "You chose a format whose arithmetic the chip does not have.",
)
_add(
    "caches_take_no_room",
    chosen(possible=_no_caches),
    "plausible",
    "You left the caches out of the memory: B of them lie beside the weights.",
)
_add(
    "one_cache",
    chosen(possible=_one_cache),
    "plausible",
    "You gave room to one cache: each of the B sequences has its own.",
)
_add(
    "other_weights_take_no_room",
    chosen(possible=_no_others),
    "bits times parameters",
    "You left out what is not quantized, embeddings and head: they take room as well.",
)
_add(
    "caches_not_read",
    chosen(first=_no_caches_read),
    "steps timed by their weights alone",
    "You left the caches out of what a step reads: all B of them are read in each step.",
)
_add(
    "other_weights_not_read",
    chosen(first=_no_others_read),
    "bits times parameters",
    "You left what is not quantized out of what a step reads: the task reads it in each step.",
)
_add(
    "reading_alone",
    chosen(first=f.reading_s),
    "“decoding is memory bound”",
    "You compared reading times. With many tokens computing takes longer.",
)
_add(
    "computing_alone",
    chosen(first=f.computing_s),
    "tables of peak FLOP/s",
    "You compared computing times. With few tokens reading takes longer.",
)
_add(
    "one_rate",
    chosen(first=_sixteen_bits),
    "plausible",
    "You computed everything at the rate of bf16: a format that multiplies in int8 or fp8 has the"
    " chip's rate for that.",
)


@wrong("plausible", "You returned a format where none can be used: return None.")
def never_none(model: Model, chip: Chip, B: int, formats: list[Format]) -> str | None:
    last = formats[-1]["name"] if formats else None
    return reference(model, chip, B, formats) or last


def observe(answer: Answer, case: Case) -> dict[str, str]:
    """Whether the choice can be used, and is within 5 % of the quickest."""
    found = plain(answer.call("choose", *case.args))
    return {"the choice": f.verdict(found, case.args)}


def cases(rng: random.Random) -> list[Case]:
    """The worked model at several batches; each condition just met and just not; a fixed few of any
    kind; fresh ones. Only two fixed cases are near the 5 %."""
    fixed = random.Random(15)
    made = {**f.edges_of_formats(), **{f"any kind, {i + 1}": f.fresh(fixed) for i in range(24)}}
    assert all(map(f.clear, made.values())), "no other is near 5 %"
    made |= f.slower_by_a_twentieth()
    hidden = [Case(f"fresh {i + 1}", f.fresh(rng), public=False) for i in range(6)]
    return [*(Case(name, problem) for name, problem in made.items()), *hidden]


EXERCISE = Exercise(
    id="quantization-choose",
    title="Which format for this model, chip and batch",
    kind="judgement",
    points=5,
    minutes=25,
    entries=("choose",),
    cases=cases,
    observe=observe,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "First leave out what cannot be used: too much loss, arithmetic that the chip lacks, no"
        " room.",
        "Room: n_params·bits/8 + other_bytes + B·cache_bytes. A step reads the same bytes.",
        "Seconds: max(bytes / bytes_per_s, 2·B·n_params / flops_per_s[arithmetic]). The shortest"
        " wins; None if nothing is left.",
    ),
    recall=(
        "When does w8a8 beat w4 weights with bf16 arithmetic?",
        "Once computing binds: int8 products run at twice the rate, while fewer bytes save"
        " nothing.",
    ),
)
