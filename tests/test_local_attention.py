"""Windows in numbers: what the formulas say is what counting says."""

import pytest
import torch
from draws import draws
from hypothesis import given
from hypothesis import strategies as st

from twophase.kernels.attention import visible
from twophase.kernels.local_attention import RingKVCache
from twophase.kernels.span import Span
from twophase.theory import local_attention as theory
from twophase.theory.catalog import model
from twophase.theory.kv_cache import hybrid_bytes_per_sequence


def seen_from_the_end(S: int, windows: list[int]) -> int:
    """Tokens that the last output depends on: masks of the layers, multiplied."""
    reach = torch.zeros(S, dtype=torch.bool)
    reach[-1] = True
    for window in reversed(windows):
        reach = (visible(S, S, window=window)[0] & reach[:, None]).any(0)  # [S]
    return int(reach.sum())


@draws(60)
@given(st.integers(0, 5), st.integers(1, 9))
def test_the_receptive_field_is_what_masks_let_through(n_layers, window):
    S = 64
    assert theory.receptive_field(n_layers, window) == seen_from_the_end(S, [window] * n_layers)


@draws(60)
@given(st.integers(0, 200), st.integers(2, 20))
def test_the_fewest_layers_that_reach_are_enough_and_one_less_is_not(distance, window):
    n = theory.layers_to_reach(distance, window)
    assert theory.receptive_field(n, window) > distance
    assert n == 0 or theory.receptive_field(n - 1, window) <= distance


@draws(40)
@given(st.integers(1, 9), st.integers(0, 30))
def test_a_ring_holds_each_of_its_last_tokens_in_the_slot_that_the_formula_names(slots, length):
    ring = RingKVCache(1, slots, 1, 2)
    for t in range(length):
        here = torch.full((1, 1, 1, 2), float(t))
        ring.write(here, here, Span.of(1, 1, t))
    for t in range(max(0, length - slots), length):
        assert ring.keys[0, theory.ring_slot(t, slots), 0, 0] == t


@draws(60)
@given(st.integers(0, 20), st.integers(1, 20), st.integers(1, 20))
def test_a_chunk_needs_the_keys_that_one_of_its_masks_lets_through(start, T, window):
    needed = visible(T, start + T, window=window)[0].any(0).sum()
    assert theory.chunk_keys(start, T, window) == needed
    keys = torch.zeros(1, start + T, 1, 2)
    ring, span = RingKVCache(1, window, 1, 2), Span.of(1, T, start)
    if start:
        ring.write(keys[:, :start], keys[:, :start], before := Span.of(1, start))
        ring.commit(before, before.n_new)
    ring.write(keys[:, start:], keys[:, start:], span)
    found = ring.found(span, window)[0].shape[1]
    # a lone token finds the ring as it is: as many keys, those of its window
    assert found == needed


@draws(60)
@given(st.integers(1, 40), st.integers(1, 40))
def test_the_share_of_pairs_is_that_of_the_masks(T, window):
    left, all_pairs = (visible(T, T, window=w).sum().item() for w in (window, None))
    assert theory.window_pairs_share(T, window) == left / all_pairs


@pytest.mark.parametrize(("n_global", "n_local", "window"), [(1, 5, 1024), (10, 52, 1024)])
def test_at_the_balance_half_of_the_cache_is_global(n_global, n_local, window):
    S = theory.balance_context(n_global, n_local, window)
    both = hybrid_bytes_per_sequence(S, n_global, n_local, window, 1, 1)
    assert both == 2 * hybrid_bytes_per_sequence(S, n_global, 0, window, 1, 1)


def test_gemma_3s_global_layers_are_most_of_its_cache_from_five_windows_on():
    a = model("gemma-3-27b")
    n_global, n_local = (a.layer_kinds.count(kind) for kind in ("full", "sliding"))
    assert theory.balance_context(n_global, n_local, a.window) == pytest.approx(5.2 * a.window)
