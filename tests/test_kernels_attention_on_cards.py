"""On a card the kernel that is asked for says what every other one says."""

from contextlib import nullcontext

import pytest
import torch
from device_tools import needs_a_card
from torch.nn.attention import SDPBackend, sdpa_kernel

from twophase.kernels import attention_on_cards
from twophase.kernels.attention import causal_attention, naive_attention
from twophase.kernels.attention_on_cards import in_one_call, kernels_that_split

CARD = torch.device("cuda")


def draw(B: int, T: int, S: int, N: int, K: int, H: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(B, T, N, H), (B, S, K, H), (B, S, K, H)]
    return tuple(torch.randn(shape, generator=generator) for shape in shapes)


@pytest.mark.parametrize(("N", "K"), [(6, 3), (4, 1), (3, 3)])
def test_one_call_for_all_groups_says_what_a_call_for_each_member_says(N, K):
    """A card takes it; here torch computes it without a kernel that knows of groups."""
    q, k, v = draw(2, 9, 9, N, K, 8)
    out = in_one_call(q, k.transpose(1, 2), v.transpose(1, 2), 0.3)
    torch.testing.assert_close(out, naive_attention(q, k, v, scale=0.3))
    torch.testing.assert_close(out, causal_attention(q, k, v, scale=0.3))


def test_only_a_card_with_more_processors_than_heads_is_asked_to_split_them(monkeypatch):
    monkeypatch.setattr(attention_on_cards, "_processors", lambda device: 132)
    asked = {
        (heads, device): not isinstance(kernels_that_split(heads, device), nullcontext)
        for heads in (8, 131, 132, 512)
        for device in (CARD, torch.device("cpu"), torch.device("meta"))
    }
    assert {key for key, split in asked.items() if split} == {(8, CARD), (131, CARD)}


def test_what_torch_takes_first_is_as_before_behind_such_a_call(monkeypatch):
    monkeypatch.setattr(attention_on_cards, "_processors", lambda device: 132)
    q, k, v = draw(1, 4, 4, 2, 2, 8)
    before = torch._C._get_sdp_priority_order()
    with kernels_that_split(2, CARD):
        assert torch._C._get_sdp_priority_order() != before
        inside = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    assert torch._C._get_sdp_priority_order() == before
    torch.testing.assert_close(inside, torch.nn.functional.scaled_dot_product_attention(q, k, v))


def test_a_kernel_that_a_caller_has_forbidden_stays_forbidden(monkeypatch):
    monkeypatch.setattr(attention_on_cards, "_processors", lambda device: 132)
    with sdpa_kernel(SDPBackend.MATH), kernels_that_split(2, CARD):
        assert torch.backends.cuda.math_sdp_enabled()
        assert not torch.backends.cuda.flash_sdp_enabled()
        assert not torch.backends.cuda.cudnn_sdp_enabled()
        assert not torch.backends.cuda.mem_efficient_sdp_enabled()
    assert torch.backends.cuda.flash_sdp_enabled()


@needs_a_card
@pytest.mark.parametrize(("B", "K"), [(1, 2), (3, 8), (67, 2)])
@pytest.mark.parametrize("S", [1, 127, 1025])
def test_few_heads_and_many_of_them_read_the_same(B, K, S):
    q, k, v = (x.bfloat16() for x in draw(B, 1, S, 2 * K, K, 64))
    out = causal_attention(*(x.to(CARD) for x in (q, k, v))).cpu()
    wanted = naive_attention(q.double(), k.double(), v.double())
    # inputs and outputs have 8 bits; weights do, too, inside of these kernels
    torch.testing.assert_close(out.double(), wanted, rtol=0.02, atol=0.02)
