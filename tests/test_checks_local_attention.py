"""What the checks of chapter 7 take for right is what the course's kernels and its meter say."""

from __future__ import annotations

import pytest
import torch
from exercise_tools import refused_by_a_fixed_case
from test_local_attention import seen_from_the_end

from twophase.checks import registry
from twophase.checks.judge import judge
from twophase.checks.local_attention import (
    _prefill_cases,
    _prefill_rings,
    _ring_cases,
    _ring_logs,
    _stacks,
    prefill,
    ring,
    ring_log,
)
from twophase.kernels.attention import visible
from twophase.kernels.kv_cache import KVCache
from twophase.kernels.local_attention import RingKVCache
from twophase.kernels.span import Span
from twophase.measure.meter import Meter

DTYPES = {2: torch.bfloat16, 4: torch.float32, 8: torch.float64}
METERED = 10_000  # positions: more would take the meter seconds, and the formula has no threshold


def _measured(
    B: int, S: int, windows: list[int | None], N: int, K: int, H: int, bytes_per_value: int
) -> int:
    """Counted while one step runs through all layers."""
    dtype, span = DTYPES[bytes_per_value], Span.of(B, T=1, start=S)

    def numbers(T: int, heads: int) -> torch.Tensor:
        return torch.zeros(B, T, heads, H, dtype=dtype)

    sizes = (K, H, dtype)
    layers = [
        KVCache(B, S + 1, *sizes) if window is None else RingKVCache(B, window, *sizes)
        for window in windows
    ]
    q, k, v = numbers(1, N), numbers(1, K), numbers(1, K)
    with Meter() as meter:
        for cache in layers:
            cache.write(k, v, span)
            with meter.fused("attention"):
                cache.attend(q, span)
    return meter.bytes


@pytest.mark.parametrize("seed", [0, 7])
def test_the_bytes_a_hybrids_step_should_move_are_those_the_meter_counts(seed: int) -> None:
    exercise = registry.load("local_attention-step_bytes")
    given = [case.args for case in exercise.make_cases(seed)]
    metered = [sizes for sizes in given if sizes[1] < METERED and sizes[-1] in DTYPES]
    assert len(metered) > 15
    for sizes in metered:
        assert exercise.reference(*sizes) == _measured(*sizes), sizes


def test_the_mask_is_that_of_the_kernels() -> None:
    exercise = registry.load("local_attention-mask")
    for case in exercise.make_cases(0):
        T, S, window = case.args
        assert exercise.reference(T, S, window).equal(visible(T, S, window=window)[0])


def test_the_receptive_field_is_what_masks_let_through() -> None:
    exercise = registry.load("local_attention-receptive_field")
    small = [case.args for case in exercise.make_cases(0) if case.args[1] < 200]
    assert len(small) > 12
    for windows, S in small:
        masks = [S if window is None else window for window in windows]
        assert exercise.reference(windows, S) == seen_from_the_end(S, masks)


def test_the_ring_holds_and_finds_what_the_kernels_ring_does() -> None:
    """The kernel's ring keeps a block until its commit; for a lone token it says where all lies."""
    exercise = registry.load("local_attention-ring")
    for case in exercise.make_cases(0):
        for (B, window, K, H), blocks in case.args:
            mine, theirs = exercise.reference(B, window, K, H), RingKVCache(B, window, K, H)
            for k, v in blocks:
                span = Span.of(B, k.shape[1], mine.length)
                theirs.write(k, v, span)
                found = theirs.found(span, window)[:2]
                pair = mine.append(k, v)
                theirs.commit(span, span.n_new)
                assert mine.keys.equal(theirs.keys)
                assert mine.values.equal(theirs.values)
                if k.shape[1] > 1:
                    assert all(a.equal(b) for a, b in zip(pair, found, strict=True))


def test_a_repaired_ring_shows_each_token_its_window() -> None:
    for window, blocks in _prefill_cases.SCRIPTS:
        ring, text = _prefill_rings.Right(window), list(range(sum(blocks)))
        seen = [row for start, T in _starts(blocks) for row in ring.feed(text[start : start + T])]
        expected = [text[max(0, end - window) : end] for end in range(1, len(text) + 1)]
        assert seen == expected


def _starts(blocks: list[int]) -> list[tuple[int, int]]:
    return [(sum(blocks[:i]), T) for i, T in enumerate(blocks)]


def test_every_workload_has_one_best_option() -> None:
    exercise = registry.load("local_attention-ratio")
    for case in exercise.make_cases(0):
        (w,) = case.args
        losses = [o["bits_per_byte"] for o in w["options"]]
        best = w["options"][exercise.reference(w)]
        assert len(set(losses)) == len(losses)
        assert all(rule(w, best) for rule in (_stacks.fits, _stacks.in_time, _stacks.reaches))


def test_the_scripts_of_the_ring_end_where_the_task_says() -> None:
    scripts = [(sizes[1], T) for _, sizes, blocks in _ring_cases.SCRIPTS for T in blocks]
    assert max(window for window, _ in scripts) == 1_000
    assert max(T for _, T in scripts) == 2_000


@pytest.mark.parametrize("at_once", ["lost", "short", "sinks", "long"])
def test_a_log_looked_at_query_by_query_is_refused(at_once: str) -> None:
    """The first query that shows this decides, whatever a later one shows."""

    def diagnose(window: int, passes: _ring_logs.Passes) -> str:
        queries = [seen for block in passes for seen in block]
        for n in range(1, min(len(queries), 50)):
            if ring_log.reference(window, [queries[:n]]) == at_once:
                return at_once
        return ring_log.reference(window, passes)

    refused_by_a_fixed_case("local_attention-ring_log", {"diagnose": diagnose})


def test_a_lost_key_before_a_future_one_is_no_loss() -> None:
    """Losses that no ring of one slot too few explains decide at once."""

    def diagnose(window: int, passes: _ring_logs.Passes) -> str:
        for p, seen in enumerate(s for block in passes for s in block):
            if any(s > p for s in seen):
                return "future"
            missing = set(_ring_logs.window_of(p, window)) - set(seen)
            if missing and not (p >= window - 1 and missing == {p - window + 1}):
                return "lost"
        return ring_log.reference(window, passes)

    refused_by_a_fixed_case("local_attention-ring_log", {"diagnose": diagnose})


class _SlotsOnce(ring.Right):
    """Its keys are right the first time that they are asked for after an append."""

    fresh = True

    @property
    def keys(self) -> torch.Tensor:
        first, self.fresh = self.fresh, False
        return self.held if first else torch.zeros_like(self.held)

    @keys.setter
    def keys(self, held: torch.Tensor) -> None:
        self.held, self.fresh = held, True

    def append(self, k: torch.Tensor, v: torch.Tensor) -> _ring_cases.Pair:
        self.fresh = True
        keys = self.keys
        found = (
            torch.cat([self.before(keys), k], dim=1),
            torch.cat([self.before(self.values), v], dim=1),
        )
        self.store(keys, k)
        self.store(self.values, v)
        self.length += k.shape[1]
        self.fresh = True
        return found


def test_slots_that_are_right_at_the_first_look_only_are_refused() -> None:
    refused_by_a_fixed_case("local_attention-ring", {"RingCache": _SlotsOnce})


class _AdoptsTheText(_prefill_rings.Right):
    """The first block's list is the text, to which the others are added."""

    text: list[int] | None = None

    def feed(self, tokens: list[int]) -> list[list[int]]:
        seen = super().feed(tokens)
        if self.text is None:
            self.text = tokens
        else:
            self.text += tokens
        return seen


class _AdoptsTheSlots(_prefill_rings.Right):
    """A block that fills the slots becomes their list."""

    def feed(self, tokens: list[int]) -> list[list[int]]:
        fits = len(tokens) == self.window and self.length % self.window == 0
        seen = super().feed(tokens)
        if fits:
            self.slots = tokens
        return seen


@pytest.mark.parametrize("adopts", [_AdoptsTheText, _AdoptsTheSlots])
def test_a_ring_that_goes_on_using_the_callers_list_is_refused(adopts: type) -> None:
    answer = {"Ring": adopts, "expose": prefill.expose}
    refused_by_a_fixed_case("local_attention-prefill", answer)
    verdict = judge(registry.load("local_attention-prefill"), answer)
    assert "went on to change what it had been given" in verdict.message
