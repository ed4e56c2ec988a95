"""The trained form of attention: the same numbers and the same gradients as the plain form."""

import pytest
import torch

from twophase.kernels.attention import causal_attention, naive_attention
from twophase.kernels.attention_training import BLOCK, attention_with_gradient


def heads(T: int, N: int, K: int, H: int, Hv: int) -> list[torch.Tensor]:
    torch.manual_seed(T)
    shapes = [(2, T, N, H), (2, T, K, H), (2, T, K, Hv)]
    return [torch.randn(s, dtype=torch.float64, requires_grad=True) for s in shapes]


@pytest.mark.parametrize("T", [1, 7, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 3])
@pytest.mark.parametrize("window", [None, 1, 5, BLOCK + 2])
def test_output_and_gradients_equal_those_of_naive_attention(T, window):
    q, k, v = heads(T, N=6, K=2, H=4, Hv=3)
    out = attention_with_gradient(q, k, v, window=window, scale=0.7)
    weight = torch.randn_like(out)
    ours = torch.autograd.grad((out * weight).sum(), (q, k, v))
    plain = naive_attention(q, k, v, window=window, scale=0.7)
    theirs = torch.autograd.grad((plain * weight).sum(), (q, k, v))
    torch.testing.assert_close(out, plain)
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("T", [3, BLOCK + 1])
def test_without_a_mask_every_query_sees_every_key(T):
    q, k, v = heads(T, N=2, K=1, H=4, Hv=4)
    out = attention_with_gradient(q, k, v, window=None, scale=0.5, causal=False)
    theirs = torch.nn.functional.scaled_dot_product_attention(
        *(x.transpose(1, 2) for x in (q, k.repeat_interleave(2, 2), v.repeat_interleave(2, 2))),
        scale=0.5,
    ).transpose(1, 2)
    torch.testing.assert_close(out, theirs)
    ours, plain = (torch.autograd.grad(x.square().sum(), (q, k, v)) for x in (out, theirs))
    torch.testing.assert_close(ours, plain)


def test_the_gradient_is_that_of_finite_differences():
    q, k, v = heads(5, N=2, K=1, H=3, Hv=2)
    assert torch.autograd.gradcheck(
        lambda *x: attention_with_gradient(*x, window=3, scale=0.9), (q, k, v)
    )


@pytest.mark.parametrize("window", [None, 5])
def test_training_in_bf16_takes_this_path_and_learns_what_fp32_learns(window):
    q, k, v = (x.detach().float().requires_grad_() for x in heads(40, N=4, K=2, H=8, Hv=8))
    halves = [x.detach().bfloat16().requires_grad_() for x in (q, k, v)]
    out = causal_attention(*halves, window=window)
    assert "_Attention" in walk(out.grad_fn)
    wide = causal_attention(q, k, v, window=window)
    assert "_Attention" not in walk(wide.grad_fn)
    ours = torch.autograd.grad(out.float().square().sum(), halves)
    theirs = torch.autograd.grad(wide.square().sum(), (q, k, v))
    for a, b in zip(
        ours, theirs, strict=True
    ):  # bf16 rounds every number by up to 0.4%, and sums of forty of them
        assert float((a.float() - b).norm() / b.norm()) < 0.03


def walk(node: object) -> str:
    """The names of all steps behind a result."""
    names, todo = [], [node]
    while todo:
        node = todo.pop()
        names.append(type(node).__name__)
        todo += [before for before, _ in node.next_functions if before is not None]
    return " ".join(names)
