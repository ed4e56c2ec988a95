"""sharding-length: one rank's part of a decode step on a cache cut over its length."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import torch

from twophase.checks import edges
from twophase.checks.answer import Answer
from twophase.checks.exercise import Case, Exercise
from twophase.checks.kv_cache._data import alike, normal
from twophase.checks.misconceptions import Misconceptions, replaced
from twophase.checks.sharding._ranks import SUMS

wrong = Misconceptions()

Tensor = torch.Tensor
Gather = Callable[[Tensor], list[Tensor]]


def own_part(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """What a rank brings: [N, H + 2]."""
    (N, H), K = q.shape, k.shape[1]
    read = torch.arange(N) // (N // K)  # the KV head of each query head
    scores = torch.einsum("nh,snh->ns", q, k[:, read]) / math.sqrt(H)  # [N, S]
    m = scores.amax(1) if len(k) else torch.full((N,), -math.inf)  # [N]
    e = (scores - m[:, None]).exp()  # [N, S]
    summed = torch.einsum("ns,snh->nh", e, v[:, read])  # [N, H]
    return torch.cat([summed, m[:, None], e.sum(1)[:, None]], 1)


def merged(parts: list[Tensor]) -> Tensor:
    """The output [N, H] from what all ranks brought."""
    all_parts = torch.stack(parts)  # [n, N, H + 2]
    m, weight = all_parts[..., -2], all_parts[..., -1]
    scale = (m - m.amax(0)).exp()  # [n, N]
    total = (scale * weight).sum(0)  # [N]
    return (scale[..., None] * all_parts[..., :-2]).sum(0) / total[:, None]


def reference(q: Tensor, k: Tensor, v: Tensor, all_gather: Gather) -> Tensor:
    """The right answer."""
    return merged(all_gather(own_part(q, k, v)))


def _with(part: dict[str, str], merge: dict[str, str]) -> Callable[..., Tensor]:
    """The right answer with parts of either half replaced."""
    bring = replaced(own_part, part) if part else own_part
    join = replaced(merged, merge) if merge else merged

    def decode_rank(q: Tensor, k: Tensor, v: Tensor, all_gather: Gather) -> Tensor:
        return join(all_gather(bring(q, k, v)))

    return decode_rank


wrong.add(
    "outputs_averaged",
    _with({}, {"scale = (m - m.amax(0)).exp()": "scale = 1 / weight.clamp(min=1e-30)"}),
    "attention outputs added up like products",
    "You average the ranks' outputs. A rank whose scores are low must count for less: weigh each"
    " with exp(m − largest m).",
)
wrong.add(
    "maxima_ignored",
    _with({}, {"scale = (m - m.amax(0)).exp()": "scale = torch.ones_like(m)"}),
    "plausible",
    "You add sums that were made with different maxima. Bring them to one: times exp(m − largest"
    " m).",
)
wrong.add(
    "own_maximum_for_all",
    _with({}, {"m.amax(0)": "m[0]"}),
    "plausible",
    "You scale to the first rank's maximum: it may be far below the others, or −inf with no"
    " positions.",
)
wrong.add(
    "sums_not_scaled",
    _with({}, {"total = (scale * weight).sum(0)": "total = weight.sum(0)"}),
    "plausible",
    "You scaled the outputs, not the sums of weights: both belong to the rank's own maximum.",
)
wrong.add(
    "scaled_the_other_way",
    _with({}, {"scale = (m - m.amax(0)).exp()": "scale = (m.amax(0) - m).clamp(max=80).exp()"}),
    "signs exchanged",
    "The factor is exp(m − largest m), at most 1; yours makes the low scores count most.",
)
wrong.add(
    "one_maximum_for_all_heads",
    _with({}, {"m.amax(0)": "m.max()"}),
    "plausible",
    "You took one maximum for all heads: where heads differ by a lot, all that is left of one is 0"
    " over 0.",
)
wrong.add(
    "maximum_not_subtracted",
    _with({"e = (scores - m[:, None]).exp()": "e = scores.exp()"}, {}),
    "softmax written as exp over sum",
    "Your exponentials lack the maximum: exp(score − m) is what was asked for, and large scores"
    " overflow.",
)
wrong.add(
    "brings_a_finished_output",
    _with(
        {"torch.cat([summed, m": "torch.cat([summed / e.sum(1)[:, None].clamp(min=1e-30), m"}, {}
    ),
    "flash attention's log-sum-exp interface",
    "You bring an output that is divided already. The task asks for the sums, undivided.",
)
wrong.add(
    "kv_heads_modulo",
    _with({"torch.arange(N) // (N // K)": "torch.arange(N) % K"}, {}),
    "GQA mapping h % K",
    "Query head h reads KV head h // (N/K), not h mod K.",
)
wrong.add(
    "not_scaled",
    _with({" / math.sqrt(H)": ""}, {}),
    "plausible",
    "The scores are not divided by √H.",
)
wrong.add(
    "no_positions_not_expected",
    _with({"torch.full((N,), -math.inf)": "torch.zeros(N)"}, {}),
    "plausible",
    "A rank without positions has no maximum: m is −inf, so that it counts for nothing.",
)


@wrong(
    "plausible",
    "You gather three times: each call has its hops. Pack the sums, m and l into one tensor.",
)
def three_gathers(q: Tensor, k: Tensor, v: Tensor, all_gather: Gather) -> Tensor:
    part = own_part(q, k, v)
    all_gather(part[:, :-2])
    all_gather(part[:, -2])
    return merged(all_gather(part))


def observe(answer: Answer, case: Case) -> dict[str, Any]:
    """One rank among others that do as they should."""
    q, pieces, rank = case.args
    parts = [own_part(q, *piece) for piece in pieces]
    brought: list[Any] = []

    def all_gather(part: Any) -> list[Any]:
        brought.append(part)
        return [*parts[:rank], part, *parts[rank + 1 :]]

    found = answer.call("decode_rank", q, *pieces[rank], all_gather)
    return {"what it brings": brought, "the output": found}


def cases(rng: random.Random) -> list[Case]:
    """One rank, ranks of one position and of none, scores far apart in either order, heads far
    apart, shared KV heads, more of each than any constant."""

    def case(
        lengths: list[int],
        rank: int,
        N: int,
        K: int,
        H: int,
        factors: list[float] | None = None,
        public: bool = True,
    ) -> Case:
        q = normal(rng, N, H)
        pieces = [(normal(rng, s, K, H), normal(rng, s, K, H)) for s in lengths]
        name = f"positions {lengths}, rank {rank}, N={N}, K={K}, H={H}"
        if factors:
            q = q.sign() * (0.5 + q.abs()) * math.sqrt(H)
            along = (
                q.view(K, N // K, H)[:, 0]
                / q.view(K, N // K, H)[:, 0].norm(dim=-1, keepdim=True) ** 2
            )
            pieces = [
                (f * math.sqrt(H) * along[None] + 0.01 * k, alike(rng, *v.shape))
                for f, (k, v) in zip(factors, pieces, strict=True)
            ]
            name += f", scores near {factors}"
        return Case(name, (q, pieces, rank), public=public)

    def heads_apart() -> Case:
        """Head 0 scores near 150, head 1 near −150."""
        q = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
        pieces = []
        for s in (2, 3):
            k = normal(rng, s, 1, 2)
            k[:, :, 0] = 150 * math.sqrt(2) + k[:, :, 0]
            pieces.append((k, alike(rng, s, 1, 2)))
        return Case("heads whose scores are 300 apart", (q, pieces, 0))

    def lowest(*scores: float) -> Case:
        """One head, one position on each rank, scores as low as they may be: a largest score that
        is not allowed to be so low leaves numbers that float32 hardly tells apart."""
        pieces = [
            (torch.tensor([[[score]]]), torch.tensor([[[0.7 - i]]]))
            for i, score in enumerate(scores)
        ]
        said = ", ".join(f"{score:g}".replace("-", "−") for score in scores)
        return Case(f"all scores near −200: {said}", (torch.ones(1, 1), pieces, 0))

    return [
        case([3], 0, 2, 1, 2),
        case([2, 2], 0, 2, 2, 3),
        case([2, 2], 1, 2, 2, 3),
        case([3, 1, 2], 1, 4, 2, 2),
        case([4, 0], 1, 4, 2, 2),
        case([0, 4], 1, 2, 1, 2),
        case([0, 4], 0, 2, 1, 2),
        case([0, 0, 5], 2, 6, 3, 4),
        case([2, 2], 0, 2, 2, 4, [150.0, 10.0]),
        case([2, 2], 0, 2, 2, 4, [10.0, 150.0]),
        case([2, 2, 2], 1, 2, 2, 4, [-150.0, -152.0, -151.0]),
        case([2, 2], 0, 2, 2, 4, [199.0, 150.0]),
        case([2, 2], 1, 2, 2, 4, [-195.0, -199.0]),
        heads_apart(),
        lowest(-200.0),
        lowest(-200.0, -199.0),
        case([1] * edges.past(16), 5, 2, 1, 2),
        case([edges.past(1024), 2], 0, 2, 1, 2),
        case([1, 2], 1, edges.past(64), 1, 2),
        case([2, 1], 0, 2, 1, edges.past(128)),
        case([rng.randrange(1, 6) for _ in range(4)], 2, 6, 2, 5, public=False),
    ]


EXERCISE = Exercise(
    id="sharding-length",
    title="A cache cut over its length",
    kind="kernel",
    points=5,
    minutes=25,
    entries=("decode_rank",),
    cases=cases,
    observe=observe,
    reference={"decode_rank": reference},
    compare=SUMS,
    misconceptions=tuple(wrong),
    hints=(
        "Each rank makes a softmax over its own positions, but keeps what is above and below the"
        " fraction bar apart.",
        (
            "Bring [Σ exp(score − m)·value, m, Σ exp(score − m)] for each head. Before anything is"
            " added, each rank's sums are multiplied with exp(m − the largest m of that head)."
        ),
        (
            "M = m.amax over ranks; f = exp(m − M); output = Σ f·sums / Σ f·l. A rank without"
            " positions brings zeros, −inf and 0, and counts for nothing."
        ),
    ),
    ranges={"k.shape[0]": (0, 1031)},
    recall=(
        "What does each rank send so that a cache cut over its length gives the exact output?",
        "For each head the unnormalized output, the largest score and the sum of exponentials: H"
        " + 2 numbers, whatever the length.",
    ),
)
