"""Products of bf16 that are taken in fp32 are those that the processor would take, forward and
backward, eager and compiled; and all others are left alone."""

import warnings
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional

from twophase.models import bf16_products, corpus
from twophase.models.bf16_products import multiplies_bf16, products_in_fp32
from twophase.models.family import FAMILY
from twophase.models.recipe import Recipe
from twophase.models.trainer import Trainer

# A sum of n products in another order, then one rounding to bf16: to the next bf16 at most.
BF16 = 2**-7


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).bfloat16()


CASES = {
    "mm": lambda: torch.mm(numbers(17, 33), numbers(33, 5)),
    "mm, out": lambda: torch.mm(numbers(17, 33), numbers(33, 5), out=numbers(17, 5)),
    "bmm": lambda: torch.bmm(numbers(3, 17, 33), numbers(3, 33, 5)),
    "bmm, out": lambda: torch.bmm(numbers(3, 1, 33), numbers(3, 33, 5), out=numbers(3, 1, 5)),
    "addmm": lambda: torch.addmm(numbers(5), numbers(17, 33), numbers(33, 5), beta=2, alpha=3),
    "addmm, out": lambda: torch.addmm(
        numbers(5), numbers(17, 33), numbers(33, 5), out=numbers(17, 5)
    ),
    "baddbmm": lambda: torch.baddbmm(
        numbers(3, 17, 5), numbers(3, 17, 33), numbers(3, 33, 5), alpha=0.5
    ),
    "linear": lambda: functional.linear(numbers(2, 3, 33), numbers(5, 33), numbers(5)),
    "an outer product": lambda: numbers(4, 1) @ numbers(1, 6),
    "no inputs": lambda: torch.mm(numbers(4, 0), numbers(0, 6)),
}


@pytest.mark.parametrize("name", CASES)
def test_every_product_is_torchs_up_to_one_place(name):
    with products_in_fp32(needed=True):
        found = CASES[name]()
    plain = CASES[name]()
    assert found.dtype == plain.dtype == torch.bfloat16
    assert (found.float() - plain.float()).abs().max() <= BF16 * plain.float().abs().max()


def test_products_in_fp32_and_fp64_are_torchs_own_to_the_bit():
    for dtype in (torch.float32, torch.float64):
        a, b = numbers(17, 33).to(dtype), numbers(33, 5).to(dtype)
        own = a @ b, torch.addmm(b[0], a, b), torch.mm(a, b, out=torch.empty(17, 5, dtype=dtype))
        with products_in_fp32(needed=True):
            meanwhile = a @ b, torch.addmm(b[0], a, b), torch.mm(a, b, out=torch.empty_like(own[0]))
        assert all(map(torch.equal, own, meanwhile))


MIXED = {
    "mm": lambda: torch.mm(numbers(4, 3).float(), numbers(3, 2)),
    "addmm": lambda: torch.addmm(numbers(2).float(), numbers(4, 3), numbers(3, 2)),
    "linear": lambda: functional.linear(numbers(4, 3).double(), numbers(2, 3)),
    "out": lambda: torch.mm(numbers(4, 3), numbers(3, 2), out=torch.empty(4, 2)),
    "shapes": lambda: torch.bmm(numbers(1, 4, 3), numbers(1, 4, 3)),
}


@pytest.mark.parametrize("name", MIXED)
def test_what_torch_refuses_is_refused_in_torchs_words(name):
    with pytest.raises(RuntimeError) as own:
        MIXED[name]()
    with products_in_fp32(needed=True), pytest.raises(RuntimeError) as meanwhile:
        MIXED[name]()
    assert str(meanwhile.value) == str(own.value)


def test_an_out_is_filled_where_it_lies_and_one_that_does_not_fit_is_resized_as_torch_does():
    a, b = numbers(17, 33), numbers(33, 5)
    wide = torch.zeros(17, 10, dtype=torch.bfloat16)
    with products_in_fp32(needed=True):
        product = a @ b
        for out in (wide[:, ::2], torch.empty(5, 17, dtype=torch.bfloat16).T):
            assert torch.mm(a, b, out=out) is out
            assert torch.equal(out, product)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of the last two
            for shape in ((0,), (4, 4), (3, 17, 5)):
                out = torch.empty(shape, dtype=torch.bfloat16)
                assert torch.mm(a, b, out=out).shape == (17, 5)
    assert not wide[:, 1::2].any()


def test_where_torch_has_no_onednn_or_only_widens_there_are_no_products_of_bf16(monkeypatch):
    multiplies_bf16.cache_clear()
    answers = []
    for ops, known in (
        (SimpleNamespace(), ("+avx512bf16",)),
        (SimpleNamespace(_is_mkldnn_bf16_supported=lambda: False), ("+avx512bf16",)),
        (SimpleNamespace(_is_mkldnn_bf16_supported=lambda: True), ("+avx512f",)),
        (SimpleNamespace(_is_mkldnn_bf16_supported=lambda: True), ("+avx512f", "+avx512bf16")),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(torch.ops, "mkldnn", ops)
            patch.setattr(bf16_products, "features", lambda known=known: known)
            patch.setattr(bf16_products.platform, "machine", lambda: "x86_64")
            answers.append(multiplies_bf16())
        multiplies_bf16.cache_clear()
    assert answers == [False, False, False, True]


def test_it_lasts_until_the_last_one_leaves():
    first, second = (products_in_fp32(needed=True) for _ in range(2))
    before = str(torch._C._dispatch_dump("aten::mm"))
    with first:
        second.__enter__()
    assert str(torch._C._dispatch_dump("aten::mm")) != before
    second.__exit__(None, None, None)
    assert str(torch._C._dispatch_dump("aten::mm")) == before


def test_where_it_is_not_needed_and_afterwards_nothing_is_changed():
    def kernel() -> str:
        return str(torch._C._dispatch_dump("aten::mm"))

    before = kernel()
    with products_in_fp32(needed=False):
        assert kernel() == before
    with products_in_fp32(needed=True):
        changed = kernel()
        assert changed != before
        with products_in_fp32(needed=True):  # within another
            assert kernel() == changed
        assert kernel() == changed
    assert kernel() == before
    with pytest.raises(RuntimeError, match="shapes cannot be"), products_in_fp32(needed=True):
        torch.mm(numbers(2, 3), numbers(4, 5))
    assert kernel() == before


@pytest.mark.parametrize("name", ["gqa", "sliding", "mla", "linear", "ssm", "moe", "diffusion"])
def test_a_step_of_training_has_the_loss_and_the_gradients_of_products_in_bf16(name):
    data, found = corpus.load("train")[:20_000], []
    for needed in (False, True):
        trainer = Trainer(FAMILY[name], Recipe(n_tokens=8192, B=2), data, "cpu")
        with products_in_fp32(needed=needed):
            loss = trainer.step()
        found.append((loss, {n: p.grad for n, p in trainer.model.named_parameters()}))
    (loss, gradients), (other, others) = found
    assert abs(loss - other) < 2e-3
    for n, gradient in gradients.items():
        if gradient is not None:
            apart = (gradient - others[n]).norm() / gradient.norm()
            assert apart < 0.05, n  # both are rounded to 8 bits, often


@pytest.mark.more
def test_compiled_steps_take_them_too():
    data, losses = corpus.load("train")[:20_000], []
    for compiled in (False, True):
        trainer = Trainer(FAMILY["gqa"], Recipe(n_tokens=8192, B=2), data, "cpu")
        with products_in_fp32(needed=True):
            if compiled and not trainer.compile():
                pytest.skip("torch compiles nothing here")
            losses.append(float(trainer.step()))
    assert abs(losses[0] - losses[1]) < 2e-3
