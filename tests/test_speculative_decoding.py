"""The acceptance rate is the share of drafted tokens that the acceptance rule keeps; the formulas
are sums."""

import pytest
import torch

from twophase.models.config import Config
from twophase.models.speculative_decoding import acceptance_rate, sample_batch
from twophase.models.transformer import Transformer
from twophase.theory.catalog import hardware
from twophase.theory.catalog import model as catalog_model
from twophase.theory.speculative_decoding import (
    best_draft_length,
    expected_tokens,
    expected_tokens_by_place,
    speedup,
    verification_ratio,
)


def model(seed: int, **changes: int) -> Transformer:
    torch.manual_seed(seed)
    net = Transformer(
        Config(**{"L": 1, "D": 8, "F": 12, "N": 2, "K": 1, "H": 4, "V": 5, **changes})
    )
    for p in net.parameters():
        torch.nn.init.normal_(p, std=0.8)
    return net.eval().requires_grad_(False)


def test_a_draft_that_is_the_target_is_always_accepted():
    net = model(0)
    assert acceptance_rate(net, net, torch.randint(0, 5, (3, 7))) == pytest.approx(1.0)


def test_it_equals_the_share_that_the_rule_accepts_summed_over_every_token():
    target, draft, tokens = model(0), model(1), torch.tensor([[3, 1, 4, 1]])
    p, q = target(tokens)[0].softmax(-1), draft(tokens)[0].softmax(-1)  # [4, 5]
    kept = [sum(float(q[t, x] * min(1.0, p[t, x] / q[t, x])) for x in range(5)) for t in range(4)]
    assert acceptance_rate(target, draft, tokens) == pytest.approx(sum(kept) / 4)
    assert acceptance_rate(target, draft, tokens, skip=2) == pytest.approx(sum(kept[2:]) / 2)


def test_other_vocabularies_are_refused():
    with pytest.raises(ValueError, match="share a vocabulary; they have 5 and 6"):
        acceptance_rate(model(0), model(0, V=6), torch.zeros(1, 2, dtype=torch.long))


def test_a_batch_is_drawn_from_the_law_of_the_model():
    net, prompts = model(2), torch.full((20_000, 1), 3)
    drawn = sample_batch(net, prompts, 2, torch.Generator().manual_seed(0))
    first = net(prompts[:1])[0, -1].softmax(-1)  # [V]
    law = torch.stack(
        [first[x] * net(torch.tensor([[3, x]]))[0, -1].softmax(-1) for x in range(5)]
    ).flatten()
    seen = torch.bincount(drawn[:, 1] * 5 + drawn[:, 2], minlength=25) / len(drawn)
    assert (
        float((seen - law).abs().max()) < 5 * (0.25 / len(drawn)) ** 0.5
    )  # five standard deviations at most
    assert torch.equal(drawn[:, :1], prompts)


@pytest.mark.parametrize("gamma", [0, 1, 4, 9])
def test_tokens_per_call_are_a_geometric_sum_and_no_draft_is_no_speedup(gamma):
    assert expected_tokens(0.7, gamma) == pytest.approx(sum(0.7**i for i in range(gamma + 1)))
    assert expected_tokens(0, gamma) == 1
    assert speedup(0.7, 0, 0.3) == 1
    assert speedup(0.0, gamma, 0.25) == pytest.approx(1 / (1 + gamma / 4))


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_equal_places_are_the_geometric_chain(alpha):
    for gamma in (0, 1, 5):
        places = expected_tokens_by_place([alpha] * gamma)
        assert places == pytest.approx(float(expected_tokens(alpha, gamma)))
    assert expected_tokens_by_place([0.5, 0.9, 0.0, 1.0]) == pytest.approx(1 + 0.5 + 0.45)
    with pytest.raises(ValueError, match=r"from 0 to 1; got 1\.5"):
        expected_tokens_by_place([0.5, 1.5])


def test_verifying_is_free_for_one_sequence_and_not_for_many():
    # at a long context caches are read for longer than drafts multiply: then many are free, too
    llama, chip = catalog_model("llama-3-8b"), hardware("h100")
    sizes = {
        "weight_bytes": llama.n_params() * 2,
        "cache_bytes_per_sequence": llama.cache_bytes(128),
        "token_flops": llama.decode_step_flops(1, 128),
        "bytes_per_s": chip.hbm_bytes_per_s,
        "flops_per_s": chip.peak_flops_per_s("bf16"),
    }
    assert verification_ratio(B=1, gamma=7, **sizes) == 1
    many = verification_ratio(B=256, gamma=7, **sizes)
    assert 1 < many <= 8
    assert speedup(0.8, 7, 0.05, many) < 1 < speedup(0.8, 7, 0.05)
    assert verification_ratio(B=256, gamma=0, **sizes) == 1


def test_the_best_draft_length_is_the_one_that_says_most_tokens_a_second():
    tokens = [expected_tokens(0.8, gamma) for gamma in range(12)]
    flat = [1.0] * 12
    assert best_draft_length(tokens, 10.0, flat) == 0  # a draft dearer than the target
    assert best_draft_length(tokens, 0.0, flat) == 11  # for nothing, the more the better
    rates = [n / (gamma * 0.1 + 1) for gamma, n in enumerate(tokens)]
    best = best_draft_length(tokens, 0.1, flat)
    assert rates[best] == max(rates)
    assert 0 < best < 11
    assert best_draft_length(tokens, 0.1, [1 + 0.3 * gamma for gamma in range(12)]) < best
    assert best_draft_length([1.0, 2.0], 0.0, [1.0, 2.0]) == 0  # of equals the smallest
    with pytest.raises(ValueError, match="got 2 and 1"):
        best_draft_length([1.0, 2.0], 0.1, [1.0])
    nan, inf = float("nan"), float("inf")
    for draft_s, verify_s in ((0.1, 0.0), (nan, 1.0), (inf, 1.0), (0.1, nan), (-1.0, 1.0)):
        with pytest.raises(ValueError, match="times are positive"):
            best_draft_length([1.0], draft_s, [verify_s])


@pytest.mark.parametrize("tokens", [[0.5, 1.0], [-1.0, 1.0], [1.0, 2.1], [1.0, float("nan")]])
def test_a_call_that_says_more_than_was_drafted_or_nothing_is_refused(tokens):
    with pytest.raises(ValueError, match="drafted tokens says"):
        best_draft_length(tokens, 0.1, [1.0, 1.0])


def test_half_a_drafted_token_has_no_worth():
    for formula in (expected_tokens, lambda alpha, gamma: speedup(alpha, gamma, 0.1)):
        with pytest.raises(ValueError, match="gamma must be a whole number"):
            formula(0.5, 2.5)
    with pytest.raises(ValueError, match="gamma must be a whole number"):
        verification_ratio(1e9, 1, 1e6, 1e9, 0.5, 1e12, 1e15)
