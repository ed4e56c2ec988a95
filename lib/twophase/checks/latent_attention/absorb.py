"""latent_attention-absorb: the up-projections merged into the matrices beside them."""

from __future__ import annotations

import random
from functools import partial

import torch

from twophase.checks import edges
from twophase.checks.compare import Tolerance
from twophase.checks.exercise import Case, Exercise
from twophase.checks.kv_cache._data import normal
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()

Tensor = torch.Tensor


def reference(w_q: Tensor, w_uk: Tensor, w_uv: Tensor, w_o: Tensor) -> tuple[Tensor, Tensor]:
    """The right answer."""
    w_qk = torch.einsum("ndr,ndx->nrx", w_uk, w_q)  # [N, R, D]
    w_vo = torch.einsum("xnd,ndr->nxr", w_o, w_uv)  # [N, D, R]
    return w_qk, w_vo


wrong.add(
    "transposed",
    replaced(reference, {"return w_qk, w_vo": "return w_qk.mT, w_vo.mT"}),
    "x @ W written where W @ x is meant",
    "Both are the transposes of what is wanted: w_qk[n] @ x is a query of width R, w_vo[n] @ z an"
    " output of width D.",
)
wrong.add(
    "the_other_way_round",
    replaced(reference, {"return w_qk, w_vo": "return w_vo, w_qk"}),
    "plausible",
    "The pair is the wrong way round: first what makes queries, then what makes outputs.",
)
wrong.add(
    "heads_added_up",
    replaced(reference, {"return w_qk, w_vo": "return w_qk.sum(0), w_vo.sum(0)"}),
    "plausible",
    "You added the heads up. The latent is shared, the up-projections are not: each head has a"
    " matrix of its own.",
)
wrong.add(
    "first_head_for_all",
    replaced(
        reference,
        {"return w_qk, w_vo": "return w_qk[:1].expand_as(w_qk), w_vo[:1].expand_as(w_vo)"},
    ),
    "plausible",
    "All your heads are the first one.",
)
wrong.add(
    "queries_not_merged",
    replaced(reference, {'torch.einsum("ndr,ndx->nrx", w_uk, w_q)': "w_uk.mT"}),
    "DeepSeek's inference code, which absorbs at run time",
    "Your first matrix takes q_nope. Merge w_q into it, too: it is to take x, of width D.",
)
wrong.add(
    "outputs_not_merged",
    replaced(reference, {'torch.einsum("xnd,ndr->nxr", w_o, w_uv)': "w_uv"}),
    "DeepSeek's inference code, which unfolds the sum at run time",
    "Your second matrix gives a head's value. Merge w_o into it, too: it is to give an output of"
    " width D.",
)
wrong.add(
    "scale_merged",
    replaced(
        reference,
        {"return w_qk, w_vo": "return w_qk / w_q.shape[1] ** 0.5, w_vo"},
    ),
    "plausible",
    "You divided by the root of the head's width: the scale stays with the scores here, and the"
    " rotated part counts in it.",
)
wrong.add(
    "output_heads_in_turn",
    replaced(
        reference,
        {'"xnd,ndr->nxr", w_o,': '"xdn,ndr->nxr", w_o.flatten(1).view(len(w_o), -1, len(w_uv)),'},
    ),
    "an output matrix [D, N·v_dim] viewed as [D, v_dim, N]",
    "You mixed the heads of w_o: the numbers of one head lie side by side in a row.",
)
wrong.add(
    "query_heads_in_turn",
    replaced(
        reference,
        {"w_uk, w_q)": "w_uk, w_q.flatten(0, 1).view(-1, len(w_q), w_q.shape[2]).transpose(0, 1))"},
    ),
    "a query matrix [N·nope_dim, D] viewed as [nope_dim, N, D]",
    "You mixed the heads of w_q: the rows of one head lie one below the other.",
)
wrong.add(
    "inverted",
    replaced(
        reference, {'torch.einsum("ndr,ndx->nrx", w_uk, w_q)': "torch.linalg.pinv(w_uk) @ w_q"}
    ),
    "“absorbing inverts the up-projection”",
    "Nothing is inverted: q · (W c) = (Wᵀ q) · c holds for every W.",
)


def _case(
    rng: random.Random,
    N: int,
    D: int,
    nope: int,
    v: int,
    R: int,
    says: str = "",
    public: bool = True,
) -> Case:
    given = (
        normal(rng, N, nope, D),
        normal(rng, N, nope, R),
        normal(rng, N, v, R),
        normal(rng, D, N, v),
    )
    name = f"N={N}, D={D}, nope_dim={nope}, v_dim={v}, R={R}{says}"
    return Case(name, given, public=public)


def _but_for_one(rng: random.Random) -> list[Case]:
    """Calls that differ in one argument alone: whoever remembers by the others is wrong here."""
    one, other = (_case(rng, 2, 4, 2, 3, 1) for _ in range(2))
    names = "w_q", "w_uk", "w_uv", "w_o"
    return edges.crossed(one, other, *(f"another {name}" for name in names))


def cases(rng: random.Random) -> list[Case]:
    """One head of one number; each matrix changed alone; widths in every order; square matrices;
    DeepSeek-V2's widths; more of each than any constant."""
    case = partial(_case, rng)

    return [
        case(1, 2, 1, 1, 1),
        case(2, 3, 2, 2, 2),
        # of the same sizes: whoever keeps results by shape is wrong here
        case(2, 3, 2, 2, 2, says=", other numbers"),
        *_but_for_one(random.Random("latent_attention-absorb")),
        case(3, 7, 2, 4, 5),
        case(2, 5, 6, 3, 4),
        case(4, 6, 3, 3, 12),
        case(2, 4, 4, 4, 4),
        case(3, 3, 2, 4, 5),  # as many heads as numbers of a token
        case(3, 3, 3, 3, 3),
        case(2, 40, 128, 128, 512),
        case(edges.past(128), 3, 2, 3, 2),
        case(2, edges.past(2048), 2, 3, 2),
        case(2, 3, edges.past(2048), 2, 3),
        case(2, 3, 2, edges.past(2048), 3),
        case(2, 3, 2, 3, edges.past(2048)),
        case(edges.past(2048), 2, 2, 2, 2),
        case(rng.randrange(3, 7), rng.randrange(8, 20), 5, 6, rng.randrange(7, 15), public=False),
    ]


EXERCISE = Exercise(
    id="latent_attention-absorb",
    title="Absorb the up-projections",
    kind="kernel",
    points=4,
    minutes=15,
    entries=("absorb",),
    cases=cases,
    reference=reference,
    compare=Tolerance(
        rtol=1e-4,
        atol=2e-3,
        dtype=True,
        why="fp32 sums of up to 2,053 products in another order differ by 1e-4; wrong ones by 0.1",
    ),
    misconceptions=tuple(wrong),
    hints=(
        (
            "Write the score of one head with all its matrices: (w_q x) · (w_uk c). Move w_uk to"
            " the other side of the dot."
        ),
        (
            "(w_q x) · (w_uk c) = (w_ukᵀ w_q x) · c. And the output: w_o (w_uv z) = (w_o w_uv) z,"
            " with that head's columns of w_o."
        ),
        (
            'torch.einsum("ndr,ndx->nrx", w_uk, w_q) is [N, R, D]. For the second: w_o is [D, N,'
            " v_dim], w_uv is [N, v_dim, R], and v_dim is summed."
        ),
    ),
    recall=(
        "What makes absorbing possible, and what would forbid it?",
        (
            "Two matrices side by side with nothing between them are one matrix. A rotation that"
            " depends on the position would stand between w_q and w_uk."
        ),
    ),
)
