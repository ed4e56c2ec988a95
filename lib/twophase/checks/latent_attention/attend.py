"""latent_attention-attend: attention on the latents themselves."""

from __future__ import annotations

import math
import random

import torch

from twophase.checks import edges
from twophase.checks.compare import Tolerance
from twophase.checks.exercise import Case, Exercise
from twophase.checks.kv_cache._data import alike, normal, scored
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()

Tensor = torch.Tensor


def reference(
    q_latent: Tensor, q_rope: Tensor, latent: Tensor, k_rope: Tensor, scale: float
) -> Tensor:
    """The right answer."""
    T, S = q_latent.shape[1], latent.shape[1]
    scores = torch.einsum("btnr,bsr->bnts", q_latent, latent)  # [B, N, T, S]
    rotated = torch.einsum("btnd,bsd->bnts", q_rope, k_rope)  # [B, N, T, S]
    last = S - T + torch.arange(T)[:, None]  # [T, 1]: the last position that query t sees
    hidden = torch.arange(S) > last  # [T, S]
    seen = (scale * (scores + rotated)).masked_fill(hidden, -math.inf)  # [B, N, T, S]
    weights = seen.softmax(-1)  # [B, N, T, S]
    return torch.einsum("bnts,bsr->btnr", weights, latent)  # [B, T, N, R]


wrong.add(
    "rotated_part_left_out",
    replaced(reference, {"scores + rotated": "scores"}),
    "MLA without its decoupled key (rasbt 05_mla)",
    "The scores lack their rotated part, q_rope · k_rope: without it the model knows no positions.",
)
wrong.add(
    "rotated_part_alone",
    replaced(reference, {"scores + rotated": "rotated"}),
    "plausible",
    "The scores are the rotated part alone: q_latent · latent belongs to them as well.",
)
wrong.add(
    "one_part_scaled",
    replaced(reference, {"scale * (scores + rotated)": "scale * scores + rotated"}),
    "a bias added after scaling",
    "You scaled one part of the scores: scale multiplies their sum.",
)
wrong.add(
    "not_scaled",
    replaced(reference, {"scale * (scores + rotated)": "(scores + rotated)"}),
    "plausible",
    "The scores are not multiplied with scale.",
)
wrong.add(
    "scale_of_the_latent",
    replaced(reference, {"scale * (": "(q_latent.shape[3] + q_rope.shape[3]) ** -0.5 * ("}),
    "F.scaled_dot_product_attention without scale=",
    "You divided by the root of R + rope_dim. The scale is that of the head that was absorbed; it"
    " is given.",
)
wrong.add(
    "divided_by_scale",
    replaced(reference, {"scale * (scores + rotated)": "((scores + rotated) / scale)"}),
    "plausible",
    "You divided by scale: it multiplies the scores.",
)
wrong.add(
    "mask_top_left",
    replaced(reference, {"S - T + torch": "torch"}),
    "F.scaled_dot_product_attention(is_causal=True) with T < S",
    "Your mask starts at the top left. The T queries are the last of S: query t sees positions up"
    " to S − T + t.",
)
wrong.add(
    "mask_top_left_of_blocks",
    replaced(reference, {"S - T + torch": "(0 if T > 1 else S - T) + torch"}),
    "is_causal=T > 1 in F.scaled_dot_product_attention",
    "Right for a prompt and for one token. A block after a cache (1 < T < S) wants the mask at the"
    " bottom right.",
)
wrong.add(
    "no_mask",
    replaced(reference, {"> last": "> S"}),
    "absorbed code written for decode",
    "Nothing is masked: with T > 1 the earlier queries see latents of their own future.",
)
wrong.add(
    "itself_hidden",
    replaced(reference, {"S - T + torch": "S - T - 1 + torch"}),
    "the cached step that excluded the current token",
    "Each query is kept from its own position: the mask is off by one.",
)
wrong.add(
    "one_query_for_all_heads",
    replaced(
        reference,
        {
            'torch.einsum("btnr,bsr->bnts", q_latent, latent)': (
                'torch.einsum("btnr,bsr->bnts", q_latent.mean(2, keepdim=True).expand_as('
                "q_latent), latent)"
            )
        },
    ),
    "“MLA is MQA”, taken too far",
    "All heads share the latent, not the query: each has scores of its own.",
)
wrong.add(
    "softmax_over_queries",
    replaced(reference, {"softmax(-1)": "softmax(-2)"}),
    "softmax on the wrong axis",
    "The weights sum to 1 over the queries: each query's weights must sum to 1 over its positions.",
)
wrong.add(
    "keys_come_back_too",
    replaced(
        reference,
        {
            'torch.einsum("bnts,bsr->btnr", weights, latent)': (
                'torch.einsum("bnts,bsr->btnr", weights, torch.cat([latent, k_rope], -1))'
            )
        },
    ),
    "one concatenated cache used as key and as value",
    "Your sums are R + rope_dim wide: the rotated key is a part of the key only; the value is the"
    " latent.",
)
wrong.add(
    "hidden_at_minus_100",
    replaced(reference, {"-math.inf": "-100.0"}),
    "masked_fill(hidden, -100)",
    "You set hidden scores to −100. Visible ones may be lower, and then the future wins: use"
    " float('-inf').",
)
wrong.add(
    "overflows",
    replaced(
        reference,
        {
            "seen.softmax(-1)": "seen.exp()",
            "weights, latent)": "weights / weights.sum(-1, keepdim=True), latent)",
        },
    ),
    "softmax written as exp over sum",
    "Large scores overflow in the exponential: subtract each query's largest score first, as"
    " torch.softmax does.",
)


def _case(rng: random.Random, *sizes: int, scale: float, public: bool = True) -> Case:
    B, T, S, N, R, rope_dim = sizes
    name = f"B={B}, T={T}, S={S}, N={N}, R={R}, rope_dim={rope_dim}, scale={scale}"
    given = (
        normal(rng, B, T, N, R),
        normal(rng, B, T, N, rope_dim),
        normal(rng, B, S, R),
        normal(rng, B, S, rope_dim),
        scale,
    )
    return Case(name, given, public=public)


def _scaled(scale: float) -> Case:
    """Scores of 1 and 2.5, whatever the scale: it is a power of two, and the queries are 1/scale.
    Two latents, 0 and 1."""
    query = torch.ones(1, 1, 1, 2) / scale  # [B, T, N, R], and as wide for the rotated part
    latent = torch.tensor([[[0.0, 0.0], [0.0, 1.0]]])  # [B, S, R]
    k_rope = torch.tensor([[[1.0, 0.0], [0.5, 1.0]]])
    return Case(
        f"scores of 1 and 2.5, scale={scale:g}", (query, query.clone(), latent, k_rope, scale)
    )


def _scored(rng: random.Random, name: str, scores: list[list[float]]) -> Case:
    """One sequence, one head; half of each score [T, S] comes from either part, times 2, over 4."""
    wanted = torch.tensor([scores])  # [1, T, S]
    _, T, S = wanted.shape
    q, k = scored(wanted, 4)  # [1, T, 4] and [1, S, 4]
    latent = torch.cat([k, alike(rng, 1, S, 3)], -1)  # [1, S, 7]: what is summed differs
    q_latent = torch.cat([q, torch.zeros(1, T, 3)], -1)  # [1, T, 7]
    both = (q_latent @ latent.mT + q @ k.mT) / 4  # [1, T, S]
    assert both.equal(wanted), "these are the scores"
    given = (q_latent[:, :, None], q[:, :, None], latent, k, 0.25)
    return Case(f"T={T}, S={S}, N=1, R=7, {name}", given)


def _hardly_hidden(rng: random.Random) -> Case:
    """A visible score as low as may be, and a hidden latent that is large where no query looks: a
    score of −910 in the place of −∞ gives it a weight of exp(−10)."""
    case = _scored(rng, "a latent of a million hidden", [[-900.0, 900.0], [900.0, -900.0]])
    latent = case.args[2]  # [1, 2, 7]
    latent[:, 1, 4:] = 1e6
    return case


def _but_for_one(rng: random.Random) -> list[Case]:
    """Calls that differ in one argument alone: whoever remembers by the others is wrong here."""
    one, other = (_case(rng, 1, 2, 3, 2, 2, 2, scale=scale) for scale in (0.5, 1.0))
    names = "q_latent", "q_rope", "latent", "k_rope", "scale"
    return edges.crossed(one, other, *(f"another {name}" for name in names))


def cases(rng: random.Random) -> list[Case]:
    """One query over a cache, a prompt, a block after a cache; one head and many; extreme scores
    and scales; more of each size than any constant."""
    return [
        _case(rng, 1, 1, 1, 1, 2, 2, scale=1.0),
        _case(rng, 1, 1, 4, 2, 3, 2, scale=0.5),
        _case(rng, 1, 3, 3, 2, 4, 2, scale=0.4),
        *_but_for_one(random.Random("latent_attention-attend")),
        _case(rng, 2, 1, 6, 3, 5, 4, scale=0.35),
        _case(rng, 2, 2, 5, 4, 6, 2, scale=0.25),
        _case(rng, 1, 2, 4, 2, 2, 6, scale=0.3),
        _scored(rng, "two equal scores", [[1.0, 3.0, 3.0]]),
        _scored(rng, "a score of 150", [[150.0, 149.0, 0.0]]),
        _scored(rng, "scores of −200", [[-200.0, -199.5, -201.0]]),
        _scored(rng, "300 in the future of −150", [[-150.0, 300.0], [-151.0, -150.0]]),
        _scored(
            rng,
            "one query's scores near −900, one's near 900",
            [[-900.0, -899.5, 900.0], [898.0, 897.0, 900.0]],
        ),
        _hardly_hidden(rng),
        _scaled(4.0),
        _scaled(2.0**-13),
        _case(rng, 1, 1, 33, 16, 512, 64, scale=192**-0.5),
        _case(rng, edges.past(64), 1, 3, 2, 2, 2, scale=0.5),
        _case(rng, 1, 2, 3, edges.past(128), 2, 2, scale=0.5),
        _case(rng, 1, 1, edges.past(4096), 2, 2, 2, scale=0.5),
        _case(rng, 1, edges.past(128), edges.past(128) + 2, 1, 2, 2, scale=0.5),
        _case(rng, 1, 1, 2, 2, edges.past(2048), 2, scale=0.01),
        _case(rng, 1, 1, 2, 2, 2, edges.past(2048), scale=0.01),
        _case(rng, 2, rng.randrange(2, 5), 8, 3, rng.randrange(3, 9), 4, scale=0.3, public=False),
    ]


EXERCISE = Exercise(
    id="latent_attention-attend",
    title="Attention on latents",
    kind="kernel",
    points=5,
    minutes=25,
    entries=("attend",),
    cases=cases,
    reference=reference,
    compare=Tolerance(
        rtol=1e-4,
        atol=1e-4,
        dtype=True,
        why="fp32 sums in another order differ by 1e-5; wrong answers by 1e-3 and more",
    ),
    misconceptions=tuple(wrong),
    hints=(
        "One key, one value, N queries: the latent has no axis of heads. What is summed?",
        (
            "Scores [B, N, T, S]: q_latent · latent + q_rope · k_rope, their sum times scale. Query"
            " t stands at position S − T + t."
        ),
        (
            'torch.einsum("btnr,bsr->bnts", q_latent, latent), the same for the rotated part; mask,'
            ' softmax over S; torch.einsum("bnts,bsr->btnr", weights, latent).'
        ),
    ),
    ranges={"scale": (2.0**-13, 4.0)},
    recall=(
        "In absorbed attention, what are the key and the value of a cached token?",
        "The key is [latent, rotated key], the value the latent; all N heads share both.",
    ),
)
