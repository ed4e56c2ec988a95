"""The verifiers of speculative_decoding-verifier_tests: a right one, and one broken in each way
that its cases must catch."""

from __future__ import annotations

from twophase.checks.misconceptions import replaced
from twophase.checks.speculative_decoding import _rule
from twophase.checks.speculative_decoding._rule import (
    Choose,
    Probs,
    Verify,
    happens,
    left_over,
    normalized,
    residual,
)


def right(target: list[Probs], draft: list[Probs], drafted: list[int], choose: Choose) -> list[int]:
    """The rule of Leviathan et al. 2023."""
    for i, token in enumerate(drafted):
        if not happens(min(1.0, target[i][token] / draft[i][token]), choose):
            return [*drafted[:i], choose(residual(target[i], draft[i]))]
    return [*drafted, choose(target[len(drafted)])]


def distance(one: Probs, other: Probs) -> Probs:
    return normalized([abs(x - y) for x, y in zip(one, other, strict=True)])


def without(law: Probs, token: int) -> Probs:
    return normalized([p if i != token else 0.0 for i, p in enumerate(law)])


def likeliest(law: Probs) -> int:
    return law.index(max(law))


def _broken(**parts: str) -> Verify:
    old = {
        "ratio": "target[i][token] / draft[i][token]",
        "keep": "happens(min(1.0, target[i][token] / draft[i][token]), choose)",
        "instead": "choose(residual(target[i], draft[i]))",
        "refusal": "[*drafted[:i], choose(residual(target[i], draft[i]))]",
        "bonus": "choose(target[len(drafted)])",
        "end": "[*drafted, choose(target[len(drafted)])]",
    }
    return replaced(right, {old[name]: new for name, new in parts.items()})


def goes_on(
    target: list[Probs], draft: list[Probs], drafted: list[int], choose: Choose
) -> list[int]:
    said = []
    for i, token in enumerate(drafted):
        kept = happens(min(1.0, target[i][token] / draft[i][token]), choose)
        said.append(token if kept else choose(residual(target[i], draft[i])))
    return [*said, choose(target[-1])]


MUTANTS: dict[str, Verify] = {
    "draws from the target after a refusal": _broken(instead="choose(target[i])"),
    "does not normalize what is left": _broken(instead="choose(left_over(target[i], draft[i]))"),
    "divides the draft by the target": _broken(
        ratio="draft[i][token] / max(target[i][token], 1e-9)"
    ),
    "draws from what the draft has too much of": _broken(
        instead="choose(residual(draft[i], target[i]))"
    ),
    "draws from the distance of the two": _broken(instead="choose(distance(target[i], draft[i]))"),
    "strikes out the refused token only": _broken(instead="choose(without(target[i], token))"),
    "takes the likeliest of what is left": _broken(
        instead="likeliest(residual(target[i], draft[i]))"
    ),
    "keeps what the target finds likely": _broken(keep="(target[i][token] >= 0.3)"),
    "keeps only what the target likes more": _broken(keep="(target[i][token] >= draft[i][token])"),
    "keeps everything": _broken(keep="True"),
    "judges by the row after the token": _broken(ratio="target[i + 1][token] / draft[i][token]"),
    "judges all tokens by the first row": _broken(ratio="target[0][token] / draft[0][token]"),
    "takes what is left from the first row": _broken(
        instead="choose(residual(target[0], draft[0]))"
    ),
    "drops the last token": _broken(end="list(drafted)"),
    "draws the last token from the draft": _broken(bonus="choose((draft or target)[-1])"),
    "takes the target's likeliest for the last token": _broken(bonus="likeliest(target[-1])"),
    "says nothing after a refusal": _broken(refusal="list(drafted[:i])"),
    "goes on after a refusal": goes_on,
    "draws from the last row after a refusal": _broken(instead="choose(target[-1])"),
}


def caught(verify: Verify, case: dict[str, object], expected: dict[str, float]) -> bool:
    """Whether a verifier shows something else than the case expects."""
    try:
        found = _rule.said_law(verify, case["target"], case["draft"], case["drafted"])  # type: ignore[arg-type]
    except (ZeroDivisionError, ValueError, IndexError):
        return True
    keys = {*found, *expected}
    return any(abs(found.get(k, 0.0) - expected.get(k, 0.0)) > 1e-6 for k in keys)


__all__ = ["MUTANTS", "caught", "left_over", "right"]
