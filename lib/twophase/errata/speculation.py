"""What the deep dive's speculative_decode does when it runs: its steps, in our words, with every
branch of its draws."""

from collections.abc import Sequence

Law = tuple[float, float, float]


def target_law(text: tuple[int, ...]) -> Law:
    """A target over three tokens: its law depends on the last one."""
    return ((0.7, 0.2, 0.1), (0.1, 0.3, 0.6), (0.3, 0.6, 0.1))[text[-1]]


def draft_law(text: tuple[int, ...]) -> Law:
    """A draft of the same kind."""
    return ((0.4, 0.4, 0.2), (0.3, 0.3, 0.4), (0.5, 0.2, 0.3))[text[-1]]


def snippet_law(prompt: tuple[int, ...]) -> Law:
    """The law of the first token that the printed code returns with one drafted token: get_probs
    gives a row for each token of prompt + draft, and draft i is judged by row i."""
    target_row, draft_row = target_law(prompt[:1]), draft_law(prompt[:1])  # row 0
    left = [max(0.0, t - d) for t, d in zip(target_row, draft_row, strict=True)]
    drawn = draft_law(prompt)
    kept = [p * min(1.0, t / d) for p, t, d in zip(drawn, target_row, draft_row, strict=True)]
    refused = 1 - sum(kept)
    said = [k + refused * x / sum(left) for k, x in zip(kept, left, strict=True)]
    return said[0], said[1], said[2]


def snippet_law_error(n_prompt: int) -> float:
    """Total variation between that and the target's law, for a prompt of so many tokens."""
    prompt = tuple(i % 3 for i in range(int(n_prompt)))
    pairs = zip(snippet_law(prompt), target_law(prompt), strict=True)
    return round(sum(abs(said - wanted) for said, wanted in pairs) / 2, 12)


def snippet_tokens(kept: int, drafted: int) -> int:
    """Tokens that the printed code returns if so many of the drafted ones are kept."""
    accepted = []
    for i in range(drafted):
        accepted.append(i)  # the draft, or the correction in its place
        if i == kept:
            break
    return len(accepted)


def error_of_drawing_again(last: int) -> float:
    """Total variation if a refused token is replaced by a draw from the target's whole law."""
    return _error(int(last), target_law((int(last),)))


def error_of_the_residual(last: int) -> float:
    """The same if it is replaced by a draw from what the target has and the draft had not."""
    laws = zip(target_law((int(last),)), draft_law((int(last),)), strict=True)
    left = [max(0.0, t - d) for t, d in laws]
    return _error(int(last), [x / sum(left) for x in left])


def _error(last: int, correction: Sequence[float]) -> float:
    """Total variation from the target's law after this token, with a law for refused tokens."""
    target, draft = target_law((last,)), draft_law((last,))
    kept = [min(t, d) for t, d in zip(target, draft, strict=True)]
    said = [k + (1 - sum(kept)) * c for k, c in zip(kept, correction, strict=True)]
    return round(sum(abs(s - t) for s, t in zip(said, target, strict=True)) / 2, 12)
