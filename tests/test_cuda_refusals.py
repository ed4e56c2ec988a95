"""What runs on the CPU only says so of tensors on a card, and what lies on two devices is refused:
one sentence each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from device_tools import CARD, needs_a_card

from twophase.kernels.attention import causal_attention
from twophase.kernels.compiled.attention import (
    compiled_attention,
    compiled_paged_attention,
)
from twophase.kernels.compiled.codes import pack_for_loops
from twophase.kernels.compiled.loops import as_numpy
from twophase.kernels.compiled.quantized import quantized_matvec
from twophase.kernels.compiled.quantized_tokens import quantized_product
from twophase.kernels.grouped_experts import run_grouped
from twophase.kernels.matvec import matvec, quantize_rows
from twophase.kernels.quantization.integers import IntegerFormat, encode
from twophase.kernels.state_space_compiled import compiled_scan
from twophase.models import checkpoints
from twophase.models.compiled import CompiledTransformer
from twophase.models.generate import complete
from twophase.models.speculative_decoding import ModelDrafter
from twophase.models.transformer import Transformer

pytestmark = needs_a_card


def on(*shape: int, device: str = CARD) -> torch.Tensor:
    return torch.ones(shape, device=device)


def counts(*numbers: int, device: str = CARD) -> torch.Tensor:
    return torch.tensor(numbers, device=device)


def codes(device: str) -> Any:
    return encode(on(4, 64, device=device), IntegerFormat(4, 32))


CPU_ONLY: dict[str, Callable[[], Any]] = {
    "a matrix times a vector": lambda: matvec(on(3, 4), on(4)),
    "a matrix on the card alone": lambda: matvec(on(3, 4), on(4, device="cpu")),
    "int8": lambda: matvec(quantize_rows(on(3, 4))[0], on(4), on(3)),
    "a scan": lambda: compiled_scan(
        on(1, 3, 2), on(1, 3, 2), -on(2, 2), on(1, 3, 2), on(1, 3, 2), on(2)
    ),
    "experts": lambda: run_grouped(
        on(2, 4), counts(0, 1).view(2, 1), on(2, 1), on(2, 3, 4), on(2, 3, 4), on(2, 4, 3)
    ),
    "attention": lambda: compiled_attention(
        on(1, 1, 2, 4), on(1, 5, 1, 4), on(1, 5, 1, 4), counts(3)
    ),
    "pages": lambda: compiled_paged_attention(
        on(1, 1, 2, 4), on(2, 5, 1, 4), on(2, 5, 1, 4), counts(0).view(1, 1), counts(3)
    ),
    "a table of pages": lambda: compiled_paged_attention(
        *(on(*shape, device="cpu") for shape in ((1, 1, 2, 4), (2, 5, 1, 4), (2, 5, 1, 4))),
        counts(0).view(1, 1),
        counts(3, device="cpu"),
    ),
    "codes": lambda: pack_for_loops(codes(CARD)),
    "a token and codes": lambda: quantized_matvec(pack_for_loops(codes("cpu")), on(64)),
    "tokens and codes": lambda: quantized_product(pack_for_loops(codes("cpu")), on(3, 64)),
    "numbers for loops": lambda: as_numpy(on(3)),
}


@pytest.mark.parametrize("name", CPU_ONLY)
def test_what_loops_in_numba_refuses_a_card_in_a_sentence(name: str) -> None:
    with pytest.raises(ValueError, match=r"CPU") as refused:
        CPU_ONLY[name]()
    assert "\n" not in str(refused.value)


@pytest.fixture(scope="module")
def models() -> tuple[Transformer, Transformer]:
    return checkpoints.load("gqa", device=CARD), checkpoints.load("gqa")


def test_the_compiled_path_refuses_a_model_on_the_card(models: tuple[Transformer, ...]) -> None:
    says = "the compiled path runs on the CPU, and this model is on cuda"
    with pytest.raises(ValueError, match=says):
        CompiledTransformer(models[0])
    with pytest.raises(ValueError, match=says):
        complete(models[0], [1, 2], 2, path="compiled")
    with pytest.raises(ValueError, match=says):
        ModelDrafter(models[0], path="compiled")


def test_the_compiled_path_refuses_a_cache_on_the_card(models: tuple[Transformer, ...]) -> None:
    for B in (1, 2):
        compiled = CompiledTransformer(models[1])
        with pytest.raises(ValueError, match="this cache is on cuda"), torch.inference_mode():
            compiled(torch.zeros(B, 1, dtype=torch.int64), models[0].new_cache(B, 8))


def test_a_model_reads_tokens_and_a_cache_that_are_where_it_is(
    models: tuple[Transformer, ...],
) -> None:
    card, cpu = models
    tokens = torch.tensor([[1, 2, 3]])
    for model, device, other in ((card, CARD, "cpu"), (cpu, "cpu", CARD)):
        with pytest.raises(ValueError, match=r"tokens on \S+ for a model on"):
            model(tokens.to(other))
        cache = (cpu if model is card else card).new_cache(1, 8)
        with pytest.raises(ValueError, match=r"a cache on \S+ for a model on"):
            model(tokens.to(device), cache)
        with pytest.raises(ValueError, match=r"positions on \S+ for tokens on"):
            model(tokens.to(device), positions=torch.arange(3, device=other))
    assert cache.lengths == (0,)
    q, k = on(1, 2, 2, 4), on(1, 2, 1, 4, device="cpu")
    with pytest.raises(ValueError, match="floating-point tensors on one device"):
        causal_attention(q, k, k)
    mask = torch.ones(1, 2, 2, dtype=torch.bool)
    with pytest.raises(ValueError, match="a mask is a bool tensor on the device of q"):
        causal_attention(q, k.to(CARD), k.to(CARD), mask=mask)
