"""Products of a few tokens are those of each alone, and each finds what it sees, once."""

import numpy as np
import pytest
import torch
from test_kernels_compiled_widened import DTYPES, stored, whole_numbers

from twophase.kernels.attention import causal_attention
from twophase.kernels.compiled import several
from twophase.kernels.compiled.linear import norm_activate, norm_project, project_norm_add
from twophase.kernels.compiled.loops import as_numpy, inner
from twophase.kernels.compiled.several_attention import shared_work, turn_attend_several
from twophase.kernels.compiled.widened import STEP, arranged

NONE = np.zeros(0, np.float32)
EPS = np.float32(1e-5)


@inner
def products(w, begin, end, x, y, at):  # type: ignore[no-untyped-def]
    several.dots_each(w, begin, end, arranged(x, w), y, at)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [0, 1, STEP - 1, STEP, STEP + 1, 3 * STEP + 5])
@pytest.mark.parametrize("T", [1, 2, 3, 4, 5, 6, 7, 9, 16])
def test_any_run_of_rows_meets_every_token_and_nothing_beside_it_is_written(T, n, dtype):
    w, x = whole_numbers(0, 13, n), whole_numbers(1, T, n)  # sums are exact
    for begin, end in [(0, 13), (0, 4), (3, 3), (5, 12), (12, 13)]:
        y = np.full((T, 17), 7, np.float32)
        products(stored(w, dtype), begin, end, x, y, 2)
        expected = np.full((T, 17), 7, np.float32)
        expected[:, 2 : 2 + end - begin] = x @ w[begin:end].T
        assert y.tolist() == expected.tolist()


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def close(found: np.ndarray, expected: np.ndarray) -> None:
    """Sums of some dozens of numbers near 1, in another order."""
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("T", [1, 5])
@pytest.mark.parametrize("shift", [0, 1])
def test_a_product_of_several_tokens_is_that_of_one_for_each(T, parts, shift):
    D, F = 22, 37
    x, scale, bias = random(T, D), random(D), random(2 * F)
    shift = random(D + 1)[1:] if shift else NONE
    a, b, c = random(5, D), random(9, D), random(2, D)
    h, y, ys = np.empty(D, np.float32), np.empty(16, np.float32), np.empty((T, 16), np.float32)
    several.project_several.serial(x, scale, shift, EPS, a, b, c, bias[:16], ys, parts)
    for t in range(T):
        norm_project.serial(x[t], scale, shift, EPS, a, b, c, bias[:16], h, y, parts)
        close(ys[t], y)
    gate, up, between = random(F, D), random(F, D + 1)[:, 1:].copy(), np.empty(F, np.float32)
    for gates, kind in ((gate, 0), (gate, 1), (gate[:0], 2), (gate[:0], 3)):
        fs, given = np.empty((T, F), np.float32), bias if len(gates) else bias[:F]
        several.activate_several.serial(x, scale, shift, EPS, gates, up, given, kind, fs, parts)
        for t in range(T):
            norm_activate.serial(x[t], scale, shift, EPS, gates, up, given, kind, h, between, parts)
            close(fs[t], between)
    down, scratch, ours, plain = random(D, F), np.empty(D, np.float32), x.copy(), x.copy()
    several.add_norm_several.serial(down, bias[:D], fs, scale, shift, EPS, ours, parts)
    for t in range(T):
        given = down, bias[:D], fs[t], scale, shift, EPS
        project_norm_add.serial(*given, scratch, plain[t], parts)
    close(ours, plain)


@pytest.mark.parametrize("window", [0, 1, 2, 5, 9, 30])
@pytest.mark.parametrize("T", [1, 2, 5])
@pytest.mark.parametrize("workers", [1, 2])
def test_every_token_of_the_store_that_a_query_sees_is_listed_once(T, window, workers):
    for start in range(23):
        slots = max(1, min(window + 3, start)) if window else 24  # a ring with three to spare
        shared, tasks, own, firsts = shared_work(start, T, slots, window, 64, workers)
        listed = [block for _, begin, end in tasks for block in range(begin, end)]
        assert listed == [*range(len(shared))]
        for t in range(T):
            blocks = [*shared.tolist(), *own[firsts[t] : firsts[t + 1]].tolist()]
            seen = sorted(first + i for first, n in blocks for i in range(n))
            begin = max(0, start + t + 1 - window) if window else 0
            assert seen == sorted(p % slots for p in range(begin, start))


def test_what_only_short_windows_see_is_read_in_blocks_and_not_token_by_token():
    _, _, own, firsts = shared_work(4096, 16, 4112, 16, 4096, 1)
    assert own[:, 1].sum() == 15 * 16 // 2
    assert len(own) == firsts[-1] == 15


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("N", "K", "H"), [(6, 2, 10), (4, 1, 64), (3, 3, 33), (16, 2, 32)])
@pytest.mark.parametrize("window", [None, 1, 7, 40])
def test_several_queries_find_what_causal_attention_finds(N, K, H, window, dtype):
    generator = torch.Generator().manual_seed(N)
    for start, T in ((0, 3), (1, 2), (19, 5), (70, 8)):
        qkv = torch.randn(T, (N + 2 * K) * H, generator=generator)
        old = torch.randn(2, start + T, K, H, generator=generator).to(dtype)
        store, new = old.clone(), torch.empty(2, T, K, H, dtype=dtype)
        store[:, start:] = torch.nan  # which nobody may read
        found = np.empty((T, N, H), np.float32)
        k, v = map(as_numpy, store)
        turn_attend_several.serial(
            qkv.numpy(), N, NONE, NONE, EPS, False, np.float32(0.3), np.zeros((T, 0), np.float32),
            np.zeros((T, 0), np.float32), *map(as_numpy, new), k, v,
            *shared_work(start, T, len(k), window or 0, k.strides[0], 1), window or 0, 0.0, found,
        )  # fmt: skip
        q, *ours = qkv.view(T, -1, H).split([N, K, K], dim=1)  # [T, heads, H]
        assert all(torch.equal(a, b.to(dtype)) for a, b in zip(new, ours, strict=True))
        keys, values = (
            torch.cat([held[:start], x])[None].float() for held, x in zip(old, new, strict=True)
        )
        expected = causal_attention(q[None], keys, values, window=window, scale=0.3)[0]
        # pairs of bf16: queries and weights are rounded to 2**-9 of themselves
        near = 2e-5 if dtype == torch.float32 else 2e-2
        torch.testing.assert_close(torch.from_numpy(found), expected, rtol=near, atol=near)
