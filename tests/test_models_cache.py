"""The cache and its owner: whatever is asked of a batch, each sequence gets what it
would get alone.

Every claim is tried on every kind of layer, with sizes that divide nothing.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache, partial

import pytest
import torch
from draws import draws
from hypothesis import given
from hypothesis import strategies as st

from twophase.kernels.attention import naive_attention
from twophase.kernels.kv_cache import KVCache
from twophase.kernels.state import State
from twophase.models.cache import Cache
from twophase.models.layer_sizes import LinearAttention, StateSpace
from twophase.models.transformer import Config, Transformer
from twophase.theory.sizes import LatentAttention, LayerWidths, MixtureOfExperts

ODD = {"L": 3, "D": 16, "F": 20, "N": 6, "K": 2, "H": 10, "V": 31, "context": 64}
MLA = LatentAttention(R=7, nope_dim=6, rope_dim=4, v_dim=5, q_rank=9)
LINEAR, SSM = LinearAttention(feature_dim=4), StateSpace(d_inner=20, d_state=3, dt_rank=2)
PRUNED = (LayerWidths(F=7, N=2, K=1), LayerWidths(F=20, N=5, K=1), LayerWidths(F=3, N=6, K=3))
KINDS = {
    "full": {},
    "window": {"attention": "sliding", "window": 5},
    "window of one": {"attention": "sliding", "window": 1},
    "both": {"attention": ("sliding", "gqa", "sliding"), "window": 3, "kv_source": None},
    "shared": {"kv_source": (0, 0, 2)},
    "shared windows": {"attention": "sliding", "window": 4, "kv_source": (0, 0, 2)},
    "capped": {"score_cap": 3.0, "attention": ("sliding", "gqa", "gqa"), "window": 4},
    "learned positions": {"learned_positions": 64},
    "latent": {"attention": "mla", "mla": MLA, "N": 3, "K": 3},
    "linear": {"attention": ("linear", "gqa", "linear"), "linear": LINEAR},
    "ssm": {"attention": "ssm", "ssm": SSM},
    "hybrid": {"attention": ("ssm", "sliding", "ssm"), "ssm": SSM, "window": 4},
    "pruned": {"widths": PRUNED, "kv_source": (0, 0, 2)},
    "experts": {"moe": MixtureOfExperts(E=4, k=2, F=6)},
}
LIMITED = {"window", "window of one", "both", "shared windows", "capped", "linear", "ssm", "hybrid"}
STATES = {"linear", "ssm", "hybrid"}
# The same numbers are added in another order, in fp32, through three layers; logits reach about 40.
TOLERANCE = {"rtol": 1e-3, "atol": 1e-3}


def lively(kind: str) -> Transformer:
    """A model with weights so large that no mistake hides in the tolerance."""
    torch.manual_seed(len(kind))
    model = Transformer(Config(**(ODD | KINDS[kind])))
    for name, p in model.named_parameters():
        if p.ndim > 1 and "A_log" not in name:
            torch.nn.init.normal_(p, std=0.3)
    return model.eval().requires_grad_(False)


MODELS = {kind: lively(kind) for kind in KINDS}
EVERY = pytest.mark.parametrize("kind", KINDS)


def text(n: int, seed: int = 0) -> list[int]:
    return random.Random(f"{n} {seed}").choices(range(ODD["V"]), k=n)


def alone(model: Transformer, tokens: Sequence[int]) -> torch.Tensor:
    """Logits [T, V] of one sequence, without a cache."""
    return model(torch.tensor([list(tokens)]))[0]


def feed(
    model: Transformer, cache: Cache, new: Sequence[Sequence[int]], **more: object
) -> list[torch.Tensor]:
    """Logits [n, V] of each sequence's new tokens, padded to one block."""
    T = max(1, *(len(tokens) for tokens in new))
    block = torch.full((len(new), T), 7)
    for b, tokens in enumerate(new):
        block[b, : len(tokens)] = torch.tensor(list(tokens), dtype=torch.long)
    out = model(block, cache, n_new=[len(tokens) for tokens in new], **more)
    return [out[b, : len(tokens)] for b, tokens in enumerate(new)]


def same(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, **TOLERANCE)


BLOCKS = st.lists(st.tuples(*[st.integers(0, 6)] * 3), min_size=1, max_size=5)


@EVERY
@draws(4)
@given(BLOCKS)
def test_sequences_of_any_length_fed_in_any_blocks_get_what_they_get_alone(kind, blocks):
    model, cache = MODELS[kind], MODELS[kind].new_cache(3, 30)
    texts, seen = [text(30, seed=b) for b in range(3)], [0, 0, 0]
    expected = [alone(model, t) for t in texts]
    for sizes in blocks:
        new = [texts[b][seen[b] : seen[b] + n] for b, n in enumerate(sizes)]
        for b, logits in enumerate(feed(model, cache, new)):
            same(logits, expected[b][seen[b] : seen[b] + sizes[b]])
            seen[b] += sizes[b]
        assert cache.lengths == tuple(seen)


@EVERY
def test_garbage_in_the_padding_changes_nothing(kind):
    model, results = MODELS[kind], []
    for garbage in (0, 30):
        cache, block = model.new_cache(2, 20), torch.full((2, 6), garbage)
        block[0, :2], block[1, :5] = torch.tensor(text(2)), torch.tensor(text(5))
        model(block, cache, n_new=torch.tensor([2, 5]))
        results.append(torch.stack(feed(model, cache, [[3], [4]])))
    assert torch.equal(*results)


@EVERY
@draws(4)
@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 4), st.integers(0, 4)), max_size=6))
def test_committing_less_is_as_if_the_rest_had_never_come(kind, steps):
    model, cache = MODELS[kind], MODELS[kind].new_cache(2, 60, rollback=4)
    kept = [text(9, seed=b) for b in range(2)]
    feed(model, cache, kept)
    for i, (T, *stay) in enumerate(steps):
        drafts = [text(T, seed=10 * i + b) for b in range(2)]
        found = feed(model, cache, drafts, commit=False)
        for b in range(2):
            same(found[b], alone(model, kept[b] + drafts[b])[len(kept[b]) :])
        stay = [min(T, n) for n in stay]
        cache.commit(stay)
        kept = [old + new[:n] for old, new, n in zip(kept, drafts, stay, strict=True)]
        assert cache.lengths == tuple(map(len, kept))
    for b, logits in enumerate(feed(model, cache, [[5], [6]])):
        same(logits[0], alone(model, [*kept[b], 5 + b])[-1])


@EVERY
@draws(4)
@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 3), st.integers(0, 3)), max_size=6),
)
def test_tokens_taken_back_after_any_steps_leave_no_trace(kind, steps):
    model, cache = MODELS[kind], MODELS[kind].new_cache(2, 60, rollback=3)
    held = [text(7 + 4 * b, seed=b) for b in range(2)]
    feed(model, cache, held)
    for i, (T, *back) in enumerate(steps):
        for t in range(T):  # as a draft model decodes: one by one
            new = [[(3 * i + t + b) % ODD["V"]] for b in range(2)]
            feed(model, cache, new)
            held = [old + one for old, one in zip(held, new, strict=True)]
        lengths = [len(h) - min(n, T) for h, n in zip(held, back, strict=True)]
        cache.truncate(lengths)
        held = [h[:n] for h, n in zip(held, lengths, strict=True)]
        assert cache.lengths == tuple(lengths)
        for b, logits in enumerate(feed(model, cache, [[5], [6]], commit=False)):
            same(logits[0], alone(model, [*held[b], 5 + b])[-1])


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


@EVERY
@pytest.mark.parametrize("T", [1, 4])
def test_a_pass_that_is_broken_off_at_any_layer_changes_nothing(kind, T):
    model = MODELS[kind]
    for broken in range(model.config.L):
        cache = model.new_cache(2, 30)
        held = [text(8, seed=1), text(3, seed=2)]
        feed(model, cache, held)

        hook = model.layers[broken].mlp.register_forward_pre_hook(interrupt)
        with pytest.raises(KeyboardInterrupt):
            feed(model, cache, [text(T, seed=3), text(T, seed=4)])
        hook.remove()
        with pytest.raises(ValueError, match="nothing to commit"):
            cache.commit()
        assert cache.lengths == (8, 3)
        again = [text(2, seed=5), text(1, seed=6)]
        for b, logits in enumerate(feed(model, cache, again)):
            same(logits, alone(model, held[b] + again[b])[len(held[b]) :])


@EVERY
@pytest.mark.parametrize("part", ["norm", "lm_head"])
def test_a_pass_that_is_broken_off_behind_the_last_layer_changes_nothing_either(kind, part):
    model, cache = MODELS[kind], MODELS[kind].new_cache(1, 30)
    feed(model, cache, [text(8)])
    hook = getattr(model, part).register_forward_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        feed(model, cache, [text(3)])
    hook.remove()
    assert cache.lengths == (8,)
    same(feed(model, cache, [[5]])[0][0], alone(model, [*text(8), 5])[-1])


CHANGES = {
    "commit": ("commit", lambda model, cache: feed(model, cache, [[5], [6]])),
    "cut": ("take_back", lambda model, cache: cache.truncate([8, 2])),
    "copy": ("copy_row", lambda model, cache: cache.fork(0, 1)),
    "release": ("clear", lambda model, cache: cache.release(1)),
}


@EVERY
@pytest.mark.parametrize("change", CHANGES)
def test_a_cache_whose_change_was_broken_off_at_any_layer_says_so_and_can_begin_anew(
    kind, change, monkeypatch
):
    model, (method, run) = MODELS[kind], CHANGES[change]
    for broken in MODELS[kind].new_cache(2, 30).stores:
        cache = model.new_cache(2, 30, rollback=2)
        feed(model, cache, [text(8), text(2)])
        feed(model, cache, [[1], [2]])
        monkeypatch.setattr(cache.stores[broken], method, interrupt)
        if change == "cut" and kind not in LIMITED:
            run(model, cache)  # layers that overwrite nothing need no change
            continue
        if change == "cut" and cache.stores[broken].unlimited:
            continue
        with pytest.raises(KeyboardInterrupt):
            run(model, cache)
        monkeypatch.undo()
        for use in (
            partial(feed, model, cache, [[5], [6]]),
            cache.commit,  # a path would be moved a second time
            partial(cache.fork, 0, 1),
            partial(cache.truncate, [1, 1]),
        ):
            with pytest.raises(ValueError, match="a change was broken off"):
                use()
        if broken:
            cache.truncate(0)
        else:
            cache.release(0)
            cache.release(1)
            assert (cache.admit(), cache.admit()) == (0, 1)
        same(feed(model, cache, [text(6), text(3)])[0], alone(model, text(6)))


def test_padding_may_stand_beyond_the_positions_that_were_learned():
    model, cache = MODELS["learned positions"], MODELS["learned positions"].new_cache(2, 64)
    held = [text(60), text(2)]
    feed(model, cache, held)
    for b, logits in enumerate(feed(model, cache, [[5], new := text(9)])):
        same(logits, alone(model, held[b] + [[5], new][b])[len(held[b]) :])


@EVERY
def test_a_forked_sequence_goes_its_own_way(kind):
    model, cache = MODELS[kind], MODELS[kind].new_cache(3, 20, rollback=1)
    prompt = text(9)
    feed(model, cache, [prompt, text(4), []])
    cache.fork(0, 2)
    assert cache.lengths == (9, 4, 9)
    ways = [[1, 2, 3], [], [4, 5, 6]]
    for b, logits in enumerate(feed(model, cache, ways)):
        if ways[b]:
            same(logits, alone(model, prompt + ways[b])[9:])


@EVERY
def test_a_released_row_is_admitted_again_and_remembers_nothing(kind):
    model, cache = MODELS[kind], MODELS[kind].new_cache(2, 20)
    first = text(11)
    feed(model, cache, [first, text(5)])
    with pytest.raises(ValueError, match="all 2 rows are taken"):
        cache.admit()
    cache.release(1)
    assert cache.lengths == (11, 0)
    assert cache.admit() == 1
    new = [[], text(7, seed=9)]
    same(feed(model, cache, new)[1], alone(model, new[1]))
    same(feed(model, cache, [[1], []])[0][0], alone(model, [*first, 1])[-1])


@EVERY
def test_a_sequence_of_nan_leaves_none_to_the_next_in_its_row(kind):
    model, cache = lively(kind), MODELS[kind].new_cache(2, 20)
    model.embed_tokens.weight[30] = torch.nan
    feed(model, cache, [text(3), [30] * 9])
    cache.release(1)
    cache.admit()
    found = feed(MODELS[kind], cache, [text(9, seed=1), new := text(2)])[1]
    same(found, alone(MODELS[kind], new))


NAN = 30  # the token whose embedding is damaged


@lru_cache
def damaged(kind: str) -> Transformer:
    model = lively(kind)
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.clone(), requires_grad=False)
    model.embed_tokens.weight[NAN] = torch.nan
    return model


@EVERY
@pytest.mark.parametrize(
    ("n_drafts", "lengths"),
    [
        pytest.param(1, (9, 2), marks=pytest.mark.more),
        (3, (9, 2)),
        pytest.param(3, (9, 9), marks=pytest.mark.more),
    ],
)
@pytest.mark.parametrize("how", ["rejected", "forgotten", "taken back", "broken off"])
def test_drafts_of_nan_that_do_not_stay_leave_no_trace(kind, n_drafts, lengths, how):
    model = damaged(kind)
    held = [[t % NAN for t in text(n, seed=b)] for b, n in enumerate(lengths)]
    cache = model.new_cache(2, 30, rollback=3)
    feed(model, cache, held)
    drafts = [[NAN] * n_drafts] * 2
    if how == "taken back":
        for _ in range(n_drafts):  # a state keeps each of them
            feed(model, cache, [[NAN]] * 2)
        cache.truncate(lengths)
    elif how == "broken off":
        hook = model.norm.register_forward_hook(interrupt)
        with pytest.raises(KeyboardInterrupt):
            feed(model, cache, drafts)
        hook.remove()
    else:
        assert not any(x.isfinite().any() for x in feed(model, cache, drafts, commit=False))
        if how == "rejected":
            cache.commit(0)
    for new in ([[1], [2]], [[], [3, 4]], [[5, 6, 7, 8, 9], [1]]):
        for b, logits in enumerate(feed(model, cache, new)):
            same(logits, alone(model, held[b] + new[b])[len(held[b]) :])
            held[b] = held[b] + new[b]


@pytest.mark.parametrize("kind", sorted(LIMITED))
@pytest.mark.parametrize("commit", [True, False])
def test_a_lone_draft_of_nan_leaves_no_trace_when_those_before_it_are_cut(kind, commit):
    model, cache = damaged(kind), MODELS[kind].new_cache(2, 30, rollback=3)
    held = [[t % NAN for t in text(n)] for n in (9, 7)]
    feed(model, cache, held)
    for new in ([[1], [2]], [[3], [4]]):
        feed(model, cache, new)
    feed(model, cache, [[NAN]] * 2, commit=False)
    if commit:
        cache.commit(0)
    cache.truncate([9, 7])
    for b, logits in enumerate(feed(model, cache, [[5], [6]])):
        same(logits[0], alone(model, [*held[b], 5 + b])[-1])


@EVERY
def test_padding_of_nan_changes_nothing(kind):
    model, cache = damaged(kind), MODELS[kind].new_cache(2, 20)
    held = [[], []]
    for new in ([[1, 2, 3, 4], [5]], [[6], []], [[1], [2, 3]]):
        T = max(map(len, new))
        block = torch.tensor([[*tokens, *[NAN] * (T - len(tokens))] for tokens in new])
        found = model(block, cache, n_new=[len(tokens) for tokens in new])
        for b, tokens in enumerate(new):
            held[b] = held[b] + tokens
            same(found[b, : len(tokens)], alone(model, held[b])[len(held[b]) - len(tokens) :])


@pytest.mark.parametrize("kind", sorted(STATES))
def test_a_layer_with_a_state_shares_none(kind):
    if KINDS[kind]["attention"] == "ssm":
        with pytest.raises(ValueError, match="layer 1 has a state of its own"):
            Config(**(ODD | KINDS[kind] | {"kv_source": (0, 0, 2)}))
    else:
        with pytest.raises(ValueError, match="layer 2 has a state of its own"):
            Config(**(ODD | KINDS[kind] | {"kv_source": (0, 1, 0)}))


@pytest.mark.parametrize("kind", sorted(LIMITED))
def test_what_layers_have_forgotten_is_not_given_back(kind):
    model, cache = MODELS[kind], MODELS[kind].new_cache(2, 20, rollback=1)
    feed(model, cache, [text(9), text(9)])
    feed(model, cache, [[1], [2]])
    cache.truncate([9, 10])
    for lengths, says in (
        ([8, 10], "sequence 0 cannot give back 1 tokens, only 0"),
        ([9, 8], "sequence 1 cannot give back 2 tokens, only 1"),
        ([10, 10], "sequence 0 holds 9 tokens and cannot be cut to 10"),
    ):
        with pytest.raises(ValueError, match=says):
            cache.truncate(lengths)
    assert cache.lengths == (9, 10)
    feed(model, cache, [[3, 4], [5, 6]], commit=False)
    if kind in STATES:
        with pytest.raises(ValueError, match="sequence 1 cannot give back 2 tokens"):
            cache.commit([1, 0])
    cache.commit([1, 2])
    assert cache.lengths == (10, 12)
    feed(model, cache, [[7, 8, 9], [7, 8, 9]], commit=False)  # longer than snapshots reach
    if kind in STATES:
        with pytest.raises(ValueError, match="sequence 0 cannot give back 1 tokens, only 0"):
            cache.commit([2, 3])
    cache.commit(0)
    assert cache.lengths == (10, 12)
    cache.truncate(0)
    same(feed(model, cache, [text(4), text(3)])[1], alone(model, text(3)))


@pytest.mark.parametrize("kind", sorted(set(KINDS) - LIMITED))
def test_full_and_latent_layers_give_back_any_number_of_tokens(kind):
    model, cache = MODELS[kind], MODELS[kind].new_cache(2, 20)
    held = [text(9), text(12)]
    feed(model, cache, held)
    cache.truncate([2, 11])
    for b, logits in enumerate(feed(model, cache, [[5], [6]])):
        same(logits[0], alone(model, [*held[b][: (2, 11)[b]], 5 + b])[-1])


TREE = [-1, 0, 0, 1, 1, 2, 3]  # the token before each one; 0, 1, 3, 6 is one way down
WAYS = [[0, 1, 3, 6], [0, 1, 4], [0, 2, 5]]


def tree_of(parents: Sequence[int]) -> torch.Tensor:
    tree = torch.eye(len(parents), dtype=torch.bool)
    for t, parent in enumerate(parents):
        if parent >= 0:
            tree[t] |= tree[parent]
    return tree


@pytest.mark.parametrize("kind", sorted(set(KINDS) - STATES))
@pytest.mark.parametrize("even", [True, False])
def test_every_way_down_a_tree_of_drafts_gets_what_it_gets_alone_and_one_can_stay(kind, even):
    model, held = MODELS[kind], [text(9), text(9, seed=1) if even else text(4)]
    drafts = [text(7, seed=5), text(7, seed=6)]
    for way in WAYS:
        cache = model.new_cache(2, 30, rollback=6)
        feed(model, cache, held)
        logits = feed(model, cache, drafts, tree=tree_of(TREE), commit=False)
        other = WAYS[0] if way is not WAYS[0] else []  # the second sequence takes another
        cache.commit(paths=[way, other])
        for b, path in enumerate((way, other)):
            chosen = [drafts[b][t] for t in path]
            same(logits[b][path], alone(model, held[b] + chosen)[len(held[b]) :])
        found = feed(model, cache, [[1], [2]])
        for b, path in enumerate((way, other)):
            chosen = [drafts[b][t] for t in path]
            same(found[b][0], alone(model, [*held[b], *chosen, 1 + b])[-1])


def test_a_tree_that_is_none_is_refused():
    model = MODELS["full"]
    ids, cache = torch.tensor([text(3)]), model.new_cache(1, 9)
    bad = {
        "bool tensor": torch.ones(3, 3),
        r"bool tensor \[3, 3\]": torch.ones(2, 2).bool(),
        "sees itself": torch.zeros(3, 3).bool(),
        "none that comes after": torch.ones(3, 3).bool(),
    }
    for says, tree in bad.items():
        with pytest.raises(ValueError, match=says):
            model(ids, cache, tree=tree)
    model(ids, cache, tree=tree_of([-1, 0, 0]), commit=False)
    for paths in ([[1, 2]], [[0, 1, 2]], [[0, 0]], [[0, 3]]):
        with pytest.raises(ValueError, match=r"way down|names tokens"):
            cache.commit(paths=paths)
    with pytest.raises(ValueError, match="not both"):
        cache.commit([2], paths=[[0, 2]])
    with pytest.raises(ValueError, match="way down"):  # the first three are no path
        cache.commit()
    cache.commit(paths=[[0, 2]])
    with pytest.raises(ValueError, match="way down"):
        model(ids, cache, tree=tree_of([-1, 0, 0]))
    assert cache.lengths == (2,)
    for way_in in ({}, {"cache": MODELS["linear"].new_cache(1, 9), "commit": False}):
        with pytest.raises(ValueError, match="cannot read a tree"):
            MODELS["linear"](ids, **way_in, tree=tree_of([-1, 0, 0]))
    both_ways = Transformer(Config(**(ODD | {"causal": False})))
    with pytest.raises(ValueError, match="it has no tree"):
        both_ways(ids, tree=tree_of([-1, 0, 0]))
    with pytest.raises(ValueError, match="cannot read a tree"):
        MODELS["ssm"](ids, MODELS["ssm"].new_cache(1, 9), tree=tree_of([-1, 0, 0]))


def test_what_stays_of_a_tree_came_and_saw_its_path():
    cache, ids = MODELS["full"].new_cache(2, 9), torch.tensor([text(3), text(3)])
    MODELS["full"](ids, cache, n_new=[2, 3], tree=tree_of([-1, 0, 0]), commit=False)
    with pytest.raises(ValueError, match=r"tokens that came, .* got \[0, 2\] of 2"):
        cache.commit(paths=[[0, 2], [0, 2]])
    odd = tree_of([-1, -1, 1])
    odd[2, 0] = True  # it sees 0, but the one before it, 1, does not
    MODELS["full"](ids, cache, tree=odd, commit=False)
    with pytest.raises(ValueError, match="way down"):
        cache.commit(paths=[[0, 1, 2], [0]])
    cache.commit(paths=[[1], [0]])
    assert cache.lengths == (1, 1)


def test_a_tree_ends_where_its_deepest_token_stands_not_where_its_last_slot_is():
    model, held = MODELS["learned positions"], text(60)
    cache = model.new_cache(1, 70)
    feed(model, cache, [held])
    drafts = text(7, seed=5)
    (found,) = feed(model, cache, [drafts], tree=tree_of(TREE), commit=False)
    same(found[6], alone(model, held + [drafts[t] for t in WAYS[0]])[-1])
    with pytest.raises(ValueError, match="learned 64 positions"):
        feed(model, cache, [text(5)])


def test_a_free_row_takes_no_tokens_until_it_is_admitted():
    cache = MODELS["full"].new_cache(2, 9)
    cache.release(1)
    with pytest.raises(ValueError, match="row 1 was released: admit it"):
        feed(MODELS["full"], cache, [[1], [2]])
    feed(MODELS["full"], cache, [[1], []])
    assert (cache.admit(), cache.lengths) == (1, (1, 0))


def test_a_cut_that_is_refused_leaves_the_pass_that_waits():
    cache = MODELS["full"].new_cache(1, 9)
    feed(MODELS["full"], cache, [text(3)], commit=False)
    with pytest.raises(ValueError, match="cannot be cut to 1"):
        cache.truncate(1)
    cache.commit(2)
    assert cache.length == 2


def test_no_cache_has_no_room_or_takes_back_less_than_nothing_or_rounds_to_whole_numbers():
    for sizes, says in (
        ({"S_max": 0}, "S_max of a cache is a whole number of at least 1; got 0"),
        ({"S_max": 2.5}, "S_max of a cache .* got 2.5"),
        ({"B": True}, "B of a cache .* got True"),
        ({"B": "2"}, "B of a cache .* got '2'"),
        ({"rollback": -1}, "rollback of a cache is a whole number of at least 0; got -1"),
        ({"rollback": 1.5}, "rollback of a cache .* got 1.5"),
        ({"dtype": torch.int8}, "holds floating-point numbers; got torch.int8"),
    ):
        for kind in ("full", "window", "ssm", "latent"):
            with pytest.raises(ValueError, match=says):
                MODELS[kind].new_cache(**({"B": 1, "S_max": 4} | sizes))


@EVERY
def test_the_owner_refuses_what_does_not_fit_before_anything_is_written(kind):
    model, cache = MODELS[kind], MODELS[kind].new_cache(2, 10)
    held = [text(7), text(3)]
    feed(model, cache, held)
    for new, says in (
        ([text(4), text(1)], "room for 10 tokens a sequence, and sequence 0 holds 7: 4 more"),
        ([text(1), text(8)], "sequence 1 holds 3: 8 more do not fit"),
    ):
        with pytest.raises(ValueError, match=says):
            feed(model, cache, new)
    one = torch.zeros(2, 1, dtype=torch.long)
    odd = ([0, 2], [-1, 1], [1], torch.tensor(1), [1.5, 1], 0.5, True, [True, 1], "11", {1: 1})
    for counts in odd:
        with pytest.raises(ValueError, match="count"):
            model(one, cache, n_new=counts)
    with pytest.raises(ValueError, match="cache is for 2 sequences; got tokens of 3"):
        model(torch.zeros(3, 1, dtype=torch.long), cache)
    with pytest.raises(ValueError, match="at least one token"):
        model(torch.zeros(2, 0, dtype=torch.long), cache)
    with pytest.raises(ValueError, match="there is none"):
        model(one, n_new=[1, 1])
    with pytest.raises(ValueError, match="nothing to commit"):
        cache.commit()
    assert cache.lengths == (7, 3)
    for b, logits in enumerate(feed(model, cache, [[5], [6]])):
        same(logits[0], alone(model, [*held[b], 5 + b])[-1])


def test_more_than_came_cannot_stay_and_rows_that_are_not_there_have_no_name():
    model, cache = MODELS["full"], MODELS["full"].new_cache(2, 10)
    feed(model, cache, [[1, 2], [3]], commit=False)
    for kept in ([3, 1], [2, 2], [-1, 0]):
        with pytest.raises(ValueError, match="of them cannot stay"):
            cache.commit(kept)
    for call in (cache.release, lambda row: cache.fork(0, row), lambda row: cache.fork(row, 0)):
        for row in (-1, 2, 0.0, True):
            with pytest.raises(ValueError, match=r"rows 0 to 1|a row's number is a whole number"):
                call(row)
    feed(model, cache, [[1, 2], [3]])
    with pytest.raises(ValueError, match="differ in length"):
        _ = cache.length


@pytest.mark.parametrize("kind", ["full", "window", "latent", "shared"])
def test_a_cache_in_another_dtype_keeps_rounded_keys_and_the_rest_stays_exact(kind):
    model = MODELS[kind]
    cache, exact = (model.new_cache(2, 20, dtype=t) for t in (torch.bfloat16, torch.float32))
    assert 2 * cache.nbytes == exact.nbytes
    tokens = [text(9), text(6)]
    rounded = torch.cat([*feed(model, cache, tokens), *feed(model, cache, [[1], [2]])])
    full = torch.cat([*feed(model, exact, tokens), *feed(model, exact, [[1], [2]])])
    assert rounded.dtype == torch.float32
    assert 0 < float((rounded - full).norm()) < 0.05 * float(full.norm())  # roundings of 2⁻⁹


def test_keys_in_another_dtype_are_rounded_once_and_nothing_else_is():
    q, k, v = (torch.randn(2, 5, n, 8) for n in (4, 2, 2))
    store = KVCache(2, 9, 2, 8, torch.bfloat16)
    span = MODELS["full"].new_cache(2, 9).begin(2, 5)
    store.write(k, v, span)
    expected = naive_attention(q, k.bfloat16().float(), v.bfloat16().float())
    torch.testing.assert_close(store.attend(q, span), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", sorted(STATES))
def test_snapshots_weigh_what_a_state_weighs_one_for_each_token_that_can_be_taken_back(kind):
    def states(rollback: int) -> int:
        stores = MODELS[kind].new_cache(2, 50, rollback=rollback).stores.values()
        return sum(store.nbytes for store in stores if isinstance(store, State))

    assert states(0) > 0
    assert [states(r) for r in (1, 4)] == [2 * states(0), 5 * states(0)]


def test_a_ring_has_a_slot_for_each_token_that_can_be_taken_back_and_none_beyond_S_max():
    slots = [
        MODELS["window"].new_cache(1, S, rollback=r).stores[0].keys.shape[1]
        for S, r in ((50, 0), (50, 3), (6, 3), (4, 3))
    ]
    assert slots == [5, 8, 6, 4]


@pytest.mark.parametrize("S_max", [4, 5, 6])
def test_windows_that_nothing_leaves_give_back_any_number_of_tokens(S_max):
    model, held = MODELS["window"], [text(4), text(3)]  # a window of 5
    cache = model.new_cache(2, S_max)
    feed(model, cache, held)
    if S_max > 5:
        with pytest.raises(ValueError, match="cannot give back 3 tokens, only 0"):
            cache.truncate([1, 2])
        return
    cache.truncate([1, 2])
    for b, logits in enumerate(feed(model, cache, [[5], [6]])):
        same(logits[0], alone(model, [*held[b][: (1, 2)[b]], 5 + b])[-1])


def test_a_model_of_fewer_layers_takes_its_positions_from_the_owner():
    big, small = MODELS["full"], Transformer(Config(**(ODD | {"L": 2})))
    small.load_state_dict(
        {k: v for k, v in big.state_dict().items() if not k.startswith("layers.2")}
    )
    cache = big.new_cache(1, 9)
    small(torch.tensor([text(4)]), cache)
    same(small(torch.tensor([[5]]), cache)[0], alone(small, [*text(4), 5])[-1:])


@pytest.mark.parametrize("stale", [False, True])
def test_a_state_that_did_not_run_is_not_committed_and_the_cache_stays_whole(stale):
    model, cache = MODELS["ssm"], MODELS["ssm"].new_cache(1, 20)
    feed(model, cache, [text(4)])
    if stale:  # what the last layer proposed belongs to a pass that was never committed
        feed(model, cache, [text(3, seed=1)], commit=False)
    shorter = Transformer(Config(**(ODD | KINDS["ssm"] | {"L": 2})))
    with pytest.raises(ValueError, match="a layer with a state did not run"):
        shorter(torch.tensor([text(3)]), cache)
    assert cache.lengths == (4,)
    same(feed(model, cache, [[5]])[0], alone(model, [*text(4), 5])[-1:])


@EVERY
def test_no_gradient_goes_into_a_cache_or_comes_out_of_it(kind):
    model, cache = lively(kind).requires_grad_(True), MODELS[kind].new_cache(2, 20, rollback=2)
    for new in ([[1, 2, 3], [4]], [[1], [2]], [[1, 2], [3, 4]]):
        assert not any(logits.requires_grad for logits in feed(model, cache, new))
        assert not model.hidden(torch.tensor([[1], [2]]), cache).requires_grad
    for store in cache.stores.values():
        assert all(held.grad_fn is None and not held.requires_grad for held in store.held)
    assert model(torch.tensor([[1, 2]])).requires_grad


def test_the_cache_of_another_model_is_refused_by_the_layer_that_finds_it():
    for ours, theirs, says in (
        ("full", "ssm", "layer 0 keeps keys and values.* has a State there"),
        ("latent", "full", "layer 0 keeps latents.* has a KVCache there"),
        ("linear", "full", "layer 0 keeps a state.* has a KVCache there"),
        ("full", "shared", "layer 1 keeps keys and values.* has nothing there"),
    ):
        with pytest.raises(ValueError, match=says):
            MODELS[ours](torch.zeros(1, 1, dtype=torch.long), MODELS[theirs].new_cache(1, 4))


@EVERY
def test_logits_where_they_are_asked_for_are_those_of_all(kind):
    model, ids = MODELS[kind], torch.tensor([text(6), text(6, seed=1)])
    every = model(ids)
    torch.testing.assert_close(model(ids, at=-1), every[:, -1])
    torch.testing.assert_close(model(ids, at=torch.tensor([2, 5])), every[[0, 1], [2, 5]])
    torch.testing.assert_close(model.logits(model.hidden(ids), 3), every[:, 3])
    wrong = (6, -7, 2.0, True, torch.tensor([1]), torch.tensor([[1], [2]]), torch.ones(2))
    for at in wrong:
        with pytest.raises(ValueError, match=r"-6 to 5, or int64 \[2\]"):
            model(ids, at=at)


@EVERY
def test_the_last_token_of_each_sequence_is_its_last_real_one(kind):
    model, cache = MODELS[kind], MODELS[kind].new_cache(3, 20)
    new = [text(5), text(2, seed=1), []]
    block = torch.tensor([[*tokens, *[7] * (5 - len(tokens))] for tokens in new])
    every = [alone(model, tokens) for tokens in new[:2]]
    for at, of in ((-1, (4, 1)), (-2, (3, 0)), (0, (0, 0)), (torch.tensor([-1, 0, 0]), (4, 0))):
        found = model(block, cache, n_new=[5, 2, 0], at=at, commit=False)
        same(found[:2], torch.stack([logits[t] for logits, t in zip(every, of, strict=True)]))
    for at in (2, -3):
        with pytest.raises(ValueError, match=f"`at` is {at}, but sequence 1 has 2 new tokens"):
            model(block, cache, n_new=[5, 2, 0], at=at)
    with pytest.raises(ValueError, match="-5 to 4"):
        model(block, cache, n_new=[5, 2, 0], at=5)
    assert cache.lengths == (0, 0, 0)


@EVERY
def test_noise_in_a_cache_changes_no_shape_and_no_length(kind):
    model, cache = MODELS[kind], MODELS[kind].new_cache(2, 10)
    cache.fill_with_noise(6)
    assert cache.length == 6
    assert model(torch.zeros(2, 1, dtype=torch.long), cache).shape == (2, 1, ODD["V"])
    assert cache.length == 7
    cache.fill_with_noise(0)
    same(feed(model, cache, [text(3), text(3)])[0], alone(model, text(3)))
    with pytest.raises(ValueError, match="room for 10"):
        cache.fill_with_noise(11)


# Who visits which expert is counted on the host; torch has no autocast for meta tensors.
NOW = {"full", "window", "latent", "ssm", "capped", "shared windows"}  # others are made of these


@pytest.mark.parametrize(
    "kind",
    [
        kind if kind in NOW else pytest.param(kind, marks=pytest.mark.more)
        for kind in sorted(set(KINDS) - {"experts", "linear"})
    ],
)
def test_no_layer_waits_for_the_device(kind):
    """A tensor on the meta device has no numbers: whoever asks for one raises."""
    with torch.device("meta"):
        model = Transformer(Config(**(ODD | KINDS[kind])))
        cache, block = model.new_cache(2, 30, rollback=2), torch.zeros(2, 4, dtype=torch.long)
        for n_new in ([4, 2], [0, 3], [1, 4]):
            model(block, cache, n_new=n_new, at=-1)
        model(block[:, :1], cache)
        model(block[:, :3], cache, commit=False)
        cache.commit([1, 3])
        cache.truncate([6, 12])
        cache.fork(0, 1)
        assert model(block[:, :1], cache).shape == (2, 1, ODD["V"])
    if kind not in STATES:
        model(block, cache, tree=tree_of([-1, 0, 0, 1]), commit=False)
        cache.commit(paths=[[0, 1, 3], [0, 2]])
    assert cache.lengths == ((10, 9) if kind not in STATES else (7, 7))


# each step of another length is compiled anew, which takes a second
@pytest.mark.parametrize(
    ("kind", "n_steps"),
    [
        ("full", 1),
        *(pytest.param(kind, 16, marks=pytest.mark.more) for kind in ("full", "window", "latent")),
    ],
)
def test_compiled_steps_break_no_graph(kind, n_steps):
    counters = torch._dynamo.utils.counters
    torch._dynamo.reset()
    counters.clear()
    model, cache = MODELS[kind], MODELS[kind].new_cache(2, 30)
    feed(model, cache, [text(4), text(3)])
    step = torch.compile(model, backend="eager")
    with torch.inference_mode():
        for _ in range(n_steps):
            step(torch.zeros(2, 1, dtype=torch.long), cache, at=-1)
    assert cache.lengths == (4 + n_steps, 3 + n_steps)
    assert counters["frames"]["ok"] >= 1  # something was compiled
    assert not counters["graph_break"], dict(counters["graph_break"])
    torch._dynamo.reset()


@pytest.mark.parametrize(("spoil", "message"), [
    (lambda cache: cache.release(0), "row 0 was released"),
    (lambda cache: cache._mark_torn(cache._rows), "a change was broken off"),
    (lambda cache: cache.fill_with_noise(30), "1 more do not fit"),
])  # fmt: skip
def test_a_pass_of_one_token_of_one_sequence_begins_only_where_any_other_may(spoil, message):
    cache = MODELS["full"].new_cache(1, 30)
    short, span = cache.begin(1, 1), cache.begin(1, 1, [1])
    assert (short.starts, short.n_new, short.T) == (span.starts, span.n_new, span.T)
    spoil(cache)
    with pytest.raises(ValueError, match=message):
        cache.begin(1, 1)
