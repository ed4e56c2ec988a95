"""An engine, and beams, over pools on a card: the texts of the naive loop on the CPU.

In fp64: there two orders of the same sum never differ by as much as two logits do.
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import lru_cache

import pytest
import torch
from device_tools import CARD, needs_a_card

from twophase.kernels.attention import causal_attention
from twophase.kernels.latent_attention import attend_latents
from twophase.kernels.paging import FlatSpan, PagedKV, PagedLatents
from twophase.models import checkpoints
from twophase.models.generate import complete
from twophase.models.transformer import Transformer
from twophase.serving import LLM, Engine, EngineConfig, SamplingParams
from twophase.serving.beam_search import beam_search

pytestmark = needs_a_card
KINDS = ["gqa", "mla", "sliding", "local_global", "cross_layer", "linear", "ssm_attention", "moe"]
# lengths at a block of 4: one token, one less than two blocks, two blocks, one more, many
LENGTHS = (1, 7, 8, 9, 26)
TIGHT = EngineConfig(n_blocks=11, block_size=4, max_seqs=4, max_batched_tokens=11)
CONFIGS = {
    "tight": TIGHT,
    "swapped": replace(TIGHT, preemption="swap"),
    "shared prefixes": replace(TIGHT, n_blocks=40, prefix_caching=True),
    "a radix tree": replace(TIGHT, n_blocks=40, prefix_caching=True, prefix_index="radix"),
    "windows of their own": replace(TIGHT, n_blocks=40, free_windows=True),
    "token by token": replace(TIGHT, batch_invariant=True),
    "packed": replace(TIGHT, pack_weights=True),
}


@lru_cache
def model(name: str, device: str = CARD) -> Transformer:
    return checkpoints.load(name, torch.float64, device)


def prompts() -> list[list[int]]:
    rng = random.Random(0)
    made = [[rng.randrange(32, 127) for _ in range(n)] for n in LENGTHS]
    return [*made, made[-1][:20]]  # one that begins as another does


@lru_cache
def alone(name: str, prompt: tuple[int, ...], n: int) -> list[int]:
    """What the naive loop says on the CPU."""
    return complete(model(name, "cpu"), prompt, n).tokens


def served(name: str, config: EngineConfig, n: int = 12) -> list[list[int]]:
    engine = Engine(model(name), config)
    for prompt in prompts():
        engine.add(prompt, SamplingParams(max_tokens=n))
    pools = engine.runner.pools.values()
    assert {held.device.type for pool in pools for held in pool.held} == {CARD}
    return [request.tokens for request in sorted(engine.run(), key=lambda r: r.id)]


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_model_is_served_as_it_speaks_alone(name: str) -> None:
    assert served(name, TIGHT) == [alone(name, tuple(p), 12) for p in prompts()]


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("name", ["gqa", "local_global"])
def test_however_blocks_are_shared_and_moved_texts_stay(name: str, config: str) -> None:
    assert served(name, CONFIGS[config]) == [alone(name, tuple(p), 12) for p in prompts()]


def test_states_are_swapped_out_and_in() -> None:
    config = CONFIGS["swapped"]
    expected = [alone("ssm_attention", tuple(p), 12) for p in prompts()]
    assert served("ssm_attention", config) == expected


def test_several_answers_to_a_prompt_are_drawn_as_on_the_cpu() -> None:
    params = SamplingParams(max_tokens=10, temperature=0.9, top_k=30, seed=5, n=3)
    texts = []
    for device in ("cpu", CARD):
        llm = LLM(model("gqa", device), n_blocks=60, block_size=4)
        texts.append([answer.request.tokens for answer in llm.generate(prompts(), params)])
    assert texts[0] == texts[1]
    assert len({tuple(tokens) for tokens in texts[0]}) > len(prompts())


@pytest.mark.parametrize("name", ["gqa", "mla", "ssm_attention"])
def test_beams_on_the_card_are_those_of_the_cpu(name: str) -> None:
    found = [
        beam_search(model(name, device), prompts()[1], 3, 8, stop=[[10]], block_size=4)
        for device in (CARD, "cpu")
    ]
    assert [one.tokens for one in found[0]] == [one.tokens for one in found[1]]
    for one, other in zip(*found, strict=True):
        assert one.log_prob == pytest.approx(other.log_prob, rel=1e-6)


def test_forks_share_blocks_on_the_card() -> None:
    engine = Engine(model("gqa"), replace(TIGHT, n_blocks=40))
    first = engine.add(prompts()[3], SamplingParams(max_tokens=12))
    for _ in range(4):
        engine.step()
    engine.fork(first, SamplingParams(max_tokens=12))
    done = engine.run()
    assert [r.tokens for r in done] == [alone("gqa", tuple(prompts()[3]), 12)] * 2


# held and new: a lone first token, the last of a block, the first of the next, chunks, a prompt
STARTS, NEW = (0, 7, 8, 3, 0), (1, 1, 1, 6, 9)
TABLES = ((5,), (2, 9), (7, 1, 0), (3, 4, 8), (10, 6, 11))
SIZE = 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("options", [{}, {"window": 3}, {"softcap": 5.0}])
def test_each_sequence_finds_in_pages_what_it_would_alone(
    dtype: torch.dtype, options: dict
) -> None:
    span = FlatSpan(STARTS, NEW, TABLES, (0, 1, 2, 3, 4), SIZE, CARD)
    pool = PagedKV(12, SIZE, 2, 8, dtype, CARD)
    pool.fill_with_noise()  # blocks are never empty: others left something there
    q = torch.randn(1, span.T, 6, 8, device=CARD)
    pool.write(*(torch.randn(1, span.T, 2, 8, device=CARD).to(dtype) for _ in range(2)), span)
    found = pool.attend(q, span, **options)
    for i, part in enumerate(span.parts):
        rows = [t * SIZE + p for t in TABLES[i] for p in range(SIZE)][: span.ends[i]]
        keys, values = (held.flatten(0, 1)[rows][None].to(q.dtype) for held in pool.held)
        expected = causal_attention(q[:, part], keys, values, **options)
        torch.testing.assert_close(found[:, part], expected, rtol=1e-4, atol=1e-4)


def test_latents_in_pages_are_latents() -> None:
    span = FlatSpan(STARTS, NEW, TABLES, (0, 1, 2, 3, 4), SIZE, CARD)
    pool = PagedLatents(12, SIZE, 8, 4, torch.float32, CARD)
    pool.fill_with_noise()
    q, turned = (torch.randn(1, span.T, 6, width, device=CARD) for width in (8, 4))
    pool.write(*(torch.randn(1, span.T, width, device=CARD) for width in (8, 4)), span)
    found = pool.attend(q, turned, span, scale=0.3)
    for i, part in enumerate(span.parts):
        rows = [t * SIZE + p for t in TABLES[i] for p in range(SIZE)][: span.ends[i]]
        held = [x.flatten(0, 1)[rows][None] for x in pool.held]
        expected = attend_latents(q[:, part], turned[:, part], *held, scale=0.3)
        torch.testing.assert_close(found[:, part], expected, rtol=1e-4, atol=1e-4)
