"""Masked diffusion: the loss by enumerating every mask and every order, the samplers by the laws
they must follow."""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from draws import draws
from hypothesis import given
from hypothesis import strategies as st

from twophase.kernels.diffusion import (
    EPSILON,
    counted_loss,
    diffusion_loss,
    hidden_nats,
    mask_exactly,
    mask_tokens,
    stratified_times,
    unmask,
)
from twophase.models.diffusion import bound_bits_per_byte, complete, training_loss
from twophase.models.transformer import Config, Transformer

T, V = 3, 3  # 27 sequences, 7 masks, 6 orders: small enough to try all
MASK = V
SEQUENCES = torch.tensor(list(itertools.product(range(V), repeat=T)))  # [27, 3]
MASKS = [
    torch.tensor(m, dtype=torch.bool) for m in itertools.product([False, True], repeat=T) if any(m)
]

Network = Callable[[torch.Tensor], torch.Tensor]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def any_network(seed: int) -> Network:
    """Some law for every position and everything that can be seen; the logit of the mask is the
    largest of all."""
    table = torch.randn((V + 1) ** T, T, V + 1, generator=seeded(seed), dtype=torch.float64)
    table[..., -1] = 1e6
    return lambda seen: table[(seen * (V + 1) ** torch.arange(T)).sum(-1)]


def exact_network(joint: torch.Tensor) -> Network:
    """The true law of every position given what is seen, for the distribution `joint` over
    SEQUENCES (or V² of pairs)."""
    length = round(math.log(len(joint), V))
    sequences = torch.tensor(list(itertools.product(range(V), repeat=length)))

    def network(seen: torch.Tensor) -> torch.Tensor:
        fits = ((seen[:, None] == sequences) | (seen[:, None] == MASK)).all(-1)  # [B, V^T]
        onehot = torch.nn.functional.one_hot(sequences, V + 1).double()  # [V^T, T, V + 1]
        return torch.einsum("bx,xtv->btv", fits * joint, onehot).log()

    return network


def markov(length: int = T, seed: int = 0) -> torch.Tensor:
    """The probabilities of all sequences of a Markov chain, in the order of SEQUENCES."""
    start, step = (
        torch.rand(V, generator=seeded(seed)),
        torch.rand(V, V, generator=seeded(seed + 1)) ** 2,
    )
    start, step = (start / start.sum()).double(), (step / step.sum(-1, keepdim=True)).double()
    joint = [
        start[x[0]] * math.prod(step[a, b] for a, b in itertools.pairwise(x))
        for x in itertools.product(range(V), repeat=length)
    ]
    return torch.stack(joint) / sum(joint)


def by_steps(network: Network, steps: tuple[int, ...]) -> torch.Tensor:
    """−log of the probability of every sequence if token i is guessed in step `steps[i]`, not
    knowing the others of that step or later ones: [27], nats."""
    nats, step = torch.zeros(len(SEQUENCES), dtype=torch.float64), torch.tensor(steps)
    for now in sorted(set(steps)):
        laws = network(torch.where(step >= now, MASK, SEQUENCES))[..., :V].log_softmax(
            -1
        )  # [27, T, V]
        guessed = laws.gather(-1, SEQUENCES[..., None])[..., 0]  # [27, T]
        nats -= guessed[:, step == now].sum(-1)
    return nats


def by_order(network: Network) -> torch.Tensor:
    """The same one token at a time, in each of the T! orders: [6, 27], nats."""
    return torch.stack([by_steps(network, order) for order in itertools.permutations(range(T))])


def by_time(network: Network) -> torch.Tensor:
    """The mean of `diffusion_loss` over t and masks, exactly: its integrand is a polynomial of
    degree T − 1 in t."""
    nodes, weights = np.polynomial.legendre.leggauss(T)
    total = torch.zeros(len(SEQUENCES), dtype=torch.float64)
    for t, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
        for masked in MASKS:
            chance = t ** int(masked.sum()) * (1 - t) ** int((~masked).sum())
            logits, masked = (
                network(torch.where(masked, MASK, SEQUENCES)),
                masked.expand(len(SEQUENCES), T),
            )
            times = torch.full((len(SEQUENCES),), t, dtype=torch.float64)
            total += weight * chance * diffusion_loss(logits, SEQUENCES, masked, times)
    return total


def by_count(network: Network) -> torch.Tensor:
    """The mean of `counted_loss` over counts, all as likely, and over the masks of each count."""
    total = torch.zeros(len(SEQUENCES), dtype=torch.float64)
    for masked in MASKS:
        logits = network(torch.where(masked, MASK, SEQUENCES))
        loss = counted_loss(logits, SEQUENCES, masked.expand(len(SEQUENCES), T))
        total += loss / T / math.comb(T, int(masked.sum()))
    return total


@pytest.mark.parametrize("seed", range(3))
def test_the_loss_over_all_times_and_masks_is_the_mean_over_all_orders_of_guessing_token_by_token(
    seed,
):
    network = any_network(seed)
    orders = by_order(network).mean(0) / T  # nats per token
    torch.testing.assert_close(by_time(network), orders, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(by_count(network), orders, rtol=1e-12, atol=1e-12)
    assert by_order(network).std(0).min() > 0.01  # the orders themselves differ


def test_who_knows_the_conditionals_needs_the_entropy_and_each_sequence_its_own_information():
    joint = markov()
    network = exact_network(joint)
    torch.testing.assert_close(by_time(network), -joint.log() / T, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(
        (joint * by_count(network)).sum(), -(joint * joint.log()).sum() / T, rtol=1e-12, atol=0
    )


@draws(15)
@given(st.integers(0, 10_000))
def test_the_loss_is_an_upper_bound(seed):
    joint, network = markov(seed=seed), any_network(seed)
    loss, orders = by_time(network) * T, by_order(network)
    law = (-orders).exp().mean(0)  # of a network that guesses in a random order
    torch.testing.assert_close(law.sum(), torch.tensor(1.0, dtype=torch.float64))
    assert (loss >= -law.log()).all()  # of each sequence
    assert (joint * loss).sum() > -(joint * joint.log()).sum()  # no network beats the entropy


def test_only_hidden_tokens_cost_anything_and_the_mask_is_no_guess():
    logits, tokens = (
        torch.randn(2, 4, 6, generator=seeded()),
        torch.randint(0, 5, (2, 4), generator=seeded()),
    )
    masked = torch.tensor([[True, False, True, False], [False] * 4])
    nats = hidden_nats(logits, tokens, masked)
    assert nats[~masked].tolist() == [0.0] * 6
    expected = -logits[..., :5].log_softmax(-1).gather(-1, tokens[..., None])[..., 0]
    torch.testing.assert_close(nats[masked], expected[masked])
    logits[..., 5] = 1e4
    assert torch.equal(hidden_nats(logits, tokens, masked), nats)
    assert torch.equal(
        diffusion_loss(logits, tokens, masked, torch.tensor([0.5, 0.1])), nats.sum(-1) / 4 / 0.5
    )
    with pytest.raises(ValueError, match=r"needs logits \[B, T, V \+ 1\]"):
        hidden_nats(logits[:, 1:], tokens, masked)


@draws(50)
@given(B=st.integers(1, 65), epsilon=st.sampled_from([0.0, 1e-3, 0.3]), seed=st.integers(0, 1000))
def test_every_part_of_the_range_of_times_gets_one(B, epsilon, seed):
    t = stratified_times(B, seeded(seed), epsilon)
    part = (1 - t.double()) / (1 - epsilon) * B  # 0 to B, the first in [0, 1)
    assert (
        (part - torch.arange(B)).clamp(0, 1) - (part - torch.arange(B))
    ).abs().max() < 1e-4  # fp32, times B
    assert epsilon - 1e-7 <= t.min()
    assert t.max() <= 1


def test_a_single_time_is_uniform():
    t = torch.cat([stratified_times(1, seeded(seed)) for seed in range(2000)])
    assert t.mean() == pytest.approx(0.5, abs=5 / math.sqrt(12 * 2000))
    assert t.var() == pytest.approx(1 / 12, rel=0.1)


def test_tokens_are_hidden_independently_with_the_probability_of_their_sequence():
    n = 20_000
    tokens, t = torch.randint(0, V, (3, n), generator=seeded()), torch.tensor([0.0, 0.3, 1.0])
    seen, masked = mask_tokens(tokens, t, MASK, seeded())
    assert torch.equal(seen, torch.where(masked, MASK, tokens))
    share = masked.double().mean(-1)
    assert share[0] == 0
    assert share[2] == 1
    assert share[1] == pytest.approx(0.3, abs=5 * math.sqrt(0.21 / n))
    pairs = (
        (masked[1, 1:] & masked[1, :-1]).double().mean()
    )  # neighbors: 0.3² if they are independent
    assert pairs == pytest.approx(0.09, abs=5 * math.sqrt(0.09 / n))


def test_exactly_so_many_tokens_are_hidden_and_every_set_is_as_likely():
    n = 6000
    tokens, counts = torch.zeros(n, 4, dtype=torch.long), torch.arange(n) % 5  # 0 to 4
    seen, masked = mask_exactly(tokens, counts, MASK, seeded())
    assert torch.equal(masked.sum(-1), counts)
    assert torch.equal(seen == MASK, masked)
    pairs = masked[counts == 2].long() @ torch.tensor(
        [1, 2, 4, 8]
    )  # which 2 of 4: 6 sets, n / 5 draws
    frequency = torch.bincount(pairs, minlength=16)[[3, 5, 6, 9, 10, 12]] / (n / 5)
    assert frequency.sub(1 / 6).abs().max() < 5 * math.sqrt(1 / 6 * 5 / 6 / (n / 5))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (
            lambda x: mask_tokens(x, torch.tensor([0.5]), MASK),
            r"each of the 2 sequences needs a probability t",
        ),
        (lambda x: mask_tokens(x, torch.tensor([0.5, 1.1]), MASK), r"t in \[0, 1\]"),
        (lambda x: mask_exactly(x, torch.tensor([1, 4]), MASK), "count from 0 to T = 3"),
        (lambda x: unmask(any_network(0), x, 0, MASK), "at least 1 step; got 0"),
        (
            lambda x: unmask(any_network(0), x, 1, MASK, order="left"),
            'order of unmasking is .*; got "left"',
        ),
        (
            lambda x: unmask(any_network(0), x, 1, MASK, temperature=-1.0),
            "temperature is a finite number",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_sentence(call, says):
    with pytest.raises(ValueError, match=says):
        call(torch.zeros(2, T, dtype=torch.long))


def frequencies(tokens: torch.Tensor) -> torch.Tensor:
    """How often each of the V^T sequences occurs, in the order of `itertools.product`."""
    length = tokens.shape[1]
    code = (tokens * V ** torch.arange(length - 1, -1, -1)).sum(-1)
    return torch.bincount(code, minlength=V**length).double() / len(tokens)


def assert_follows(tokens: torch.Tensor, law: torch.Tensor) -> None:
    """Every frequency within 5 standard errors: chance breaks that once in 10⁶ cells, and the seed
    is fixed."""
    assert (
        (frequencies(tokens) - law).abs() < 5 * (law * (1 - law) / len(tokens)).sqrt() + 1e-9
    ).all()


@pytest.mark.parametrize("n_steps", [1, 2, 5])
def test_two_tokens_are_independent_if_they_share_a_step_which_happens_once_in_n_steps(n_steps):
    joint = markov(2)
    marginals = joint.view(V, V)
    apart = torch.outer(marginals.sum(1), marginals.sum(0)).flatten()
    hidden = torch.full((40_000, 2), MASK)
    made = unmask(exact_network(joint), hidden, n_steps, MASK, generator=seeded())
    assert_follows(made.tokens, apart / n_steps + joint * (1 - 1 / n_steps))
    assert (apart - joint).abs().max() > 0.05  # the two laws can be told apart


@pytest.mark.parametrize("n_steps", [3, 8])
def test_samples_follow_the_law_of_guessing_at_random_times_which_tends_to_that_of_random_orders(
    n_steps,
):
    network = any_network(0)
    times = itertools.product(range(n_steps), repeat=T)
    law = torch.stack([(-by_steps(network, steps)).exp() for steps in times]).mean(0)
    assert_follows(
        unmask(network, torch.full((30_000, T), MASK), n_steps, MASK, generator=seeded()).tokens,
        law,
    )
    limit = (-by_order(network)).exp().mean(0)  # of this law the loss bounds the −log
    shared = (
        1 - (n_steps - 1) * (n_steps - 2) / n_steps**2
    )  # the share of times of which two are the same
    assert (law - limit).abs().sum() < 2 * shared
    together = (-by_steps(network, (0, 0, 0))).exp()
    assert (together - limit).abs().max() > 0.02  # not the same anyway


def test_the_step_of_every_token_is_uniform_and_does_not_depend_on_the_others():
    made = unmask(
        any_network(0), torch.full((20_000, T), MASK), V, MASK, generator=seeded()
    )  # V steps, to use ...
    assert_follows(
        made.pass_of - 1, torch.full((V**T,), 1 / V**T, dtype=torch.float64)
    )  # ... the same table


def test_most_probable_first_does_not_follow_the_law_even_one_token_at_a_time():
    sure = torch.tensor([0.1, 0.9, 0.0]).double()  # two independent tokens, 1 with probability 0.9
    hidden = torch.full((40_000, 2), MASK)
    network = exact_network(torch.outer(sure, sure).flatten())
    made = unmask(network, hidden, 2, MASK, order="confidence", generator=seeded())
    # (0, 0) needs two zeros in the first draw, of which one is kept, and another zero in the
    # second.
    zero_zero = frequencies(made.tokens)[0]
    assert zero_zero == pytest.approx(0.1**3, abs=5 * math.sqrt(0.001 / 40_000))
    ancestral = unmask(network, hidden, 2, MASK, generator=seeded())
    assert frequencies(ancestral.tokens)[0] == pytest.approx(
        0.1**2, abs=5 * math.sqrt(0.01 / 40_000)
    )


def counted(network: Network, seen: list[torch.Tensor]) -> Network:
    def counting(tokens: torch.Tensor) -> torch.Tensor:
        seen.append(tokens)
        return network(tokens)

    return counting


@pytest.mark.parametrize("seed", range(5))
def test_a_step_that_reveals_nothing_costs_no_forward_pass(seed):
    seen: list[torch.Tensor] = []
    hidden = torch.tensor([[MASK, 1, MASK]])
    made = unmask(counted(any_network(0), seen), hidden, 1000, MASK, generator=seeded(seed))
    assert len(seen) == made.n_passes == 2
    assert sorted(made.pass_of[0].tolist()) == [0, 1, 2]
    assert made.tokens_per_pass == 1.0
    made = unmask(counted(any_network(0), seen), made.tokens, 1000, MASK)
    assert len(seen) == 2
    assert made.n_passes == 0
    assert math.isnan(made.tokens_per_pass)


def flat_network(tokens: torch.Tensor) -> torch.Tensor:
    """Position i holds token 1, the more surely the larger (7·i) % 8 is; nothing depends on what is
    seen."""
    logits = torch.zeros(*tokens.shape, V + 1)
    logits[..., 1] = 1.0 + (7 * torch.arange(tokens.shape[1])) % 8
    return logits


def test_by_confidence_every_step_reveals_its_share_the_surest_first():
    hidden = torch.full((2, 8), MASK)
    hidden[0, 0], hidden[1, 3:] = 2, 2  # 7 and 3 masks
    seen: list[torch.Tensor] = []
    options = {"order": "confidence", "temperature": 0.0}
    made = unmask(counted(flat_network, seen), hidden, 3, MASK, **options)
    assert made.pass_of.tolist() == [[0, 1, 1, 1, 2, 2, 3, 3], [3, 1, 2, 0, 0, 0, 0, 0]]
    assert [(tokens == MASK).sum(-1).tolist() for tokens in seen] == [[7, 3], [4, 2], [2, 1]]
    assert made.tokens.tolist() == [[2, 1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 2, 2, 2, 2, 2]]
    assert made.n_passes == 3
    assert made.tokens_per_pass == pytest.approx((7 + 3) / 2 / 3)
    assert unmask(flat_network, hidden, 100, MASK, **options).n_passes == 7


@pytest.mark.parametrize("order", ["ancestral", "confidence"])
def test_given_tokens_stay_and_no_mask_is_left(order):
    given_tokens = torch.randint(0, V + 1, (50, T), generator=seeded())
    before = given_tokens.clone()
    for n_steps in (1, 2, 7):
        made = unmask(any_network(1), given_tokens, n_steps, MASK, order=order, generator=seeded())
        assert torch.equal(made.tokens[before != MASK], before[before != MASK])
        assert torch.equal(made.pass_of > 0, before == MASK)
        assert made.tokens.max() < MASK
        assert torch.equal(given_tokens, before)
        again = unmask(any_network(1), given_tokens, n_steps, MASK, order=order, generator=seeded())
        assert torch.equal(again.tokens, made.tokens)


def test_temperature_divides_the_logits_and_zero_takes_the_largest():
    network, hidden = any_network(2), torch.full((20_000, T), MASK)
    logits = network(hidden[:1])[0, :, :V]
    for temperature in (0.5, 2.0):
        made = unmask(network, hidden, 1, MASK, temperature=temperature, generator=seeded())
        laws = (logits / temperature).softmax(-1)
        assert_follows(made.tokens, torch.einsum("a,b,c->abc", *laws).flatten())
    greedy = unmask(network, hidden[:1], 1, MASK, temperature=0.0)
    assert torch.equal(greedy.tokens[0], logits.argmax(-1))


TINY = Config(L=2, D=16, F=24, N=3, K=1, H=6, V=6, causal=False, context=4)


def tiny_model(config: Config = TINY, std: float = 0.4) -> Transformer:
    torch.manual_seed(0)
    model = Transformer(config)
    for p in model.parameters():
        if p.ndim > 1:
            torch.nn.init.normal_(p, std=std)
    return model.eval().requires_grad_(False)


def exact_nats(model: Transformer, windows: torch.Tensor) -> torch.Tensor:
    """The bound of each window [n, 4] in nats per token, all 15 masks enumerated."""
    total = torch.zeros(len(windows), dtype=torch.float64)
    for m in itertools.product([False, True], repeat=4):
        if any(m):
            masked = torch.tensor(m).expand_as(windows)
            laws = model(torch.where(masked, 5, windows))[..., :5].log_softmax(-1).double()
            nats = -(laws.gather(-1, windows[..., None])[..., 0] * masked).sum(-1)
            total += nats / (sum(m) * math.comb(4, sum(m))) / 4
    return total


def test_the_training_loss_is_right_in_the_mean():
    model, window = tiny_model(), torch.tensor([[3, 0, 0, 2]])
    losses = torch.stack(
        [training_loss(model, window.expand(500, 4), seeded(seed)) for seed in range(40)]
    )
    exact = float(exact_nats(model, window))
    assert float(losses.std()) / math.sqrt(40) < 0.05 * exact  # the test can tell a wrong factor
    error = 5 * float(losses.std()) / math.sqrt(40) + EPSILON * exact  # what t < epsilon would add
    assert float(losses.mean()) == pytest.approx(exact, abs=error)


def test_under_autocast_the_loss_is_fp32_and_close_to_the_exact_one():
    model, windows = (
        tiny_model().requires_grad_(True),
        torch.randint(0, 5, (64, 4), generator=seeded()),
    )
    exact = training_loss(model, windows, seeded(1))
    with torch.autocast("cpu", torch.bfloat16):
        loss = training_loss(model, windows, seeded(1))
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(
        exact.item(), rel=0.02
    )  # bf16 rounds logits to 8 bits, and averages over 64
    loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_the_measured_bound_is_right_within_its_standard_error():
    model, data = tiny_model(), np.random.default_rng(0).integers(0, 5, 403).astype(np.uint8)
    bound = bound_bits_per_byte(model, data, n_draws=60, B=33)
    exact = float(
        exact_nats(model, torch.from_numpy(data[:400].astype(np.int64)).view(100, 4)).mean()
    ) / math.log(2)
    assert (bound.n_windows, bound.n_draws) == (100, 60)
    assert 0 < bound.standard_error < 0.01 * exact
    assert bound.bits_per_byte == pytest.approx(exact, abs=4 * bound.standard_error)
    together = bound_bits_per_byte(model, data, n_draws=60, B=100)  # the same masks
    assert together.bits_per_byte == pytest.approx(bound.bits_per_byte, rel=1e-6)
    other = bound_bits_per_byte(model, data, n_draws=1, seed=1)
    assert other.bits_per_byte != bound_bits_per_byte(model, data, n_draws=1).bits_per_byte
    assert math.isnan(other.standard_error)


def test_a_model_that_knows_nothing_needs_eight_bits_per_byte_without_error():
    config = Config(L=1, D=8, F=8, N=2, K=1, H=4, V=257, causal=False, context=10)
    bound = bound_bits_per_byte(
        tiny_model(config, std=0.0), np.arange(100, dtype=np.uint8), n_draws=3
    )
    assert bound.bits_per_byte == pytest.approx(8.0, rel=1e-6)
    assert bound.standard_error < 1e-6
    with pytest.raises(ValueError, match="at least 1 draw and 10 bytes; got 3 and 9"):
        bound_bits_per_byte(tiny_model(config), np.zeros(9, dtype=np.uint8), n_draws=3)


def test_every_token_sees_every_other():
    model, tokens = tiny_model(), torch.tensor([[0, 1, 2, 3]])
    for i in range(4):
        changed = tokens.clone()
        changed[0, i] = 4
        assert ((model(changed) - model(tokens)).abs().amax(-1) > 1e-4).all()


def test_a_completion_keeps_prompt_and_suffix_and_comes_block_by_block():
    model = tiny_model()
    made = complete(model, [1, 2], 10, 7, suffix_tokens=[3], block=4, generator=seeded())
    assert made.prompt == [1, 2]
    assert len(made.tokens) == len(made.pass_of) == 10
    assert set(made.tokens) <= set(range(5))
    ends = [max(made.pass_of[i : i + 4]) for i in (0, 4, 8)]
    assert min(made.pass_of[4:8]) == ends[0] + 1
    assert min(made.pass_of[8:]) == ends[1] + 1
    assert made.n_passes == ends[2] == len(set(made.pass_of)) <= 7
    assert made.tokens_per_pass == 10 / made.n_passes
    assert made.times_s == sorted(made.times_s)
    again = complete(model, [1, 2], 10, 7, suffix_tokens=[3], block=4, generator=seeded())
    assert (again.tokens, again.pass_of) == (made.tokens, made.pass_of)


@pytest.mark.parametrize(
    ("n_new", "block", "n_steps"), [(10, 4, 7), (10, None, 3), (3, 5, 1), (6, 2, 3)]
)
def test_by_confidence_the_passes_are_the_steps_and_each_sees_what_came_before(
    n_new, block, n_steps
):
    model, seen = tiny_model(), []
    hook = model.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0][0].tolist()))
    made = complete(
        model,
        [1],
        n_new,
        n_steps,
        suffix_tokens=[4],
        block=block,
        order="confidence",
        temperature=0.0,
    )
    hook.remove()
    assert made.n_passes == len(seen) == n_steps
    for i, tokens in enumerate(seen, 1):
        expected = [
            5 if at >= i else token for token, at in zip(made.tokens, made.pass_of, strict=True)
        ]
        assert tokens == [1, *expected, 4]


def test_a_completion_of_nothing_runs_nothing():
    made = complete(tiny_model(), [1], 0, 1)
    assert (made.tokens, made.pass_of, made.n_passes) == ([], [], 0)
    assert math.isnan(made.tokens_per_pass)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (([5], 2, 2), "token 5 is no text: that is 0 to 4, and 5 is the mask"),
        (([1], -1, 2), "n_new is at least 0"),
        (([1], 4, 0), "cannot be unmasked in n_steps = 0"),
    ],
)
def test_completions_that_make_no_sense_are_refused(arguments, says):
    with pytest.raises(ValueError, match=says):
        complete(tiny_model(), *arguments)
    with pytest.raises(ValueError, match="3 blocks cannot be unmasked in n_steps = 2"):
        complete(tiny_model(), [1], 5, 2, block=2)


def test_a_model_that_reads_one_way_is_refused():
    model = Transformer(Config(**{**TINY.to_dict(), "causal": True}))
    with pytest.raises(ValueError, match="a model that reads both ways"):
        training_loss(model, torch.zeros(1, 4, dtype=torch.long))
    with pytest.raises(ValueError, match="has no cache"):
        Transformer(TINY).new_cache(1, 4)


def test_training_brings_the_bound_down_toward_the_entropy_and_the_model_fills_gaps():
    torch.manual_seed(1)
    model = Transformer(Config(L=2, D=16, F=48, N=2, K=1, H=16, V=3, causal=False, context=8))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.95))
    windows = (
        (torch.arange(9) % 2).unfold(0, 8, 1).repeat(32, 1)
    )  # 01010101 and 10101010: 1 bit for 8 tokens
    for step in range(150):
        optimizer.zero_grad()
        training_loss(model, windows, seeded(step)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    bound = bound_bits_per_byte(model.eval(), np.arange(400, dtype=np.uint8) % 2, n_draws=4)
    assert (
        1 / 8 - 3 * bound.standard_error < bound.bits_per_byte < 0.5
    )  # a token without its neighbors needs 1 bit
    made = complete(model, [1, 0], 4, 4, suffix_tokens=[1, 0], order="confidence", temperature=0.0)
    assert made.tokens == [1, 0, 1, 0]
