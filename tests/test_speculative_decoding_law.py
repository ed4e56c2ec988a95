"""What speculative decoding says follows the target's law: every path enumerated, none sampled."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial

import pytest
import torch
from draws import draws
from hypothesis import given
from hypothesis import strategies as st

from twophase.checks.law import law
from twophase.kernels.speculative_decoding import (
    ROOT,
    Verified,
    chain,
    depths,
    tree_mask,
    verify,
    verify_greedy,
    verify_tree,
)
from twophase.kernels.speculative_faults import FAULTS, leaves_out_the_bonus

V = 3
Laws = Callable[[Sequence[int]], torch.Tensor]  # the tokens so far -> the law of the next, [V]


def random_laws(seed: int, zeros: bool = False) -> Laws:
    """A language over V tokens: a law for every text of up to four of them."""
    generator = torch.Generator().manual_seed(seed)
    table: dict[tuple[int, ...], torch.Tensor] = {}
    for n in range(5):
        for text in itertools.product(range(V), repeat=n):
            raw = torch.rand(V, generator=generator, dtype=torch.float64) ** 2
            if zeros:  # as top-k leaves them, at least one token kept
                raw[torch.rand(V, generator=generator) < 0.4] = 0.0
                raw[int(torch.randint(V, (1,), generator=generator))] += 0.1
            table[text] = raw / raw.sum()
    return lambda text: table[tuple(text)]


def target_law(target: Laws, n: int) -> dict[tuple[int, ...], float]:
    """The law of the first n tokens."""
    found = {}
    for text in itertools.product(range(V), repeat=n):
        weight = 1.0
        for i, token in enumerate(text):
            weight *= float(target(text[:i])[token])
        found[text] = weight
    return found


def total_variation(one: dict, other: dict) -> float:
    return sum(abs(one.get(k, 0.0) - other.get(k, 0.0)) for k in {*one, *other}) / 2


Verify = Callable[..., Verified]


def said_law(target: Laws, draft: Laws, gamma: int, n: int, judge: Verify = verify) -> dict:
    """The law of the first n tokens that draft, verify, keep, and again say."""

    def run(choose):
        text: list[int] = []
        while len(text) < n:
            drafted: list[int] = []
            for _ in range(min(gamma, n - len(text) - 1)):
                drafted.append(choose(draft([*text, *drafted])))
            ways = [[*text, *drafted[:i]] for i in range(len(drafted) + 1)]
            wanted = torch.stack([target(way) for way in ways])
            laws = torch.stack([draft(w) for w in ways[:-1]]) if drafted else torch.zeros(0, V)
            verdict = judge(wanted, laws, drafted, choose)
            text += [*(drafted[i] for i in verdict.kept), verdict.token]
        return tuple(text)

    return law(run)


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("gamma", [0, 1, 2, 3])
def test_whatever_the_draft_the_law_is_the_targets(gamma, zeros):
    for seed in range(2):
        target, draft = random_laws(seed, zeros), random_laws(100 + seed, zeros)
        found = said_law(target, draft, gamma, 4 if gamma < 3 else 3)
        wanted = target_law(target, len(next(iter(found))))
        # probabilities in fp64: 1e-12 is four digits of room
        assert total_variation(found, wanted) < 1e-12


def test_a_draft_that_is_the_target_is_never_refused():
    target = random_laws(3)
    seen = []

    def judge(*args):
        verdict = verify(*args)
        seen.append(len(verdict.kept) == len(args[2]))
        return verdict

    assert total_variation(said_law(target, target, 2, 3, judge), target_law(target, 3)) < 1e-12
    assert all(seen)


@pytest.mark.parametrize("fault", FAULTS)
def test_each_published_fault_moves_the_law(fault):
    target, draft = random_laws(5), random_laws(105)
    found = said_law(target, draft, 2, 3, FAULTS[fault])
    assert sum(found.values()) == pytest.approx(1.0)  # it still says something, always
    # each is published; 0.02 is the least that one of them moves the law of three tokens here
    assert total_variation(found, target_law(target, 3)) > 0.02


def test_a_bonus_left_out_costs_tokens_and_no_exactness():
    target, draft = random_laws(5), random_laws(105)
    said: dict[bool, list[float]] = {True: [], False: []}

    def judge(*args, bonus):
        verdict = verify(*args) if bonus else leaves_out_the_bonus(*args)
        said[bonus].append(len(verdict.kept) + 1)
        return verdict

    for bonus in said:
        found = said_law(target, draft, 2, 3, partial(judge, bonus=bonus))
        assert total_variation(found, target_law(target, 3)) < 1e-12
    assert max(said[True]) == 3
    assert max(said[False]) == 2


def tree_law(target: Laws, draft: Laws, widths: Sequence[int], *, put_back: bool) -> dict:
    """The law of the first two tokens said after one tree whose level d has widths[d] children."""

    def run(choose):
        tokens: list[int] = []
        parents: list[int] = []
        laws: list[torch.Tensor] = []
        texts: list[list[int]] = []
        level: list[tuple[int, list[int]]] = [(ROOT, [])]
        for width in widths:
            grown = []
            for node, text in level:
                left = draft(text)
                for _ in range(min(width, int((left > 0).sum()))):
                    token = choose(left)
                    grown.append((len(tokens), [*text, token]))
                    texts.append([*text, token])
                    tokens.append(token), parents.append(node), laws.append(left)
                    if not put_back:
                        left = left.clone()
                        left[token] = 0
                        left = left / left.sum() if left.sum() > 0 else left
            level = grown
        wanted = torch.stack([target([]), *map(target, texts)])
        verdict = verify_tree(wanted, torch.stack(laws), tokens, parents, choose)
        said = [*(tokens[i] for i in verdict.kept), verdict.token]
        while len(said) < 2:
            said.append(choose(target(said)))
        return tuple(said[:2])

    return law(run)


@pytest.mark.parametrize("put_back", [False, True])
@pytest.mark.parametrize("widths", [(1,), (2,), (3,), (2, 1), (1, 2)])
def test_a_tree_of_candidates_leaves_the_law_as_it_is(widths, put_back):
    target, draft = random_laws(7), random_laws(107)
    found = tree_law(target, draft, widths, put_back=put_back)
    assert total_variation(found, target_law(target, 2)) < 1e-12


def test_more_candidates_are_refused_less_often():
    target, draft = random_laws(7)([]), random_laws(107)([])

    def kept(width: int) -> float:
        def run(choose):
            tokens = [choose(draft) for _ in range(width)]
            wanted = target.expand(width + 1, V)
            verdict = verify_tree(wanted, draft.expand(width, V), tokens, [ROOT] * width, choose)
            return len(verdict.kept)

        return law(run)[1]

    assert kept(1) == pytest.approx(float(torch.minimum(target, draft).sum()), abs=1e-12)
    assert kept(1) < kept(2) < kept(3) < 1


@draws(60)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_a_chain_is_a_tree_and_temperature_zero_is_its_limit(best, rng):
    drafted = [rng.choice([token, rng.randrange(5)]) for token in best[:-1]]
    one_hot = torch.eye(5, dtype=torch.float64)
    wanted, laws = one_hot[best], one_hot[drafted].reshape(-1, 5)
    found = verify_greedy(best, drafted, chain(len(drafted)))
    never = pytest.fail  # nothing is drawn where all is certain, but for a law of one token

    def choose(probs):
        return int(probs.argmax()) if float(probs.max()) == 1 else never("something was drawn")

    assert verify(wanted, laws, drafted, choose) == found
    assert verify_tree(wanted, laws, drafted, chain(len(drafted)), choose) == found


def test_a_tree_sees_its_own_way_up():
    parents = [ROOT, ROOT, 0, 0, 2]
    assert depths(parents) == [1, 1, 2, 2, 3]
    assert tree_mask(parents).int().tolist() == [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 0, 1, 0, 0, 0],
        [1, 1, 0, 1, 0, 0],
        [1, 1, 0, 0, 1, 0],
        [1, 1, 0, 1, 0, 1],
    ]
    assert torch.equal(tree_mask(chain(4)), torch.ones(5, 5, dtype=torch.bool).tril())


def test_what_cannot_be_is_refused_by_a_sentence():
    probs = torch.full((2, 3), 1 / 3)
    with pytest.raises(ValueError, match=r"need target_probs of \[3, V\]"):
        verify(probs, probs, [0, 1], int)
    with pytest.raises(ValueError, match="token 1 was drafted, but its draft_probs say 0"):
        verify(probs, torch.tensor([[1.0, 0, 0]]), [1], int)
    for token in (-1, 3):
        with pytest.raises(ValueError, match="tokens are from 0 to 2"):
            verify(probs, probs[:1], [token], int)
    with pytest.raises(ValueError, match="names, for each of 1 drafted tokens, one before it"):
        verify_tree(probs, probs[:1], [1], [0], int)
