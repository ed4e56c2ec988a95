"""RoPE: relative positions, both pairings, absolute offsets."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from twophase.kernels.rope import apply_rope, rope_tables


def turn(x: torch.Tensor, position: int, pairing: str = "half", theta: float = 10_000.0) -> torch.Tensor:
    H = x.shape[-1]
    return apply_rope(x.view(1, 1, 1, H), *rope_tables(torch.tensor([position]), H, theta), pairing=pairing).flatten()


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 5000), st.integers(0, 5000), st.integers(0, 5000), st.sampled_from(["half", "interleaved"]))
def test_products_depend_on_the_difference_of_positions_only(a, b, shift, pairing):
    g = torch.Generator().manual_seed(a + b)
    q, k = torch.randn(2, 10, generator=g, dtype=torch.float64)
    here = turn(q, a, pairing) @ turn(k, b, pairing)
    there = turn(q, a + shift, pairing) @ turn(k, b + shift, pairing)
    torch.testing.assert_close(here, there, rtol=0, atol=1e-5)  # the tables are fp32


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_rope_is_the_complex_rotation_of_the_paper(pairing):
    H, position, theta = 8, 7, 500.0
    x = torch.randn(H, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    pairs = torch.complex(x[: H // 2], x[H // 2 :]) if pairing == "half" else torch.complex(x[0::2], x[1::2])
    angles = torch.tensor([position * theta ** (-2 * i / H) for i in range(H // 2)], dtype=torch.float64)
    turned = pairs * torch.polar(torch.ones_like(angles), angles)
    parts = [turned.real, turned.imag]
    expected = torch.cat(parts) if pairing == "half" else torch.stack(parts, dim=-1).flatten()
    torch.testing.assert_close(turn(x, position, pairing, theta), expected, rtol=1e-6, atol=1e-6)


def test_the_two_pairings_differ_by_a_permutation_and_are_not_the_same():
    x = torch.randn(8, generator=torch.Generator().manual_seed(1))
    order = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7])  # interleaved → half
    torch.testing.assert_close(turn(x, 3, "interleaved")[order], turn(x[order], 3, "half"))
    assert not torch.allclose(turn(x, 3, "interleaved"), turn(x, 3, "half"))


def test_position_zero_turns_nothing_and_lengths_are_kept():
    x = torch.randn(6, generator=torch.Generator().manual_seed(2))
    assert torch.equal(turn(x, 0), x)
    torch.testing.assert_close(turn(x, 1234).norm(), x.norm())


def test_a_table_that_starts_at_an_offset_is_the_tail_of_the_whole_table():
    whole, tail = rope_tables(torch.arange(20), 6), rope_tables(torch.arange(13, 20), 6)
    assert torch.equal(whole[0][13:], tail[0])
    assert torch.equal(whole[1][13:], tail[1])


def test_sequences_at_different_positions_are_turned_each_by_its_own():
    x = torch.randn(2, 3, 2, 4, generator=torch.Generator().manual_seed(3))
    positions = torch.tensor([[5, 6, 7], [0, 1, 2]])
    together = apply_rope(x, *rope_tables(positions, 4))
    for b in range(2):
        assert torch.equal(together[b : b + 1], apply_rope(x[b : b + 1], *rope_tables(positions[b], 4)))


def test_an_odd_width_and_an_unknown_pairing_are_refused():
    with pytest.raises(ValueError, match="must be even; it is 5"):
        rope_tables(torch.arange(2), 5)
    with pytest.raises(ValueError, match='"half" or "interleaved"; got "neox"'):
        turn(torch.zeros(4), 1, "neox")
