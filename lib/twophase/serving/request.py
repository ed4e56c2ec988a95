"""What is asked of an engine, and how far it has come."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise

import torch

from twophase.kernels.sampling import check_sampling, stop_reason
from twophase.kernels.span import whole


class Status(Enum):
    """Where a request is."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(frozen=True)
class SamplingParams:
    """How a request's tokens are drawn, and when they end.

    `n` answers to one prompt; `seed`, of the first of them (the i-th draws with seed + i), makes
    draws the same in any company; None takes the request's number. `stop` lists token sequences,
    the one that ended an answer included in it. ValueError for what is out of range.
    """

    max_tokens: int = 16
    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    stop: tuple[tuple[int, ...], ...] = ()
    seed: int | None = None
    n: int = 1

    def __post_init__(self) -> None:
        whole("max_tokens", self.max_tokens, 0)
        whole("n, the number of answers,", self.n, 1)
        check_sampling(self.temperature, self.top_k, self.top_p)
        if self.seed is not None:
            whole("the seed", self.seed, -(2**63))
        _check_stop(self.stop)


def _check_stop(stop: object) -> None:
    """ValueError unless these are sequences of tokens."""
    for one in stop if isinstance(stop, Sequence) and not isinstance(stop, str) else [stop]:
        tokens = one if isinstance(one, Sequence) and not isinstance(one, str) else ()
        if not tokens or not all(hasattr(token, "__index__") for token in tokens):
            raise ValueError(
                "stop lists sequences of tokens, as in ((10, 10),), none of them empty; got"
                f" {one!r}: a text has to be encoded."
            )


@dataclass(eq=False)
class Request:
    """One sequence on its way: its prompt, what was drawn, and how much of both the cache holds.

    There is no phase: a request whose cache holds fewer than all but its last token is being read
    (prefill), one that lacks only the last is decoding, and one that was preempted is read again.
    """

    id: int
    prompt: tuple[int, ...]
    params: SamplingParams
    arrival_s: float = 0.0
    parent: int | None = None  # whose prompt it shares, where several answers are wanted
    tokens: list[int] = field(default_factory=list)
    times_s: list[float] = field(default_factory=list)  # when each token was there, on its clock
    status: Status = Status.WAITING
    finish_reason: str | None = None  # "stop", "length" or "abort"
    n_computed: int = 0  # tokens whose keys and values the cache holds
    n_shared: int = 0  # of these, found in blocks that others had left, at the last admission
    preemptions: int = 0
    n_forks: int = 0  # answers that part from this one once the prompt is read
    generator: torch.Generator | None = field(default=None, repr=False)

    @property
    def all_tokens(self) -> tuple[int, ...]:
        """The prompt and what was drawn."""
        return (*self.prompt, *self.tokens)

    def tokens_from(self, start: int, n: int) -> list[int]:
        """n of them from place `start` on, without putting all of a long text together."""
        behind = max(0, start - len(self.prompt))
        own = self.tokens[behind : behind + n]
        return [*self.prompt[start : start + n], *own][:n]

    @property
    def length(self) -> int:
        """How many these are."""
        return len(self.prompt) + len(self.tokens)

    @property
    def n_missing(self) -> int:
        """Tokens that the cache does not hold: the next pass reads them, or some of them."""
        return self.length - self.n_computed

    @property
    def seats(self) -> int:
        """Sequences that it is, or will be."""
        return 1 + self.n_forks

    @property
    def longest(self) -> int:
        """Tokens that the cache holds at most: the last one drawn is never read."""
        return len(self.prompt) + max(0, self.params.max_tokens - 1)

    def take(self, token: int, now_s: float) -> None:
        """Append a token that was drawn now; it may be the last."""
        self.tokens.append(token)
        self.times_s.append(now_s)
        self.finish_reason = stop_reason(self.tokens, self.params.max_tokens, self.params.stop)

    @property
    def ttft_s(self) -> float:
        """From arrival to the first token, the wait included. NaN without one."""
        return self.times_s[0] - self.arrival_s if self.times_s else float("nan")

    @property
    def tpot_list_s(self) -> list[float]:
        """The gaps between tokens."""
        return [after - before for before, after in pairwise(self.times_s)]

    @property
    def latency_s(self) -> float:
        """From arrival to the last token. NaN without one."""
        return self.times_s[-1] - self.arrival_s if self.times_s else float("nan")


def check_prompt(prompt: Sequence[int], vocabulary: int) -> tuple[int, ...]:
    """The prompt as ints. ValueError, in one sentence, for an empty one or what is no token."""
    if not isinstance(prompt, Sequence) or not all(
        hasattr(t, "__index__") and not isinstance(t, bool) for t in prompt
    ):
        raise ValueError(f"a prompt is a list of tokens, whole numbers; got {prompt!r}.")
    if not prompt:
        raise ValueError("the prompt is empty: the model needs at least one token to continue.")
    if bad := [t for t in prompt if not 0 <= t < vocabulary]:
        raise ValueError(f"token {bad[0]} is outside the vocabulary of {vocabulary}.")
    return tuple(int(t) for t in prompt)


def check_positions(n_prompt: int, n_new: int, most: int) -> None:
    """ValueError for more tokens than a model has learned positions for; 0: as many as come."""
    if most and n_prompt + n_new > most:
        raise ValueError(
            f"this model has learned {most} positions: a prompt of {n_prompt} tokens leaves room"
            f" for {max(0, most - n_prompt)}, not {n_new}."
        )
