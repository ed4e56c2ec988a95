"""Event logs: what they say of a cache is what it holds, always; observing changes no bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from twophase import models
from twophase.drawing import Frame, Mechanism, Strip
from twophase.drawing.mechanism import MOST
from twophase.kernels import online_softmax
from twophase.kernels.attention import visible
from twophase.kernels.online_softmax import flash_attention
from twophase.measure.blocks import attention_blocks
from twophase.measure.events import KINDS, Event, EventLog, Held, follow
from twophase.models.cache import Cache
from twophase.models.generate import encode
from twophase.models.observe import WATCHED, generation_log, observe
from twophase.models.transformer import Transformer

PROMPTS = [encode("def read("), encode("a =")]


@pytest.fixture(scope="module")
def model() -> Transformer:
    return models.load("gqa")


class Inspector(EventLog):
    """A log that looks into the cache's memory at every event."""

    def __init__(self, cache: Cache) -> None:
        super().__init__()
        self.cache = cache
        self.filled: list[dict[int, tuple[int, ...]]] = []  # slots that are not zero, by layer

    def write(self, kind: str, **fields: Any) -> Event:
        self.filled.append(
            {
                layer: tuple(int(n) for n in (s.keys.abs().amax((2, 3)) > 0).sum(1))
                for layer, s in self.cache.stores.items()
            }
        )
        return super().write(kind, **fields)


def test_at_every_event_the_memory_of_every_layer_holds_what_the_log_says(model):
    cache = model.new_cache(B=2, S_max=12)
    log = Inspector(cache)
    with observe(model, log), torch.inference_mode():
        model(torch.tensor([[1, 2, 3, 4, 5], [6, 7, 8, 0, 0]]), cache, n_new=[5, 3])
        model(torch.tensor([[9], [10]]), cache)
        model(torch.tensor([[0], [11]]), cache, n_new=[0, 1])
    layers = range(model.config.L)
    assert [e.kind for e in log] == (["call", *["append"] * len(layers), "commit"]) * 3
    for (_, held), filled in zip(follow(log), log.filled, strict=True):
        for layer in layers:
            new = held.written.get(layer, (0, 0))
            lengths = held.lengths or (0, 0)
            assert filled[layer] == tuple(n + m for n, m in zip(lengths, new, strict=True))
    assert held == Held(cache.lengths, {}) == Held((6, 5), {})


def test_what_is_taken_back_copied_or_released_is_in_the_log(model):
    cache = model.new_cache(B=2, S_max=12)
    seen: list[tuple[int, ...]] = []
    with observe(model) as log, torch.inference_mode():
        model(torch.tensor([[1, 2, 3], [4, 5, 6]]), cache, commit=False)
        cache.commit([1, 2])
        seen.append(cache.lengths)
        for act in (lambda: cache.truncate(1), lambda: cache.fork(1, 0), lambda: cache.release(1)):
            act()
            seen.append(cache.lengths)
    after = [held.lengths for event, held in follow(log) if event.kind in WATCHED.values()]
    assert after == seen == [(1, 2), (1, 1), (1, 1), (1, 0)]
    assert [e.kind for e in log][-4:] == ["commit", "cut", "fork", "release"]
    assert log.select("commit")[0]["kept"] == [1, 2]
    assert (log.select("fork")[0]["source"], log.select("release")[0]["row"]) == (1, 1)


def test_the_loop_feeds_one_token_with_a_cache_and_the_whole_text_without(model):
    n_new = 4
    cached, records = generation_log(model, PROMPTS[:1], n_new)
    naive, same = generation_log(model, PROMPTS[:1], n_new, cache=False)
    assert records[0].tokens == same[0].tokens == [e["token"] for e in naive.select("token")]
    fed = [[len(row) for row in e["tokens"]] for e in cached.select("call")]
    assert fed == [[len(PROMPTS[0])], *[[1]] * (n_new - 1)]
    assert [e["cache"] for e in naive.select("call")] == [None] * n_new
    assert not naive.select("append", "commit")
    text = PROMPTS[0] + records[0].tokens
    for i, call in enumerate(naive.select("call")):
        assert call["tokens"] == [text[: len(PROMPTS[0]) + i]]
    assert [e["reason"] for e in cached.select("token")] == [None] * (n_new - 1) + ["length"]


@pytest.mark.parametrize("name", ["sliding", "mla", "cross_layer", "linear"])
def test_layers_that_keep_something_else_write_the_same_events(name):
    model = models.load(name)
    log, records = generation_log(model, PROMPTS, 3)
    held = [held for _, held in follow(log)][-1]
    assert held.lengths == tuple(len(p) + 2 for p in PROMPTS)  # the last token was never fed
    keeping = [layer for layer in range(model.config.L) if model.config.source(layer) == layer]
    assert [e["layer"] for e in log.select("append")] == keeping * 3
    assert all(len(record.tokens) == 3 for record in records)


def test_a_layer_of_latents_says_what_it_unfolds_and_what_it_absorbs():
    model = models.load("mla")
    layers = range(model.config.L)
    passes = [(6, 6), (1, 7), (3, 10)]  # queries, positions: a prompt, a step, a block
    tokens = torch.tensor([PROMPTS[0] * 2])
    cache, start = model.new_cache(1, 12), 0
    with observe(model) as log, torch.inference_mode():
        for _, S in passes:
            model(tokens[:, start:S], cache)
            start = S
        for layer in model.layers:
            layer.self_attn.absorbed = False
        model(tokens[:, 10:11], cache)
    assert [(e["call"], e["layer"], e["latents"]) for e in log.select("unfold")] == [
        (call, layer, S) for call, S in ((0, 6), (3, 11)) for layer in layers
    ]
    assert [(e["call"], e["layer"], e["queries"]) for e in log.select("absorb")] == [
        (call, layer, passes[call][0]) for call in (1, 2) for layer in layers
    ]
    assert not any("absorb" in vars(module) for module in model.modules())
    assert not any(module._forward_hooks for module in model.modules())


def test_observing_changes_no_bit_and_leaves_nothing_behind(model):
    tokens = torch.tensor([PROMPTS[0]])

    def run() -> torch.Tensor:
        nonlocal cache
        cache = model.new_cache(1, 20)
        with torch.inference_mode():
            return model(tokens, cache)

    cache: Cache
    alone = run()
    with observe(model):
        observed = run()
        assert set(WATCHED) <= set(vars(cache))
    assert torch.equal(alone, observed)
    assert not set(WATCHED) & set(vars(cache))
    for module in model.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks


@pytest.mark.parametrize(("T", "S", "block"), [(12, 12, 4), (5, 12, 4), (7, 7, 3), (1, 9, 4)])
def test_the_blocks_of_attention_meet_every_visible_pair_once_and_change_no_bit(T, S, block):
    q, k, v = torch.randn(1, T, 4, 8), torch.randn(1, S, 2, 8), torch.randn(1, S, 2, 8)
    alone = flash_attention(q, k, v, block, block)
    with attention_blocks() as log:
        assert torch.equal(flash_attention(q, k, v, block, block), alone)
    met = torch.zeros(T, S, dtype=torch.int64)
    for event in log:
        rows = slice(event["query"], event["query"] + event["queries"])
        columns = slice(event["start"], event["start"] + event["keys"])
        met[rows, columns] += 1
        assert event["masked"] == int((~visible(T, S)[0][rows, columns]).sum())
    assert met.max() == 1
    assert met[visible(T, S)[0]].min() == 1
    assert online_softmax.partial_attention.__module__ == online_softmax.__name__


def test_hooks_are_gone_after_a_pass_that_was_refused(model):
    with pytest.raises(ValueError, match="room"), observe(model):
        model(torch.zeros(1, 9, dtype=torch.int64), model.new_cache(1, 4))
    assert not any(module._forward_hooks for module in model.modules())


def test_a_log_survives_json_line_by_line(model):
    log, _ = generation_log(model, PROMPTS, 2)
    again = EventLog.from_lines(log.to_lines())
    assert list(again) == list(log)
    assert {event.kind for event in again} == {"call", "append", "commit", "token"} <= set(KINDS)


@pytest.mark.parametrize(
    ("kind", "fields", "said"),
    [
        ("recall", {}, "no event 'recall'"),
        ("cut", {"cache": 0}, "has the fields"),
        ("cut", {"cache": True, "lengths": [1]}, "'cache' of 'cut' is int"),
        ("cut", {"cache": 0, "lengths": [1.0]}, "'lengths' of 'cut' is ints"),
        ("token", {"row": 0, "token": None, "reason": None}, "'token' of 'token' is int"),
    ],
)
def test_an_event_that_breaks_the_schema_is_refused(kind, fields, said):
    log = EventLog()
    with pytest.raises(ValueError, match=said):
        log.write(kind, **fields)
    assert len(log) == 0


def test_a_log_that_contradicts_itself_is_refused():
    lines = [
        '{"event": "call", "t_s": 1, "call": 0, "cache": 0, "starts": [3], "tokens": [[7]]}',
        '{"event": "append", "t_s": 2, "call": 0, "cache": 0, "layer": 0, "starts": [4],'
        ' "n_new": [1]}',
    ]
    with pytest.raises(ValueError, match="does not continue"):
        list(follow(EventLog.from_lines(lines)))
    with pytest.raises(ValueError, match="cannot follow"):
        EventLog.from_lines(lines[::-1])


def frames(n: int) -> list[Frame]:
    strips = [Strip([("a", "stored")] * i + [("b", "new")]) for i in range(n)]
    return [Frame(strip, f"Token {i}.") for i, strip in enumerate(strips)]


def test_all_frames_stand_on_the_page_in_one_size_with_their_words():
    html = Mechanism("Growing", frames(5), alt="A strip that grows by a token.")._repr_html_()
    assert html.count("<li>") == html.count("</li>") == 5
    assert [f"{i} of 5." in html for i in range(1, 6)] == [True] * 5
    assert html.count('role="img"') == html.count("aria-label=") - 1  # and the section's own
    blocks = Mechanism("Growing", frames(5), alt="A strip that grows by a token.").blocks()
    assert len({(wide.width, wide.height) for wide, _ in blocks}) == 1


def test_a_mechanism_without_words_or_with_too_many_frames_is_refused():
    alt = "A strip that grows by a token."
    with pytest.raises(ValueError, match=f"2 to {MOST} frames; got 25"):
        Mechanism("Growing", frames(25), alt=alt)
    with pytest.raises(ValueError, match="says in words"):
        Mechanism("Growing", [*frames(1), Frame(Strip([("a", "new")]), " ")], alt=alt)
    with pytest.raises(ValueError, match="alt says"):
        Mechanism("Growing", frames(3), alt="strip")
