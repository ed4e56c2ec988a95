"""Attention over pages is attention over what they hold, in order."""

import pytest
import torch

from twophase.kernels.attention import causal_attention
from twophase.kernels.latent_attention import attend_latents
from twophase.kernels.paging import FlatSpan, PagedKV, PagedLatents

N, K, H, SIZE = 6, 2, 5, 4
# held and new: a lone first token, the last of a block, the first of the next, chunks, a prompt
STARTS, NEW = (0, 7, 8, 3, 0), (1, 1, 1, 6, 9)
TABLES = ((5,), (2, 9), (7, 1, 0), (3, 4, 8), (10, 6, 11))


def span() -> FlatSpan:
    return FlatSpan(STARTS, NEW, TABLES, (0, 1, 2, 3, 4), SIZE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("options", [{}, {"window": 3}, {"softcap": 5.0}, {"scale": 0.1}])
def test_each_sequence_finds_what_it_would_alone(dtype: torch.dtype, options: dict) -> None:
    torch.manual_seed(0)
    pool, flat = PagedKV(12, SIZE, K, H, dtype), span()
    pool.fill_with_noise()  # blocks are never empty: others left something there
    q = torch.randn(1, flat.T, N, H, dtype=torch.float64 if dtype == torch.float64 else None)
    k, v = (torch.randn(1, flat.T, K, H).to(dtype) for _ in range(2))
    pool.write(k, v, flat)
    found = pool.attend(q, flat, **options)
    for i, part in enumerate(flat.parts):
        rows = [t * SIZE + p for t in TABLES[i] for p in range(SIZE)][: flat.ends[i]]
        keys, values = (held.flatten(0, 1)[rows][None] for held in pool.held)
        assert torch.equal(keys[:, STARTS[i] :], k[:, part])
        alone = causal_attention(q[:, part], keys.to(q.dtype), values.to(q.dtype), **options)
        # bf16 stores are read exactly; sums of 9 terms in another order, in fp32
        torch.testing.assert_close(found[:, part], alone, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_latents_in_pages_are_latents(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    R, rope = 8, 3
    pool, flat = PagedLatents(12, SIZE, R, rope, dtype), span()
    pool.fill_with_noise()
    latent, key = torch.randn(1, flat.T, R).to(dtype), torch.randn(1, flat.T, rope).to(dtype)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    q, q_rope = (torch.randn(1, flat.T, N, width, dtype=wide) for width in (R, rope))
    pool.write(latent, key, flat)
    found = pool.attend(q, q_rope, flat, scale=0.3)
    bound = 1e-12 if dtype == torch.float64 else 1e-5  # sums of 12 terms in another order, in fp32
    for i, part in enumerate(flat.parts):
        rows = [t * SIZE + p for t in TABLES[i] for p in range(SIZE)][: flat.ends[i]]
        held = [x.flatten(0, 1)[rows][None].to(wide) for x in pool.held]
        alone = attend_latents(q[:, part], q_rope[:, part], *held, scale=0.3)
        torch.testing.assert_close(found[:, part], alone, rtol=bound, atol=bound)


def test_what_lies_side_by_side_is_read_where_it_is() -> None:
    flat = FlatSpan((3, 5, 0), (6, 3, 5), ((4, 5, 6), (1, 0), (7, 9)), (0, 1, 2), SIZE)
    pool = PagedKV(10, SIZE, K, H)
    pool.fill_with_noise()
    for i, (first, copied) in enumerate([(0, False), (0, True), (4, False)]):
        found = pool.gather(pool.keys, flat, i, first)
        rows = [flat.tables[i][p // SIZE] * SIZE + p % SIZE for p in range(first, flat.ends[i])]
        assert torch.equal(found[0], pool.keys.flatten(0, 1)[rows])
        shared = found.untyped_storage().data_ptr() == pool.keys.untyped_storage().data_ptr()
        assert shared != copied


def test_a_flat_span_says_where_tokens_go() -> None:
    flat = FlatSpan((3, 0), (2, 3), ((1, 4), (2,)), (0, 1), 4)
    assert flat.slot_mapping.tolist() == [1 * 4 + 3, 4 * 4, 8, 9, 10]
    assert flat.positions.tolist() == [[3, 4, 0, 1, 2]]


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        (((0,), (0,), ((1,),), (0,)), "brings at least one token"),
        (((3,), (2,), ((1,),), (0,)), "5 tokens does not fit into its 1 blocks of 4"),
        (((0,), (1, 1), ((1,),), (0,)), "a start, a count, a table and a slot"),
    ],
)
def test_a_span_that_does_not_fit_is_refused(fields: tuple, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        FlatSpan(*fields, 4)
