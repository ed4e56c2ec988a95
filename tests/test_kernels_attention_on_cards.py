"""On a card the kernel that is asked for says what every other one says."""

import pytest
import torch
from device_tools import needs_a_card
from torch.nn.attention import SDPBackend, sdpa_kernel

from twophase.kernels import attention, attention_on_cards
from twophase.kernels.attention import causal_attention, naive_attention
from twophase.kernels.attention_on_cards import ROWS, few_heads, in_one_call, wants_split

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


def test_only_few_queries_of_fewer_heads_than_a_card_has_processors_are_split(monkeypatch):
    monkeypatch.setattr(attention_on_cards, "_processors", lambda device: 132)
    asked = {
        (heads, rows, device)
        for heads in (8, 131, 132, 512)
        for rows in (1, ROWS, ROWS + 1)
        for device in (CARD, torch.device("cpu"), torch.device("meta"))
        if few_heads(heads, rows, device)
    }
    assert asked == {(heads, rows, CARD) for heads in (8, 131) for rows in (1, ROWS)}


@pytest.mark.parametrize("scale", [None, 0.3])
def test_queries_that_are_split_come_without_a_mask_and_find_what_others_find(monkeypatch, scale):
    asked = []

    def split(q, k, v, scale):
        asked.append(tuple(q.shape))
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=scale)

    monkeypatch.setattr(attention, "wants_split", lambda q, k, v: True)
    monkeypatch.setattr(attention, "with_keys_split", split)
    q, k, v = draw(2, 1, 9, 6, 3, 8)
    out = causal_attention(q, k, v, scale=scale)
    torch.testing.assert_close(out, naive_attention(q, k, v, scale=scale))
    assert asked == [(2, 3, 2, 8)]
    mask = torch.ones(2, 1, 9, dtype=torch.bool)
    torch.testing.assert_close(causal_attention(q, k, v, scale=scale, mask=mask), out)
    causal_attention(*draw(1, 3, 9, 4, 2, 8))  # three queries at the end of a cache: a mask
    assert len(asked) == 1


@needs_a_card
@pytest.mark.parametrize("B", [1, 3, "many"])
@pytest.mark.parametrize("S", [1, 127, 1025])
@pytest.mark.parametrize("masked", [False, True])
def test_few_heads_and_many_of_them_read_the_same(B, S, masked):
    if B == "many":
        B = attention_on_cards._processors(CARD) // 2 + 1
    q, k, v = (x.bfloat16() for x in draw(B, 1, S, 4, 2, 64))
    mask = torch.arange(S)[None, None] % 3 < 2 if masked else None  # [1, 1, S]
    given = {} if mask is None else {"mask": mask.to(CARD)}
    out = causal_attention(*(x.to(CARD) for x in (q, k, v)), **given).cpu()
    wanted = causal_attention(q.double(), k.double(), v.double(), mask=mask)
    # inputs and outputs have 8 bits; weights do, too, inside of these kernels
    torch.testing.assert_close(out.double(), wanted, rtol=0.02, atol=0.02)


@needs_a_card
def test_a_kernel_that_a_caller_has_forbidden_is_not_called():
    q, k, v = (x.bfloat16().to(CARD).transpose(1, 2) for x in draw(1, 1, 64, 2, 2, 64))
    assert wants_split(q, k, v)
    with sdpa_kernel(SDPBackend.MATH):
        assert not wants_split(q, k, v)


@needs_a_card
def test_a_prompt_takes_the_kernel_behind_a_decode_step_that_it_takes_before_it():
    q, k, v = (x.bfloat16().to(CARD).transpose(1, 2) for x in draw(1, 256, 256, 8, 2, 128))
    prompt = {"attn_mask": None, "dropout_p": 0.0, "is_causal": True, "enable_gqa": True}
    before = torch._fused_sdp_choice(q, k, v, **prompt)
    causal_attention(*(x.transpose(1, 2) for x in (q[:, :, -1:], k, v)))
    assert torch._fused_sdp_choice(q, k, v, **prompt) == before
