"""Laws on a card are drawn from by a generator on either side, and drafts judged and masks revealed
as on the CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from device_tools import CARD, needs_a_card, same_on_a_card

from twophase.kernels.diffusion import (
    counted_loss,
    diffusion_loss,
    mask_exactly,
    mask_tokens,
    stratified_times,
    unmask,
)
from twophase.kernels.sampling import sample
from twophase.kernels.speculative_decoding import ROOT, chain, residual, verify, verify_tree

pytestmark = needs_a_card
n = torch.randn
ORDERS = ("ancestral", "confidence")


def test_a_generator_on_either_side_draws_from_logits_on_the_card() -> None:
    logits = torch.arange(20.0).flip(0) / 3
    on_card = logits.to(CARD)
    drawn = []
    for given in (logits, on_card):
        generator = torch.Generator().manual_seed(3)
        drawn.append([sample(given, 1.0, 8, 0.95, generator=generator) for _ in range(40)])
    assert drawn[0] == drawn[1]  # the law goes to the generator
    assert len(set(drawn[0])) > 2
    generator = torch.Generator(CARD).manual_seed(3)
    own = [sample(on_card, 1.0, 8, 0.95, generator=generator) for _ in range(40)]
    assert set(own) <= set(range(8))
    assert len(set(own)) > 2
    assert [sample(on_card, 1.0, 8) in range(8) for _ in range(4)] == [True] * 4
    assert sample(on_card, 0) == 0


LAWS = [[0.5, 0.3, 0.2, 0.0], [0.1, 0.2, 0.3, 0.4], [0.25, 0.25, 0.25, 0.25]]
DRAFTED = [[0.2, 0.6, 0.1, 0.1], [0.4, 0.1, 0.4, 0.1]]


@pytest.mark.parametrize("seed", range(4))
def test_a_draft_is_judged_alike(seed: int) -> None:
    def judged(target: torch.Tensor, draft: torch.Tensor) -> Any:
        dice = torch.Generator().manual_seed(seed)

        def choose(probs: torch.Tensor) -> int:
            return int(torch.multinomial(probs.cpu(), 1, generator=dice))

        chained = verify(target, draft, [1, 2], choose)
        tree = verify_tree(target, draft, [1, 2], [ROOT, ROOT], choose)
        follow = verify_tree(target, draft, [1, 2], chain(2), choose)
        return chained, tree, follow, residual(target[0], draft[0])

    same_on_a_card(judged, torch.tensor(LAWS).double(), torch.tensor(DRAFTED).double())


def test_diffusion_hides_loses_and_reveals_alike() -> None:
    tokens, table = torch.randint(0, 9, (3, 12)), 3 * n(10, 10)
    t, counts, logits = torch.tensor([0.3, 0.6, 1.0]), torch.tensor([0, 4, 12]), n(3, 12, 10)

    def run(tokens: torch.Tensor, table: torch.Tensor, logits: torch.Tensor, *given: Any) -> Any:
        dice = torch.Generator().manual_seed(1)
        seen, masked = mask_tokens(tokens, given[0], 9, dice)
        exact, hidden = mask_exactly(tokens, given[1], 9, dice)
        losses = (
            diffusion_loss(logits, tokens, masked, given[0]),
            counted_loss(logits, tokens, hidden),
        )
        law = {"generator": dice, "temperature": 0.0}
        made = [unmask(lambda x: table[x], exact, 4, 9, order=o, **law) for o in ORDERS]
        return seen, exact, losses, made

    same_on_a_card(run, tokens, table, logits, t, counts)


def test_diffusion_draws_with_a_generator_on_the_card() -> None:
    dice = torch.Generator(CARD).manual_seed(1)
    tokens, table = torch.randint(0, 9, (3, 12), device=CARD), n(10, 10, device=CARD)
    times = stratified_times(3, dice)
    assert times.device.type == CARD
    seen, masked = mask_tokens(tokens, times, 9, dice)
    assert torch.equal(seen == 9, masked)
    made = unmask(lambda x: table[x], seen, 6, 9, generator=dice)
    assert not bool((made.tokens == 9).any())
    assert torch.equal(made.tokens[~masked], tokens[~masked])
