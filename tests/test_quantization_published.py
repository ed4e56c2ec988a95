"""GPTQ's and AWQ's words, packed here number by number as their papers' code packs them."""

from __future__ import annotations

import pytest
import torch

from twophase.kernels.quantization.published import from_awq, from_gptq

I, O, GROUPS = 64, 16, 4


def word(codes: list[int], bits: int) -> int:
    """Codes in an int32, the first lowest."""
    value = sum(code << bits * j for j, code in enumerate(codes))
    return value - 2**32 if value >= 2**31 else value


def made(bits: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Codes [I, O], zero points [groups, O] from 1 on, scales, and the weights [O, I]."""
    codes = torch.randint(0, 2**bits, (I, O))
    zeros, scales = torch.randint(1, 2**bits, (GROUPS, O)), (torch.rand(GROUPS, O) + 0.1).half()
    g = torch.arange(I) // (I // GROUPS)
    return codes, zeros, scales, ((codes - zeros[g]) * scales[g].float()).T


def rows(numbers: torch.Tensor, bits: int, order: list[int] | None = None) -> torch.Tensor:
    """[n, O] as words along the outputs."""
    each = 32 // bits
    return torch.tensor(
        [
            [
                word([row[first + (order[j] if order else j)] for j in range(each)], bits)
                for first in range(0, len(row), each)
            ]
            for row in numbers.tolist()
        ],
        dtype=torch.int32,
    )


@pytest.mark.parametrize("minus_one", [True, False])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_a_gptq_layer_is_the_weights_that_it_stands_for(bits: int, minus_one: bool) -> None:
    codes, zeros, scales, weights = made(bits)
    qweight = rows(codes.T, bits).T.contiguous()
    qzeros = rows(zeros - int(minus_one), bits)
    g_idx = (torch.arange(I) // 16).int()
    found = from_gptq(qweight, qzeros, scales, bits, g_idx, minus_one)
    torch.testing.assert_close(found.decode(), weights)


def test_an_awq_layer_is_the_weights_that_it_stands_for() -> None:
    codes, zeros, scales, weights = made(4)
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    found = from_awq(rows(codes, 4, order), rows(zeros, 4, order), scales)
    torch.testing.assert_close(found.decode(), weights)


def test_layers_that_are_not_as_expected_are_refused() -> None:
    codes, zeros, scales, _ = made(4)
    qweight, qzeros = rows(codes.T, 4).T.contiguous(), rows(zeros, 4)
    with pytest.raises(ValueError, match="desc_act"):
        from_gptq(qweight, qzeros, scales, g_idx=torch.randperm(I))
    with pytest.raises(ValueError, match="2, 4 or 8 bits"):
        from_gptq(qweight, qzeros, scales, bits=3)
    with pytest.raises(ValueError, match="qzeros is int32"):
        from_gptq(qweight, qzeros[:2], scales)
    with pytest.raises(ValueError, match="scales"):
        from_awq(rows(codes, 4), qzeros, scales[:, :8])
    with pytest.raises(ValueError, match="qweight is int32"):
        from_awq(rows(codes, 4).long(), qzeros, scales)
