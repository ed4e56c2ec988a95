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


@pytest.mark.parametrize("outside", [None, *SDPBackend.__members__.values()])
def test_torch_is_left_with_the_kernels_and_the_order_it_had_before(monkeypatch, outside):
    """An order that was set inside of a caller's choice would stay: the next prompt would be
    computed with stored scores."""
    monkeypatch.setattr(attention_on_cards, "_processors", lambda device: 132)
    order, allowed = torch._C._get_sdp_priority_order(), _allowed()
    chosen = nullcontext() if outside in (None, SDPBackend.ERROR) else sdpa_kernel(outside)
    with chosen, kernels_that_split(2, CARD):
        assert torch._C._get_sdp_priority_order() == order
    assert torch._C._get_sdp_priority_order() == order
    assert _allowed() == allowed


def test_only_cudnns_kernel_is_left_out(monkeypatch):
    monkeypatch.setattr(attention_on_cards, "_processors", lambda device: 132)
    with kernels_that_split(2, CARD):
        assert _allowed() == {"flash", "mem_efficient", "math"}
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION), kernels_that_split(2, CARD):
        assert _allowed() == {"cudnn"}


def _allowed() -> set[str]:
    names = ("flash", "cudnn", "mem_efficient", "math")
    return {name for name in names if getattr(torch.backends.cuda, f"{name}_sdp_enabled")()}


def test_a_kernel_that_a_caller_has_forbidden_stays_forbidden(monkeypatch):
    monkeypatch.setattr(attention_on_cards, "_processors", lambda device: 132)
    with sdpa_kernel(SDPBackend.MATH), kernels_that_split(2, CARD):
        assert _allowed() == {"math"}
    assert "flash" in _allowed()


@needs_a_card
@pytest.mark.parametrize(("B", "K"), [(1, 2), (3, 8), (67, 2)])
@pytest.mark.parametrize("S", [1, 127, 1025])
def test_few_heads_and_many_of_them_read_the_same(B, K, S):
    q, k, v = (x.bfloat16() for x in draw(B, 1, S, 2 * K, K, 64))
    out = causal_attention(*(x.to(CARD) for x in (q, k, v))).cpu()
    wanted = naive_attention(q.double(), k.double(), v.double())
    # inputs and outputs have 8 bits; weights do, too, inside of these kernels
    torch.testing.assert_close(out.double(), wanted, rtol=0.02, atol=0.02)


@needs_a_card
def test_a_prompt_takes_the_kernel_behind_a_decode_step_that_it_takes_before_it():
    q, k, v = (x.bfloat16().to(CARD).transpose(1, 2) for x in draw(1, 256, 256, 8, 2, 128))
    prompt = {"attn_mask": None, "dropout_p": 0.0, "is_causal": True, "enable_gqa": True}
    before = torch._fused_sdp_choice(q, k, v, **prompt)
    with sdpa_kernel(SDPBackend.MATH):
        causal_attention(*(x.transpose(1, 2) for x in (q[:, :, -1:], k, v)))
    causal_attention(*(x.transpose(1, 2) for x in (q[:, :, -1:], k, v)))
    assert torch._fused_sdp_choice(q, k, v, **prompt) == before
