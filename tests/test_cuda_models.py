"""Every member of the family on a card says what it says on the CPU, with every kind of cache.

Logits are compared in fp32. Texts are made in fp64: there two orders of the same sum never differ
by as much as the two best logits do.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pytest
import torch
from device_tools import CARD, needs_a_card

from twophase.kernels.speculative_decoding import tree_mask
from twophase.models import checkpoints
from twophase.models import diffusion as masked_diffusion
from twophase.models.cache import Cache
from twophase.models.evaluate import bits_per_byte
from twophase.models.family import FAMILY
from twophase.models.generate import complete, complete_batch, encode
from twophase.models.passes import repeated_pass
from twophase.models.speculative_decoding import (
    Law,
    LookupDrafter,
    ModelDrafter,
    Speculation,
    TreeDrafter,
    acceptance_rate,
    sample_batch,
    speculate_batch,
    trained,
)
from twophase.models.transformer import Transformer

pytestmark = needs_a_card
CAUSAL = [name for name, config in FAMILY.items() if config.causal]
STATES = ("linear", "ssm", "ssm_attention")
EVERY = pytest.mark.parametrize("name", CAUSAL)
# the same sums in another order, in fp32, through four layers; logits reach about 20
TOLERANCE = {"rtol": 1e-3, "atol": 2e-3}
PROMPTS = [encode(text) for text in ("def read_lines(path):\n    ", "import", "for i in range(")]


@lru_cache(maxsize=4)
def on_card(name: str, dtype: torch.dtype = torch.float32) -> Transformer:
    return checkpoints.load(name, dtype, CARD)


def text(n: int, seed: int = 0) -> list[int]:
    """What a model of code may read, longer than any window."""
    lines = b"def lines(path):\n    with open(path) as file:\n        return list(file)\n\n" * 4
    start = random.Random(seed).randrange(40)
    return list(lines[start : start + n])


@torch.inference_mode()
def alone(model: Transformer, tokens: Sequence[int]) -> torch.Tensor:
    """Logits [T, V] of one sequence, without a cache."""
    return model(torch.tensor([list(tokens)], device=model.device))[0]


@torch.inference_mode()
def feed(
    model: Transformer, cache: Cache, new: Sequence[Sequence[int]], **more: object
) -> list[torch.Tensor]:
    """Logits [n, V] of each sequence's new tokens, padded to one block."""
    T = max(1, *(len(tokens) for tokens in new))
    block = torch.tensor([[*tokens, *[7] * (T - len(tokens))] for tokens in new])
    out = model(block.to(model.device), cache, n_new=[len(tokens) for tokens in new], **more)
    return [out[b, : len(tokens)] for b, tokens in enumerate(new)]


def same(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert found.device.type == CARD
    torch.testing.assert_close(found.cpu(), expected.cpu(), **TOLERANCE)


@pytest.mark.parametrize("name", FAMILY)
def test_a_prefill_has_the_logits_of_the_cpu(name: str) -> None:
    tokens = [text(70, seed) for seed in range(2)]
    for own in tokens:
        same(alone(on_card(name), own), alone(checkpoints.load(name), own))


@pytest.mark.parametrize("name", FAMILY)
def test_weights_in_bf16_run_and_say_nearly_the_same(name: str) -> None:
    tokens = text(70)
    model = checkpoints.load(name, torch.bfloat16, CARD)
    laws = [alone(m, tokens).float().cpu().softmax(-1) for m in (model, on_card(name))]
    # half the sum of what the laws differ by; weights are bf16 in both, the stream in one
    assert float((laws[0] - laws[1]).abs().sum(-1).mean()) / 2 < 0.1
    if model.config.causal:
        assert len(complete(model, tokens[:9], 5).tokens) == 5
        cache = model.new_cache(1, 80)
        assert {held.device.type for s in cache.stores.values() for held in s.held} == {CARD}


@EVERY
def test_sequences_of_any_length_get_through_a_cache_what_they_get_alone(name: str) -> None:
    model, texts, seen = on_card(name), [text(60, seed) for seed in range(3)], [0, 0, 0]
    cache, expected = model.new_cache(3, 60), [alone(model, own) for own in texts]
    for sizes in ((40, 3, 0), (1, 1, 1), (0, 36, 5), (4, 4, 4), (1, 0, 1), (9, 9, 40)):
        new = [texts[b][seen[b] : seen[b] + n] for b, n in enumerate(sizes)]
        for b, logits in enumerate(feed(model, cache, new)):
            same(logits, expected[b][seen[b] : seen[b] + len(new[b])])
            seen[b] += len(new[b])
        assert cache.lengths == tuple(seen)


@EVERY
def test_what_was_taken_back_forked_and_released_leaves_nothing_behind(name: str) -> None:
    model, cache = on_card(name), on_card(name).new_cache(2, 60, rollback=3)
    one, other = text(50), text(50, 1)
    feed(model, cache, [one[:40], other[:20]])
    feed(model, cache, [[9, 9, 9], [9, 9]], commit=False)
    cache.commit([0, 0])
    same(feed(model, cache, [one[40:41], []])[0], alone(model, one)[40:41])
    feed(model, cache, [[5, 6], []])
    cache.truncate([41, 20])  # two tokens back
    same(feed(model, cache, [one[41:44], []])[0], alone(model, one)[41:44])
    cache.fork(0, 1)
    both = feed(model, cache, [[3, 4], one[44:50]])
    same(both[0], alone(model, [*one[:44], 3, 4])[44:])
    same(both[1], alone(model, one)[44:])
    cache.release(0)
    assert cache.admit() == 0
    same(feed(model, cache, [other[:30], []])[0], alone(model, other)[:30])


@EVERY
def test_a_tree_is_read_as_its_paths_are(name: str) -> None:
    model, start = on_card(name), text(40)
    cache = model.new_cache(1, 60, rollback=4)
    feed(model, cache, [start])
    tokens, parents = [10, 20, 30, 40], [-1, 0, -1, 2]
    tree = tree_mask(parents)  # made on the CPU: [n + 1, n + 1]
    if name in STATES:
        with pytest.raises(ValueError, match="cannot read a tree"):
            feed(model, cache, [[5, *tokens]], tree=tree, commit=False)
        return
    found = feed(model, cache, [[5, *tokens]], tree=tree, commit=False)[0]
    same(found[[0, 1, 2]], alone(model, [*start, 5, 10, 20])[40:])
    same(found[[3, 4]], alone(model, [*start, 5, 30, 40])[41:])
    with torch.inference_mode():  # as the pass before: what it wrote is moved in place
        cache.commit(paths=[[0, 3, 4]])
    same(feed(model, cache, [[50]])[0], alone(model, [*start, 5, 30, 40, 50])[43:])


@EVERY
@pytest.mark.parametrize("cache", [True, False])
def test_texts_are_those_of_the_cpu(name: str, cache: bool) -> None:
    if name in STATES and not cache:
        pytest.skip("a scan without a cache, token by token: the logits above are the same claim")
    n_new = 24 if cache else 6  # each token runs the whole text again
    records = [
        complete_batch(model, PROMPTS, n_new, cache=cache)
        for model in (on_card(name, torch.float64), checkpoints.load(name, torch.float64))
    ]
    assert [r.tokens for r in records[0]] == [r.tokens for r in records[1]]


def test_a_text_drawn_with_a_seed_is_that_of_the_cpu() -> None:
    def drawn(model: Transformer) -> list[int]:
        dice = [torch.Generator().manual_seed(seed) for seed in range(3)]
        made = complete_batch(model, PROMPTS, 30, temperature=0.8, top_k=20, generators=dice)
        return [record.tokens for record in made]

    assert drawn(on_card("gqa", torch.float64)) == drawn(checkpoints.load("gqa", torch.float64))
    dice = torch.Generator(CARD).manual_seed(1)
    assert len(complete(on_card("gqa"), PROMPTS[0], 8, temperature=1.0, generator=dice).tokens) == 8


@pytest.mark.parametrize("name", ["gqa", "mla", "moe", "diffusion"])
def test_bits_per_byte_are_those_of_the_cpu(name: str) -> None:
    data = np.array(text(200) * 8, dtype=np.uint8)
    found = [bits_per_byte(m, data) for m in (on_card(name), checkpoints.load(name))]
    assert found[0] == pytest.approx(found[1], rel=1e-4)


@pytest.mark.parametrize("order", ["ancestral", "confidence"])
def test_diffusion_fills_in_what_it_fills_in_on_the_cpu(order: str) -> None:
    def filled(model: Transformer) -> tuple[list[int], list[int]]:
        dice = torch.Generator().manual_seed(4)
        options = {"suffix_tokens": encode("return x"), "block": 8, "order": order}
        made = masked_diffusion.complete(
            model, PROMPTS[0], 16, 8, generator=dice, temperature=0.0, **options
        )
        return made.tokens, made.pass_of

    models = on_card("diffusion", torch.float64), checkpoints.load("diffusion", torch.float64)
    assert filled(models[0]) == filled(models[1])
    dice = torch.Generator(CARD).manual_seed(4)
    made = masked_diffusion.complete(models[0], PROMPTS[0], 8, 4, generator=dice, order=order)
    assert len(made.tokens) == 8


def drafters(device: str) -> dict[str, object]:
    draft = checkpoints.load("draft", torch.float64, device)
    target = checkpoints.load("target", torch.float64, device)
    heads = {name: trained.drafter(name, target, "target") for name in trained.NAMES}
    own = {"draft": ModelDrafter(draft), "tree": TreeDrafter(draft), "lookup": LookupDrafter()}
    return own | heads


@pytest.mark.parametrize("name", ["draft", "tree", "lookup", *trained.NAMES])
def test_drafts_change_no_text(name: str) -> None:
    target = on_card("target", torch.float64)
    expected = [r.tokens for r in complete_batch(target, PROMPTS, 24)]
    records = [Speculation() for _ in PROMPTS]
    for _ in speculate_batch(target, drafters(CARD)[name], PROMPTS, 24, records=records):
        pass
    assert [r.tokens for r in records] == expected
    if name != "lookup":
        assert max(r.acceptance for r in records) > 0.3  # it did draft
    drawn = [Speculation() for _ in PROMPTS]
    dice = [torch.Generator(CARD).manual_seed(b) for b in range(3)]
    law, given = Law(0.8, 40, 0.95), drafters(CARD)[name]
    for _ in speculate_batch(target, given, PROMPTS, 12, law=law, generators=dice, records=drawn):
        pass
    assert [len(r.tokens) for r in drawn] == [12] * 3


def test_a_target_on_the_cpu_accepts_as_often() -> None:
    pairs = [
        [checkpoints.load(name, torch.float64, device) for name in ("target", "draft")]
        for device in ("cpu", CARD)
    ]
    prompts = torch.tensor([text(20, seed) for seed in range(2)])
    dice = torch.Generator(CARD).manual_seed(0)
    tokens = sample_batch(pairs[1][0], prompts.to(CARD), 12, dice)
    rates = [acceptance_rate(*pair, tokens.to(pair[0].device)) for pair in pairs]
    assert rates[0] == pytest.approx(rates[1], rel=1e-6)


@pytest.mark.parametrize("name", CAUSAL)
def test_a_pass_that_is_timed_runs_on_the_card(name: str) -> None:
    run = repeated_pass(on_card(name), 3, cached=40, B=2)
    assert run().shape == (2, 3, FAMILY[name].V)
    assert run().device.type == CARD
