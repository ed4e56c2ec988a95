"""kv_cache-rope_cached: positions go on counting from what the cache holds."""

from __future__ import annotations

import random

import torch

from twophase.checks import edges
from twophase.checks.compare import Tolerance
from twophase.checks.exercise import Case, Exercise
from twophase.checks.kv_cache._data import normal
from twophase.checks.misconceptions import Misconceptions

wrong = Misconceptions()

Tensor = torch.Tensor
Three = tuple[Tensor, Tensor, Tensor]


def _angles(positions: Tensor, H: int, theta: float, power: float = 2.0) -> Tensor:
    pair = torch.arange(H // 2, dtype=torch.float64)  # [H/2]
    return positions.double()[:, None] * theta ** (-power * pair / H)  # [T, H/2]


def _turn(x: Tensor, angles: Tensor) -> Tensor:
    cos, sin = angles.cos().float()[:, None], angles.sin().float()[:, None]  # [T, 1, H/2]
    a, b = x.chunk(2, dim=-1)  # [B, T, heads, H/2] each
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)  # [B, T, heads, H]


def _positions(q: Tensor, n_cached: int) -> Tensor:
    return torch.arange(n_cached, n_cached + q.shape[1])  # [T]


def reference(q: Tensor, k: Tensor, v: Tensor, n_cached: int, theta: float) -> Three:
    """The right answer: positions n_cached … n_cached + T − 1, queries and keys turned, values as
    they are."""
    angles = _angles(_positions(q, n_cached), q.shape[-1], theta)
    return _turn(q, angles), _turn(k, angles), v


@wrong(
    "cached generation in which every step ran at position 0 (TinyTorch #1953)",
    "Positions restart at 0 in every call: the first new token stands at position n_cached.",
)
def offset_restarts(q: Tensor, k: Tensor, v: Tensor, n_cached: int, theta: float) -> Three:
    return reference(q, k, v, 0, theta)


@wrong(
    "a course's text against its own test (CS336 A1 #4)",
    "You counted positions from 1: the first token of all stands at position 0, and is not turned.",
)
def one_indexed(q: Tensor, k: Tensor, v: Tensor, n_cached: int, theta: float) -> Three:
    return reference(q, k, v, n_cached + 1, theta)


@wrong(
    "decode code used for a prompt",
    "All T tokens were turned by the same angle: token t stands at n_cached + t.",
)
def one_position_for_all(q: Tensor, k: Tensor, v: Tensor, n_cached: int, theta: float) -> Three:
    angles = _angles(torch.full((q.shape[1],), n_cached), q.shape[-1], theta)
    return _turn(q, angles), _turn(k, angles), v


@wrong(
    "plausible",
    "The values were turned too: positions matter only in the product of query and key.",
)
def values_turned(q: Tensor, k: Tensor, v: Tensor, n_cached: int, theta: float) -> Three:
    angles = _angles(_positions(q, n_cached), q.shape[-1], theta)
    return _turn(q, angles), _turn(k, angles), _turn(v, angles)


@wrong(
    "plausible",
    "The queries were not turned: only with both turned does the product depend on the distance"
    " alone.",
)
def queries_left(q: Tensor, k: Tensor, v: Tensor, n_cached: int, theta: float) -> Three:
    angles = _angles(_positions(q, n_cached), q.shape[-1], theta)
    return q, _turn(k, angles), v


@wrong(
    "a sign in the rotation matrix",
    "You turned the other way. Products stay right within your code, and a trained checkpoint"
    " breaks.",
)
def backwards(q: Tensor, k: Tensor, v: Tensor, n_cached: int, theta: float) -> Three:
    angles = -_angles(_positions(q, n_cached), q.shape[-1], theta)
    return _turn(q, angles), _turn(k, angles), v


@wrong(
    "i/H read for 2i/H",
    "The frequencies are theta^(−2i/H) for i = 0 … H/2 − 1; you used theta^(−i/H).",
)
def half_the_exponent(q: Tensor, k: Tensor, v: Tensor, n_cached: int, theta: float) -> Three:
    angles = _angles(_positions(q, n_cached), q.shape[-1], theta, power=1.0)
    return _turn(q, angles), _turn(k, angles), v


@wrong(
    "a default of 10,000 used for a model with another base",
    "theta is an argument: you used 10,000.",
)
def theta_ignored(q: Tensor, k: Tensor, v: Tensor, n_cached: int, theta: float) -> Three:
    return reference(q, k, v, n_cached, 10_000.0)


@wrong(
    "the other pairing, in a course's own reference (tiny-llm #63)",
    "You paired neighbors, 2i with 2i + 1. Here number i goes with number i + H/2.",
)
def interleaved(q: Tensor, k: Tensor, v: Tensor, n_cached: int, theta: float) -> Three:
    H = q.shape[-1]
    order = torch.arange(H).view(H // 2, 2).T.reshape(-1)  # [H]: even places first, then odd ones
    back = order.argsort()  # [H]
    turned = reference(q[..., order], k[..., order], v, n_cached, theta)
    return turned[0][..., back], turned[1][..., back], v


@wrong(
    "a table of cosines for 2,048 positions",
    "Positions begin again after 2,048: a cache may be longer than any table. Compute the angles of"
    " the T positions that you need.",
)
def table_of_2048(q: Tensor, k: Tensor, v: Tensor, n_cached: int, theta: float) -> Three:
    angles = _angles(_positions(q, n_cached) % 2048, q.shape[-1], theta)
    return _turn(q, angles), _turn(k, angles), v


@wrong(
    "models cast to bfloat16 with their positions",
    "Your positions are bfloat16, which holds whole numbers to 256 only: beyond that, two share"
    " an angle. Keep positions and angles in float32 or better.",
)
def positions_in_bfloat16(q: Tensor, k: Tensor, v: Tensor, n_cached: int, theta: float) -> Three:
    angles = _angles(_positions(q, n_cached).bfloat16(), q.shape[-1], theta)
    return _turn(q, angles), _turn(k, angles), v


def _case(
    rng: random.Random,
    B: int,
    T: int,
    N: int,
    K: int,
    H: int,
    n_cached: int,
    theta: float = 10_000.0,
    public: bool = True,
    of_values: float = 1.0,
    says: str = "",
) -> Case:
    """Values are `of_values` times as large as the rest: they are handed on as they are, so that no
    tolerance is for them. Angles in float32 must be good to 3e-4: float32 holds p · theta^(−2i/H)
    to 3 parts in 10⁷, and p itself (i = 0) exactly."""
    if H > 2:
        assert n_cached * theta ** (-2 / H) < 1_000, "float32 is good enough for the second pair"
    q, k, v = normal(rng, B, T, N, H), normal(rng, B, T, K, H), normal(rng, B, T, K, H)
    v = v * of_values
    name = f"B={B}, T={T}, N={N}, K={K}, H={H}, {n_cached} cached, theta={theta:g}{says}"
    return Case(name, (q, k, v, n_cached, theta), public=public)


def cases(rng: random.Random) -> list[Case]:
    """An empty cache, one new token, a block of new tokens; positions where every pair has turned
    visibly; each argument changed alone; one width with two thetas, one theta with two widths; more
    of each size than any constant, positions too."""
    own = random.Random(33)
    one, other = (_case(own, 1, 2, 2, 1, 6, n, theta) for n, theta in ((4, 900.0), (7, 300.0)))
    return [
        _case(rng, 1, 1, 1, 1, 4, 0),
        _case(rng, 1, 1, 2, 1, 4, 3),
        # of the same sizes: whoever keeps results by shape is wrong here
        _case(rng, 1, 1, 2, 1, 4, 3, says=", other numbers"),
        _case(rng, 1, 1, 2, 1, 4, 3, 500.0),
        *edges.crossed(
            one, other, "other q", "other k", "other v", "but 7 cached", "but theta=300"
        ),
        # frequencies that are kept by theta alone are those of another width
        _case(rng, 1, 2, 2, 1, 8, 5, 700.0),
        _case(rng, 1, 2, 2, 1, 4, 5, 700.0),
        _case(rng, 1, 2, 2, 1, 4, 5, 300.0),
        _case(rng, 1, 2, 2, 1, 8, 5, 300.0),
        _case(rng, 1, 3, 2, 1, 6, 0),
        _case(rng, 1, 3, 2, 1, 6, 1),
        _case(rng, 2, 4, 6, 2, 8, rng.randrange(5, 90), of_values=2.0**16),
        _case(rng, 2, 2, 3, 3, 10, rng.randrange(100, 900), 500.0),
        _case(rng, 1, 3, 3, 3, 2, edges.past(2048)),  # T = N = K
        _case(rng, 1, 2, 1, 1, 4, edges.past(2048), 100.0),
        _case(rng, 1, 3, 2, 2, 2, edges.past(8192)),
        _case(rng, 1, 3, 1, 1, 4, edges.past(2**17), 1e6),
        _case(rng, 1, 3, 2, 1, 2, edges.past(2**20)),
        _case(rng, 1, 2, 1, 1, edges.past(128) * 2, 900),
        _case(rng, edges.past(8), 2, edges.past(32), 1, 2, 1),
        _case(rng, 1, edges.past(128), 1, 1, 2, 1),
        _case(rng, 3, 5, 4, 2, 12, rng.randrange(900, 1_500), 1e6, public=False, of_values=2.0**16),
    ]


EXERCISE = Exercise(
    id="kv_cache-rope_cached",
    title="RoPE under a cache",
    kind="kernel",
    points=4,
    minutes=15,
    entries=("turn",),
    cases=cases,
    reference=reference,
    compare=Tolerance(
        rtol=0.0,
        atol=2e-3,
        dtype=True,
        why=(
            "angles in fp32 are good to 2e-4 at the positions used here; wrong ones miss by 0.1 and"
            " more"
        ),
    ),
    misconceptions=tuple(wrong),
    hints=(
        (
            "Which position does the first of the T new tokens have, if n_cached tokens came"
            " before it?"
        ),
        (
            "angles[t, i] = (n_cached + t) · theta^(−2i/H). Split the last axis in two halves: "
            "(a, b) → (a·cos − b·sin, b·cos + a·sin)."
        ),
        (
            "cos and sin are [T, H/2] and the heads lie between: index them [:, None]. Turn q and"
            " k, hand v back as it came."
        ),
    ),
    ranges={"n_cached": (0, 100_000)},
    recall=(
        "Why can turned keys stay in the cache untouched, whatever comes later?",
        (
            "A product of turned query and key depends on their distance only, and absolute"
            " positions never change."
        ),
    ),
)
