"""The sampler's law, by enumeration instead of by drawing."""

import itertools
import math
from fractions import Fraction

import pytest
import torch

from twophase.kernels.sampling import sample, sampling_probs, stop_reason

LOGITS = torch.tensor([1.0, 3.0, 0.5, 3.0, -2.0])


def law(
    logits: list[float], temperature: float, top_k: int | None, top_p: float | None
) -> list[float]:
    """The same law in plain Python, one token after the other, from the definition."""
    weights = [math.exp((x - max(logits)) / temperature) for x in logits]
    order = sorted(range(len(logits)), key=lambda i: -weights[i])[:top_k]
    total, kept, mass = sum(weights[i] for i in order), [], 0.0
    for i in order:
        kept.append(i)
        mass += weights[i] / total
        if top_p is not None and mass >= top_p:
            break
    left = sum(weights[i] for i in kept)
    return [weights[i] / left if i in kept else 0.0 for i in range(len(logits))]


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"),
    list(
        itertools.product([0.3, 1.0, 2.5], [None, 1, 2, 3, 99], [None, 0.01, 0.5, 0.9, 0.97, 1.0])
    ),
)
def test_the_law_is_the_definition(temperature, top_k, top_p):
    found = sampling_probs(LOGITS, temperature, top_k, top_p)
    torch.testing.assert_close(
        found, torch.tensor(law(LOGITS.tolist(), temperature, top_k, top_p)), rtol=1e-5, atol=1e-6
    )


def test_top_p_keeps_the_token_that_crosses_and_stops_when_the_mass_is_reached():
    logits = torch.tensor([0.5, 0.25, 0.125, 0.125]).log()
    assert sampling_probs(logits, top_p=0.6).tolist() == pytest.approx([2 / 3, 1 / 3, 0, 0])
    assert sampling_probs(logits, top_p=0.45).tolist() == [1, 0, 0, 0]
    assert sampling_probs(logits, top_p=0.85).count_nonzero() == 3


def test_top_p_works_on_what_top_k_left():
    logits = torch.tensor(
        [0.4, 0.3, 0.2, 0.1]
    ).log()  # top-2 leaves 4/7 and 3/7: 0.5 is reached by the first
    assert sampling_probs(logits, top_k=2, top_p=0.5).tolist() == [1, 0, 0, 0]


def test_temperature_zero_is_greedy_and_draws_nothing():
    def never(probs: torch.Tensor) -> int:
        pytest.fail("drew although greedy")

    assert sample(LOGITS, 0, choose=never) == 1
    assert sampling_probs(LOGITS, 0).tolist() == [0, 1, 0, 0, 0]


def test_huge_and_infinite_logits_give_no_nan():
    assert sampling_probs(torch.tensor([3e38, -3e38, 0.0]), 0.01).tolist() == [1, 0, 0]
    assert sampling_probs(torch.tensor([0.0, -math.inf]), 1.0).tolist() == [1, 0]


def test_every_row_of_a_batch_has_its_own_law():
    logits = torch.randn(3, 4, 7, generator=torch.Generator().manual_seed(0))
    together = sampling_probs(logits, 0.7, 4, 0.8)
    for i, j in itertools.product(range(3), range(4)):
        torch.testing.assert_close(together[i, j], sampling_probs(logits[i, j], 0.7, 4, 0.8))


def test_every_path_of_two_draws_has_the_product_of_its_laws():
    """A two-token Markov chain over three symbols, walked by enumeration: no random number is
    drawn."""
    table = torch.tensor([[0.5, 0.25, 0.25], [0.125, 0.5, 0.375], [0.25, 0.5, 0.25]])
    mass: dict[tuple[int, int], Fraction] = {}
    for path in itertools.product(range(3), repeat=2):
        weight, state, steps = Fraction(1), 0, iter(path)

        def choose(probs: torch.Tensor) -> int:
            nonlocal weight
            token = next(steps)  # noqa: B023
            weight *= Fraction(round(float(probs[token]) * 8), 8)
            return token

        for _ in range(2):
            state = sample(table[state].log(), choose=choose)
        mass[path] = weight
    exact = {p: Fraction(float(table[0, p[0]])) * Fraction(float(table[p[0], p[1]])) for p in mass}
    assert mass == exact
    assert sum(mass.values()) == 1


def test_a_generator_makes_the_draws_repeatable():
    def draws(seed: int) -> list[int]:
        g = torch.Generator().manual_seed(seed)
        return [sample(LOGITS, 2.0, generator=g) for _ in range(20)]

    assert draws(1) == draws(1)
    assert draws(1) != draws(2)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"temperature": -1.0}, "temperature"),
        ({"temperature": math.nan}, "temperature"),
        ({"top_k": 0}, "at least one token"),
        ({"top_p": 0.0}, "above 0 and at most 1"),
        ({"top_p": 1.5}, "above 0 and at most 1"),
    ],
)
def test_parameters_out_of_range_are_refused(options, says):
    with pytest.raises(ValueError, match=says):
        sampling_probs(LOGITS, **options)


def test_generation_stops_at_a_stop_sequence_or_at_the_limit_and_stop_comes_first():
    assert stop_reason([1, 2], 5, [[3], [1, 2]]) == "stop"
    assert stop_reason([1, 2], 2, [[1, 2]]) == "stop"
    assert stop_reason([2, 1], 2, [[1, 2]]) == "length"
    assert stop_reason([2], 2, [[1, 2], []]) is None


@pytest.mark.parametrize("odd", [float("nan"), float("inf")])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_logits_without_a_largest_are_refused_and_masked_ones_are_not(odd, temperature):
    logits = torch.tensor([[1.0, 2.0, -float("inf")], [3.0, 0.0, 1.0]])
    probs = sampling_probs(logits, temperature)
    assert probs[0, 2] == 0
    assert torch.allclose(probs.sum(-1), torch.ones(2))
    logits[1, 2] = odd
    with pytest.raises(ValueError, match="the logits hold NaN or infinity"):
        sampling_probs(logits, temperature)
    with pytest.raises(ValueError, match="the logits hold NaN or infinity"):
        sample(torch.full((3,), -float("inf")), temperature)
