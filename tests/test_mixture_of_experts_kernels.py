"""Routing and running experts: against lists sorted by hand, against every expert run on every
token, by identities."""

import pytest
import torch
from draws import draws
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

from twophase.kernels.mixture_of_experts import (
    load_balance_loss,
    route,
    router_scores,
    run_all_experts,
    run_experts,
)
from twophase.measure import Meter
from twophase.theory.mixture_of_experts import expected_experts

D = 20
# Both sides compute in fp32, in another order: sums of a few dozen products of numbers near 1.
SAME = {"rtol": 1e-5, "atol": 1e-5}


def draw(*shape: int, seed: int = 0, std: float = 1.0) -> torch.Tensor:
    return std * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def bank(E: int, F: int = 7, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The stacked matrices of E experts."""
    return (
        draw(E, F, D, seed=seed, std=0.3),
        draw(E, F, D, seed=seed + 1, std=0.3),
        draw(E, D, F, seed=seed + 2, std=0.3),
    )


def every_expert_on_every_token(x, experts, weights, w_gate, w_up, w_down) -> torch.Tensor:
    """The same sum, the slow way: all E answers [tokens, E, D], times a weight that is 0 where
    nobody went."""
    hidden = functional.silu(torch.einsum("nd,efd->nef", x, w_gate)) * torch.einsum(
        "nd,efd->nef", x, w_up
    )
    answers = torch.einsum("nef,edf->ned", hidden, w_down)
    share = torch.zeros(len(x), len(w_gate), dtype=x.dtype).scatter_add(
        1, experts, weights.to(x.dtype)
    )
    return torch.einsum("ned,ne->nd", answers, share)


# Running experts.


@draws(40)
@given(st.data())
def test_sorted_by_expert_equals_every_expert_on_every_token(data):
    E, n = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 30))
    k = data.draw(st.integers(1, E))
    x, weights = draw(n, D).double(), draw(n, k, seed=9).double()
    # some experts may be crowded and others empty: any k distinct ones per token
    chosen = [data.draw(st.permutations(range(E)))[:k] for _ in range(min(n, 5))]
    experts = torch.tensor([chosen[i % len(chosen)] for i in range(n)])
    matrices = [w.double() for w in bank(E)]
    expected = every_expert_on_every_token(x, experts, weights, *matrices)
    for run in (run_experts, run_all_experts):
        torch.testing.assert_close(run(x, experts, weights, *matrices), expected)


@pytest.mark.parametrize("run", [run_experts, run_all_experts])
def test_gradients_equal_those_of_every_expert_on_every_token_and_are_zero_for_idle_experts(run):
    leaves = [draw(11, D), draw(11, 2, seed=8), *bank(5)]
    experts = draw(11, 4, seed=3).topk(2).indices  # nobody visits expert 4
    grads = []
    for kernel in (run, every_expert_on_every_token):
        inputs = [leaf.double().requires_grad_() for leaf in leaves]
        kernel(inputs[0], experts, *inputs[1:]).square().sum().backward()
        grads.append([leaf.grad for leaf in inputs])
    for ours, expected in zip(*grads, strict=True):
        torch.testing.assert_close(ours, expected)
    assert all(grad[4].count_nonzero() == 0 for grad in grads[0][2:])


def test_the_gradient_of_a_stack_is_written_twice_at_most_not_once_per_expert():
    """Each expert's own, then all of them as one stack; torch's gradient of `stack[e]` is as large
    as the stack."""
    E = 16
    matrices = [w.requires_grad_() for w in bank(E)]
    y = run_experts(draw(E, D), torch.arange(E)[:, None], torch.ones(E, 1), *matrices)
    with Meter() as m:
        y.sum().backward()
    stacks = sum(w.nbytes for w in matrices)
    assert m.bytes_written < 3 * stacks  # of which less than one for activations, of E tokens


def test_gradients_reach_the_router_through_the_weights_as_finite_differences_say():
    logits = draw(6, 5, seed=4).double().requires_grad_()
    x, matrices = draw(6, D).double(), [w.double() for w in bank(5)]
    assert torch.autograd.gradcheck(lambda z: run_experts(x, *wide_route(z), *matrices), (logits,))


def wide_route(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """`route` decides in fp32, too coarse for finite differences: its choice, and its weights again
    in fp64."""
    experts, weights = route(logits, 2)
    wide = logits.softmax(-1).gather(-1, experts)
    wide = wide / wide.sum(-1, keepdim=True)
    torch.testing.assert_close(weights, wide.float(), **SAME)
    return experts, wide


def test_touched_experts_are_as_many_as_theory_expects_of_an_even_router():
    E, k, trials = 24, 3, 400
    logits = draw(trials, 64, E)
    for B in (1, 4, 16, 64):
        experts, _ = route(logits[:, :B].flatten(0, 1), k)  # [trials·B, k]
        visits = functional.one_hot(experts, E).view(trials, B * k, E).sum(1)  # [trials, E]
        counts = (visits > 0).sum(1).double()  # [trials]
        error = counts.std() / trials**0.5
        assert (
            abs(counts.mean() - expected_experts(B, E, k)) <= 4 * error + 1e-12
        )  # four standard errors: once in 16,000


# Routing.


def by_hand(
    scores: list[float], bias: list[float], k: int, groups: int, kept: int, top: int
) -> list[int]:
    """The experts that one token visits, by sorting lists."""
    choice = [s + b for s, b in zip(scores, bias, strict=True)]
    size = len(scores) // groups
    members = [range(g * size, (g + 1) * size) for g in range(groups)]
    value = [sum(sorted((choice[e] for e in group), reverse=True)[:top]) for group in members]
    best = sorted(range(groups), key=lambda g: value[g], reverse=True)[:kept]
    return sorted(
        sorted((e for g in best for e in members[g]), key=lambda e: choice[e], reverse=True)[:k]
    )


@draws(40)
@given(st.data())
def test_routing_in_groups_picks_what_sorting_by_hand_picks(data):
    groups, size = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 4))
    kept, top = data.draw(st.integers(1, groups)), data.draw(st.integers(1, size))
    k = data.draw(st.integers(1, kept * size))
    score, seed = data.draw(st.sampled_from(["softmax", "sigmoid"])), data.draw(st.integers(0, 999))
    logits, bias = draw(6, groups * size, seed=seed), draw(groups * size, seed=seed + 1000, std=0.2)
    experts, weights = route(
        logits,
        k,
        score=score,
        normalize=False,
        groups=groups,
        groups_kept=kept,
        group_top=top,
        bias=bias,
    )
    scores = router_scores(logits, score)
    for row, chosen in zip(scores, experts, strict=True):
        assert sorted(chosen.tolist()) == by_hand(row.tolist(), bias.tolist(), k, groups, kept, top)
    torch.testing.assert_close(weights, scores.gather(1, experts), rtol=0, atol=0)


@pytest.mark.parametrize("score", ["softmax", "sigmoid"])
def test_weights_are_shares_of_the_scale_only_if_normalized(score):
    logits = draw(9, 6)
    _, shares = route(logits, 2, score=score, scale=2.5)
    torch.testing.assert_close(shares.sum(-1), torch.full((9,), 2.5))
    experts, scores = route(logits, 2, score=score, normalize=False, scale=2.5)
    torch.testing.assert_close(scores, 2.5 * router_scores(logits, score).gather(1, experts))


def test_a_bias_changes_who_is_chosen_but_not_what_they_weigh():
    logits, bias = draw(9, 6), torch.tensor([0.0, 0.0, 0.0, 0.0, 0.0, 10.0])
    experts, weights = route(logits, 2, score="sigmoid", normalize=False, bias=bias)
    assert (experts == 5).any(dim=1).all()
    torch.testing.assert_close(weights, logits.sigmoid().gather(1, experts))
    assert not torch.equal(experts, route(logits, 2, score="sigmoid")[0])


def test_sigmoids_that_all_round_to_zero_give_weights_of_zero_not_nan():
    _, weights = route(torch.full((2, 4), -200.0), 2, score="sigmoid")
    assert weights.tolist() == [[0.0, 0.0]] * 2


def test_experts_outside_the_kept_groups_lose_even_to_negative_scores():
    """DeepSeek-V3's bias may make every score of a kept group negative; masking with 0 would then
    let others in."""
    bias = torch.tensor([-3.0, -3.0, -3.0, -9.0, -9.0, -9.0])
    experts, _ = route(
        draw(20, 6), 3, score="sigmoid", groups=2, groups_kept=1, group_top=2, bias=bias
    )
    assert experts.sort().values.tolist() == [[0, 1, 2]] * 20


# Load balance.


def test_the_load_balance_loss_is_one_where_either_share_is_even():
    scores = draw(12, 6).softmax(-1)
    even = torch.arange(24).view(12, 2) % 6  # [12, 2]: four visits for each
    assert load_balance_loss(scores, even).item() == pytest.approx(1.0, abs=1e-6)
    flat = torch.full((12, 6), 1 / 6)
    assert load_balance_loss(flat, torch.zeros(12, 1, dtype=torch.int64)).item() == pytest.approx(
        1.0, abs=1e-6
    )


@pytest.mark.parametrize(("E", "k"), [(6, 1), (6, 2), (5, 5), (1, 1)])
def test_the_load_balance_loss_is_at_most_e_over_k(E, k):
    scores = functional.one_hot(torch.zeros(9, dtype=torch.int64), E).float()
    assert load_balance_loss(scores, scores.topk(k).indices).item() == pytest.approx(E / k)


def test_the_load_balance_loss_is_that_of_transformers_per_visit():
    logits = draw(50, 6)
    experts, _ = route(logits, 3)
    theirs = load_balancing_loss_func((logits,), num_experts=6, top_k=3)
    torch.testing.assert_close(
        load_balance_loss(router_scores(logits), experts), theirs / 3, **SAME
    )


def test_the_load_balance_loss_judges_sigmoids_by_their_shares():
    scores = draw(12, 6).sigmoid()
    experts = scores.topk(2).indices
    shares = scores / scores.sum(-1, keepdim=True)
    torch.testing.assert_close(
        load_balance_loss(scores, experts), load_balance_loss(shares, experts)
    )


# Refusals.


@pytest.mark.parametrize(
    ("k", "more", "says"),
    [
        (0, {}, "between 1 and 6 experts"),
        (7, {}, "between 1 and 6 experts"),
        (3, {"groups": 3, "groups_kept": 1}, "between 1 and 2 experts"),
        (2, {"groups": 4}, "do not fall into 4 groups"),
        (2, {"groups": 0}, "do not fall into 0 groups"),
        (2, {"groups": 3, "groups_kept": 4}, "keeps between 1 and 3 groups"),
        (2, {"groups": 3, "groups_kept": 2, "group_top": 3}, "judged by its best 3"),
        (2, {"score": "tanh"}, '"softmax" or "sigmoid"'),
    ],
)
def test_route_refuses_what_does_not_fit(k, more, says):
    with pytest.raises(ValueError, match=says):
        route(draw(4, 6), k, **more)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"x": draw(2, 4, D)}, r"x \[tokens, D\]"),
        ({"weights": draw(4, 3)}, r"experts, weights \[tokens, k\]"),
        ({"x": draw(5, D)}, r"experts, weights \[tokens, k\]"),
        ({"w_down": draw(5, 7, D)}, r"w_down \[E, D, F\]"),
        ({"w_up": draw(4, 7, D)}, r"w_gate, w_up \[E, F, D\]"),
        ({"x": draw(4, D + 1)}, f"with D = {D + 1}"),
    ],
)
@pytest.mark.parametrize("run", [run_experts, run_all_experts])
def test_running_experts_refuses_what_does_not_fit(change, says, run):
    with pytest.raises(ValueError, match=says):
        run(**(fitting() | change))


def fitting() -> dict[str, torch.Tensor]:
    w_gate, w_up, w_down = bank(5)
    right = {"x": draw(4, D), "experts": torch.tensor([[0, 1]] * 4), "weights": draw(4, 2)}
    return right | {"w_gate": w_gate, "w_up": w_up, "w_down": w_down}


@pytest.mark.parametrize(
    ("experts", "says"),
    [
        (torch.full((4, 2), 5), "sent to expert 5, but there are 5"),
        (torch.zeros(4, 2, dtype=torch.int64, device="meta"), "a meta tensor has none"),
    ],
)
def test_experts_that_are_none_are_refused_where_visits_are_counted(experts, says):
    with pytest.raises(ValueError, match=says):
        run_experts(**(fitting() | {"experts": experts}))


def test_an_activation_that_nobody_knows_is_refused():
    for run in (run_experts, run_all_experts):
        with pytest.raises(ValueError, match='unknown activation "tanh"; known: silu'):
            run(**fitting(), activation="tanh")


def test_without_a_token_every_expert_answers_nothing():
    none = {"x": draw(0, D), "experts": torch.zeros(0, 2, dtype=torch.int64)}
    assert run_all_experts(**(fitting() | none | {"weights": draw(0, 2)})).shape == (0, D)
