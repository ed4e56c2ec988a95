"""Whoever drafts, however, what a target says has its law: drafters that nobody would ship, every
path of the whole loop enumerated in double precision."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import pytest
import torch
from test_speculative_decoding_loop import model

from twophase.checks.law import law
from twophase.models.speculative_decoding import Draft, Law, speculate_batch

V = 3
SETTINGS = {"temperature": 5.0, "top_p": 0.95}  # so hot that several tokens are likely
PROMPTS = [[1, 2], [0]]


class Moody:
    """Says one of two tokens by a law of its own, colder with every call and never the target's;
    the second time it is certain of itself, the third time it has nothing to say, and so on."""

    name = "moody"

    def begin(self, V: int, B: int, S_max: int, gamma: int) -> int:
        self.calls = 0
        return gamma

    def propose(self, texts, counts, law, dice) -> list[Draft]:
        self.calls += 1
        return [
            Draft() if text is None or n < 1 else self._draft(text, n, dice(b))
            for b, (text, n) in enumerate(zip(texts, counts, strict=True))
        ]

    def _draft(self, text: Sequence[int], n: int, draw: Callable[[torch.Tensor], int]) -> Draft:
        if self.calls % 3 == 0:
            return Draft()
        if self.calls % 3 == 2:
            return Draft([(text[-1] + 1) % V] * n)
        probs = torch.zeros(n, V, dtype=torch.float64)
        for i in range(n):
            probs[i, (len(text) + i) % V] = 1 / (self.calls + 1)
            probs[i, (len(text) + i + 1) % V] = 1 - 1 / (self.calls + 1)
        return Draft([draw(row) for row in probs], probs)


class Twins(Moody):
    """A tree whose root has two children, drawn from one law with putting back, perhaps the same
    token twice; a third token follows the second."""

    name = "twins"

    def begin(self, V: int, B: int, S_max: int, gamma: int) -> int:
        self.calls = 0
        return 3

    def _draft(self, text: Sequence[int], n: int, draw: Callable[[torch.Tensor], int]) -> Draft:
        level = torch.tensor([0.25, 0.25, 0.5], dtype=torch.float64)
        after = torch.tensor([0.0, 0.75, 0.25], dtype=torch.float64)
        laws = [level, level, *([after] if n > 1 else [])]
        return Draft([draw(row) for row in laws], torch.stack(laws), [-1, -1, 1][: len(laws)])


class Shy(Moody):
    """Half of what it is asked for, rounded up, from a law with one token in 64ths, which a target
    refuses or keeps on a hair's breadth."""

    name = "shy"

    def _draft(self, text: Sequence[int], n: int, draw: Callable[[torch.Tensor], int]) -> Draft:
        row = torch.tensor([1 / 64, 62 / 64, 1 / 64], dtype=torch.float64).roll(sum(text) % V)
        probs = row.expand(-(-n // 2), V)
        return Draft([draw(row) for row in probs], probs)


def own_law(target, prompt: list[int], n: int) -> dict[tuple[int, ...], float]:
    """What the target says by itself, text by text, each read anew."""
    found: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(n):
        longer = {}
        for said, p in found.items():
            row = Law(**SETTINGS).probs(target(torch.tensor([[*prompt, *said]]))[0, -1])
            longer |= {(*said, token): p * float(row[token]) for token in range(V) if row[token]}
        found = longer
    return found


def said_by(target, drafter, prompts: list[list[int]], n: int, gamma: int) -> dict:
    def run(choose):
        said: list[list[int]] = [[] for _ in prompts]
        how = Law(**SETTINGS)
        for step in speculate_batch(
            target, drafter(), prompts, n, gamma=gamma, law=how, choose=choose
        ):
            for own, new in zip(said, step, strict=True):
                own.extend(new)
        return tuple(map(tuple, said))

    return law(run)


def apart(one: dict, other: dict) -> float:
    return sum(abs(one.get(k, 0.0) - other.get(k, 0.0)) for k in {*one, *other}) / 2


@pytest.mark.parametrize(
    ("drafter", "kind", "n"),
    [
        (Moody, "gqa", 4),
        (Moody, "sliding", 3),
        (Moody, "linear", 3),
        (Twins, "gqa", 3),
        (Twins, "sliding", 2),  # states read no trees
        (Shy, "gqa", 4),
        (Shy, "sliding", 3),
        (Shy, "linear", 3),
    ],
)
def test_a_drafter_of_any_mood_leaves_the_law_as_it_is(drafter, kind, n):
    target = model(3, kind, V=V).double()
    wanted = {(said,): p for said, p in own_law(target, PROMPTS[0], n).items()}
    assert len(wanted) > 4  # else there is little to get wrong
    most = 1e-6 if kind == "linear" else 1e-12  # a state is a sum in fp32, whatever weights are
    assert apart(wanted, said_by(target, drafter, PROMPTS[:1], n, 3)) < most


def test_each_sequence_of_a_batch_has_its_own_law_and_none_of_the_others():
    target = model(3, V=V).double()
    first, second = (own_law(target, prompt, 2) for prompt in PROMPTS)
    wanted = {(a, b): first[a] * second[b] for a, b in itertools.product(first, second)}
    assert apart(wanted, said_by(target, Shy, PROMPTS, 2, 2)) < 1e-12


def test_a_drafter_that_lies_about_its_law_is_found_out():
    """The same tokens, another law told: the tests above can fail."""

    class Liar(Shy):
        def _draft(self, text, n, draw):
            draft = super()._draft(text, n, draw)
            return Draft(draft.tokens, torch.full((len(draft.tokens), V), 1 / V).double())

    target = model(3, V=V).double()
    wanted = {(said,): p for said, p in own_law(target, PROMPTS[0], 3).items()}
    assert apart(wanted, said_by(target, Liar, PROMPTS[:1], 3, 2)) > 0.01
