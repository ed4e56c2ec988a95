"""quantization-gptq_column: one column is rounded, and those to come make up for it."""

from __future__ import annotations

import random

import torch

from twophase.checks import edges
from twophase.checks.compare import Tolerance
from twophase.checks.exercise import Case, Exercise
from twophase.checks.kv_cache._data import normal
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()

Tensor = torch.Tensor


def reference(w: Tensor, h_inverse: Tensor, rounded: Tensor) -> tuple[Tensor, Tensor]:
    """The right answer."""
    row = h_inverse[0] / h_inverse[0, 0]  # [m]
    moved = w - torch.outer(w[:, 0] - rounded, row)  # [O, m]
    left = h_inverse - torch.outer(h_inverse[:, 0], row)  # [m, m]
    return moved[:, 1:], left[1:, 1:]


def _change(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


_change(
    "moved_the_other_way",
    {"moved = w - torch": "moved = w + torch"},
    "a sign lost",
    "Your columns move the wrong way: they double the error instead of making up for it.",
)
_change(
    "nothing_moves",
    {"- torch.outer(w[:, 0] - rounded, row)": "- 0 * torch.outer(w[:, 0] - rounded, row)"},
    "round to nearest",
    "The columns to come do not move: that is rounding to nearest.",
)
_change(
    "not_divided",
    {
        "moved = w - torch.outer(w[:, 0] - rounded, row)": (
            "moved = w - torch.outer(w[:, 0] - rounded, h_inverse[0])"
        )
    },
    "plausible",
    "You did not divide by the corner of the inverse: the rounded column must move by exactly its"
    " error.",
)
_change(
    "divided_by_the_root",
    {
        "moved = w - torch.outer(w[:, 0] - rounded, row)": (
            "moved = w - torch.outer(w[:, 0] - rounded, h_inverse[0] / h_inverse[0, 0] ** 0.5)"
        )
    },
    "the Cholesky factor's row taken for the inverse's",
    "You divided by the root of the corner. With the inverse itself it is the corner; the root"
    " belongs to a Cholesky factor's row.",
)
_change(
    "each_by_its_own_diagonal",
    {"row = h_inverse[0] / h_inverse[0, 0]": "row = h_inverse[0] / h_inverse.diagonal()"},
    "plausible",
    "You divided each column's move by its own diagonal: all are divided by that of the rounded"
    " column.",
)
_change(
    "hessian_for_its_inverse",
    {
        "row = h_inverse[0] / h_inverse[0, 0]": (
            "h = torch.linalg.inv(h_inverse)\n    row = h[0] / h[0, 0]"
        )
    },
    "plausible",
    "You used the Hessian's row. The best move comes from the row of its *inverse*.",
)
_change(
    "inverse_only_cut",
    {"h_inverse - torch.outer(h_inverse[:, 0], row)": "h_inverse"},
    "plausible",
    "You cut the inverse down to the columns that are left. The inverse of what is left of H is not"
    " the rest of its inverse: eliminate the rounded column first.",
)
_change(
    "eliminated_without_dividing",
    {"torch.outer(h_inverse[:, 0], row)": "torch.outer(h_inverse[:, 0], h_inverse[0])"},
    "plausible",
    "You forgot to divide by the corner when you eliminated the column.",
)
_change(
    "hessian_left",
    {
        "return moved[:, 1:], left[1:, 1:]": (
            "return moved[:, 1:], torch.linalg.inv(h_inverse)[1:, 1:]"
        )
    },
    "plausible",
    "You returned what is left of the Hessian: its inverse is asked for.",
)
_change(
    "rounded_for_its_error",
    {"w[:, 0] - rounded, row": "rounded, row"},
    "plausible",
    "You moved by the rounded column: it is its error, w[:, 0] − rounded, that is made up for.",
)
_change(
    "rounded_column_kept",
    {"moved[:, 1:], left": "moved, left"},
    "plausible",
    "You returned the rounded column, too: only those to come are asked for.",
)


def hessian(rng: random.Random, m: int, n: int) -> Tensor:
    """XᵀX of n inputs whose channels are alike and of other sizes, a little on its diagonal."""
    x = normal(rng, n, m, dtype="float64")
    x = (x + 0.7 * x[:, :1]) * torch.linspace(0.5, 2.0, m, dtype=torch.float64)
    h = x.T @ x
    return h + 0.01 * h.diagonal().mean() * torch.eye(m, dtype=torch.float64)


def cases(rng: random.Random) -> list[Case]:
    """A Hessian by hand; independent inputs; one column left; one row; a column that is exact
    already; fewer inputs than columns; sizes past any constant."""

    def case(O: int, m: int, n: int, public: bool = True) -> Case:
        w = normal(rng, O, m, dtype="float64")
        h = torch.linalg.inv(hessian(rng, m, n))
        rounded = (2 * w[:, 0]).round() / 2
        return Case(f"[{O}, {m}], {n} inputs", (w, (h + h.T) / 2, rounded), public=public)

    w = torch.tensor([[0.7, 1.0, -0.4], [-0.2, 0.3, 0.5]], dtype=torch.float64)
    hand = torch.linalg.inv(
        torch.tensor([[4.0, 2.0, 0.0], [2.0, 3.0, 1.0], [0.0, 1.0, 2.0]], dtype=torch.float64)
    )
    alone = torch.diag(torch.tensor([0.5, 2.0, 1.0], dtype=torch.float64))
    ones = torch.tensor([1.0, 0.0], dtype=torch.float64)
    alike = torch.tensor([[1.0, 1 - 1e-6, 0.5], [1 - 1e-6, 1.0, 0.5], [0.5, 0.5, 1.0]]).double()
    alike = torch.linalg.inv(alike)
    loud = torch.linalg.inv(torch.tensor([[3e8, 1e8], [1e8, 2e8]], dtype=torch.float64))
    pair = torch.linalg.inv(torch.tensor([[2.0, 1.0], [1.0, 2.0]], dtype=torch.float64))
    row, far = (torch.tensor([r], dtype=torch.float64) for r in ([1.3, 2.0], [7.3, -1.6499]))
    return [
        Case("by hand", (w, hand, ones)),
        Case("by hand, other weights", (w.flip(1), hand, ones)),
        Case("by hand, rounded to other numbers", (w, hand, 1 - ones)),
        Case("independent inputs", (w, alone, ones)),
        Case("two inputs all but alike", (w, alike, ones)),
        Case("loud inputs: an inverse of billionths", (row, loud, ones[:1])),
        # float32 has 1.65 but for a fifty-millionth: much beside 0.0001
        Case("little is left after the move", (far, pair, 4 * ones[:1])),
        Case("nothing to make up for", (w, hand, w[:, 0].clone())),
        case(2, 1, 5),
        case(1, 4, 9),
        case(3, 2, 8),
        case(2, 6, 4),
        case(3, 5, 40),
        case(edges.past(256), 3, 9),
        case(2, edges.past(256), 300),
        case(rng.randrange(2, 5), rng.randrange(6, 9), 20, public=False),
    ]


EXERCISE = Exercise(
    id="quantization-gptq_column",
    title="GPTQ: one column",
    kind="kernel",
    points=5,
    minutes=20,
    entries=("gptq_column",),
    cases=cases,
    reference=reference,
    compare=Tolerance(
        rtol=1e-6, atol=1e-9, dtype=True, why="float64; a system of 257 may be solved in other ways"
    ),
    misconceptions=tuple(wrong),
    hints=(
        "Minimize tr(d H dᵀ) over moves d whose first column is rounded − w[:, 0]: what is the"
        " multiple of H⁻¹'s first row that does it?",
        "d = −(w[:, 0] − rounded) / [H⁻¹]₀₀ · [H⁻¹]₀ⱼ for each column j.",
        "The inverse over the columns that are left: subtract (column 0)(row 0) / corner from"
        " H⁻¹, and cut off its first row and column.",
    ),
    recall=(
        "Why is a column's error made up for by later columns, and not by earlier ones?",
        "Earlier ones are rounded already: moved, they would not lie on the grid.",
    ),
)
