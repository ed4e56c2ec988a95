"""Finished parts of an attention, to be put together: the cases of arithmetic_intensity-merge."""

from __future__ import annotations

import random

import torch

from twophase.checks import edges
from twophase.checks.arithmetic_intensity._data import NEG_INF, normal
from twophase.checks.arithmetic_intensity._merges import FAULTS, Part
from twophase.checks.exercise import Case

TOP = 1e4  # the largest log-sum-exp that the task allows, above zero and below
ENDS = [(TOP, TOP), (-TOP, -TOP), (TOP, -TOP), (-TOP, TOP), (NEG_INF, -TOP), (-TOP, NEG_INF)]


def _parts(
    rng: random.Random,
    T: int,
    H: int,
    widths: list[int],
    shift: float | torch.Tensor = 0.0,
    empty: dict[int, int] | None = None,
) -> tuple[list[Part]]:
    """Attention of T queries over as many stretches of keys as there are widths; `empty[part]` is a
    row without a key there."""
    parts = []
    for i, n in enumerate(widths):
        scores, v = normal(rng, T, n, scale=2.0) + shift + 1.5 * i, normal(rng, n, H)
        if empty and i in empty:
            scores[empty[i]] = NEG_INF
        parts.append((scores.softmax(-1).nan_to_num(0.0) @ v, scores.logsumexp(-1)))
    return (parts,)


def _pairs(*log_sum_exps: tuple[float, float]) -> tuple[list[Part]]:
    """Two parts, a query for each pair of log-sum-exps.

    The part with the smaller one has the larger output by a factor of a million: little weight is
    not none.
    """
    parts = []
    for mine in (0, 1):
        rows = []
        for pair in log_sum_exps:
            small = pair[mine] < pair[1 - mine]
            size = 1e6 if small else 1.0
            rows.append([size * (1.0 - 0.5 * mine), -size * (1.0 - 0.25 * mine)])
            if pair[mine] == NEG_INF:
                rows[-1] = [0.0, 0.0]
        parts.append((torch.tensor(rows), torch.tensor([pair[mine] for pair in log_sum_exps])))
    return (parts,)


def _large() -> tuple[list[Part]]:
    """Outputs at the largest that the task allows, whose mean is nearly as large."""
    outs = ([[1e6, -1e6], [-4e5, 3e5]], [[9e5, -7e5], [-1e6, 8e5]])
    log_sum_exps = ([0.5, -2.0], [0.25, -1.0])
    pairs = zip(outs, log_sum_exps, strict=True)
    return ([(torch.tensor(out), torch.tensor(lse)) for out, lse in pairs],)


def _one_changed() -> list[Case]:
    """Two parts, then one of their tensors changed alone: whoever keeps results by the others is
    wrong here."""
    given = {"out_a": [[1.0, 2.0]], "lse_a": [0.5], "out_b": [[3.0, 5.0]], "lse_b": [1.0]}
    others = {"out_a": [[4.0, 0.0]], "lse_a": [1.5], "out_b": [[0.0, 1.0]], "lse_b": [-0.5]}
    name = "repaired: one query of log-sum-exps 0.5 and 1"
    made = []
    for says, values in [("", given), *edges.one_changed(given, **others)]:
        out_a, lse_a, out_b, lse_b = map(torch.tensor, values.values())
        made.append(Case(f"{name} {says}".strip(), ([(out_a, lse_a), (out_b, lse_b)],)))
    return made


def _nothing_in_a_part() -> list[Case]:
    """A part in which no query saw any key: one query, then three, and each part in turn."""
    made = []
    for queries, lse in (("one query", [0.5]), ("three queries", [0.5, -3.0, 200.0])):
        none = [NEG_INF] * len(lse)
        first, second = _pairs(*zip(none, lse, strict=True)), _pairs(*zip(lse, none, strict=True))
        made += [
            Case(f"repaired: {queries}, the first part empty for all", first),
            Case(f"repaired: {queries}, the second part empty for all", second),
            Case(
                f"repaired: {queries}, both parts empty for all",
                _pairs(*zip(none, none, strict=True)),
            ),
        ]
    return made


def cases(rng: random.Random) -> list[Case]:
    """Two parts, three, with large and small log-sum-exps, equal ones and distant ones, with rows
    that saw no key; then the faults that must be exposed."""
    return [
        Case("repaired: one query, two parts of two keys", _parts(rng, 1, 2, [2, 2])),
        *_one_changed(),
        Case("repaired: three queries, one number each", _parts(rng, 3, 1, [2, 3])),
        Case("repaired: three parts, one after the other", _parts(rng, 3, 4, [3, 5, 2])),
        Case("repaired: log-sum-exps around 200", _parts(rng, 2, 3, [4, 3], shift=200.0)),
        Case("repaired: log-sum-exps around −200", _parts(rng, 2, 3, [4, 3], shift=-200.0)),
        Case(
            "repaired: a query that saw no key in the first part",
            _parts(rng, 3, 2, [2, 3], empty={0: 0}),
        ),
        Case(
            "repaired: a query that saw no key in the second part",
            _parts(rng, 3, 2, [2, 3], empty={1: 2}),
        ),
        *_nothing_in_a_part(),
        Case(
            "repaired: a query that saw no key in either",
            _parts(rng, 3, 2, [2, 3], empty={0: 1, 1: 1}),
        ),
        Case(
            "repaired: four parts, a query that sees its first key in the last but one",
            _parts(rng, 4, 5, [3, 1, 4, 2], 120.0, {0: 2, 1: 2}),
        ),
        Case(
            "repaired: one query around 2,000, one around −2,000",
            _parts(rng, 2, 3, [2, 3], torch.tensor([[2000.0], [-2000.0]])),
        ),
        Case("repaired: equal log-sum-exps", _pairs((1.5, 1.5), (0.0, 0.0), (-700.0, -700.0))),
        Case("repaired: log-sum-exps 9 apart, outputs 10⁶ apart", _pairs((4.0, -5.0), (-5.0, 4.0))),
        Case("repaired: the second part weighs 4·10⁻⁸", _pairs((17.0, 0.0), (9017.0, 9000.0))),
        Case("repaired: the first part weighs 4·10⁻⁸", _pairs((0.0, 17.0), (9000.0, 9017.0))),
        Case("repaired: log-sum-exps 300 apart", _pairs((100.0, -200.0), (-200.0, 100.0))),
        Case("repaired: log-sum-exps of 10,000 and −10,000, and none", _pairs(*ENDS)),
        Case("repaired: outputs of hundreds of thousands", _large()),
        Case("repaired: 263 queries, 19 numbers each", _parts(rng, 263, 19, [3, 4])),
        *(Case(f"exposed: {fault}", (fault,)) for fault in FAULTS),
    ]
