"""mixture_of_experts-critical: the batch at which a mixture's products take as long as reading
it."""

from __future__ import annotations

import random
from collections.abc import Callable

from twophase.checks.compare import EXACT
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions

wrong = Misconceptions()

MOST = 10**6
Args = tuple[float, float, int, int, float, float, float]


def times(
    B: int, dense: float, expert: float, E: int, k: int, C: float, W: float, width: float
) -> tuple[float, float]:
    """Seconds of computing and of reading."""
    touched = E * (1 - (1 - k / E) ** B)
    return 2 * B * (dense + k * expert) / C, (dense + touched * expert) * width / W


def first(reached: Callable[[int], bool]) -> int:
    """The smallest batch that is good, by halving: once good, always good."""
    low, high = 0, 1
    while high < MOST and not reached(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high


def reference(
    dense_params: float,
    expert_params: float,
    E: int,
    k: int,
    flops_per_s: float,
    bytes_per_s: float,
    bytes_per_param: float,
) -> int:
    """The right answer."""
    sizes = dense_params, expert_params, E, k, flops_per_s, bytes_per_s, bytes_per_param

    def reached(B: int) -> bool:
        computing, reading = times(B, *sizes)
        return computing >= reading

    return first(reached)


def _by(
    slug: str, rule: Callable[[int, float, float, int, int, float], bool], seen: str, says: str
) -> None:
    """A wrong answer: the first batch that `rule(B, dense, expert, E, k, ridge)` is content with,
    the ridge in FLOPs per parameter read."""

    def critical(
        dense_params: float,
        expert_params: float,
        E: int,
        k: int,
        flops_per_s: float,
        bytes_per_s: float,
        bytes_per_param: float,
    ) -> int:
        ridge = flops_per_s / bytes_per_s * bytes_per_param
        return first(lambda B: rule(B, dense_params, expert_params, E, k, ridge))

    wrong.add(slug, critical, seen, says)


def _touched(B: int, E: int, k: int) -> float:
    return float(E * (1 - (1 - k / E) ** B))


_by(
    "dense_batch",
    lambda B, dense, expert, E, k, ridge: ridge <= 2 * B,
    "“only active parameters are read”",
    "That is a dense model's critical batch. A batch reads all the experts that any of its tokens"
    " picks, and each of them is used by a part of the tokens only.",
)
_by(
    "e_over_k",
    lambda B, dense, expert, E, k, ridge: 2 * B * k >= ridge * E,
    "“B_crit_dense × E/k”",
    "E/k times the dense batch is for the experts alone. What every token uses, attention and"
    " embedding, reaches its batch earlier, and the whole lies between.",
)
_by(
    "all_experts_read",
    lambda B, dense, expert, E, k, ridge: (
        2 * B * (dense + k * expert) >= ridge * (dense + E * expert)
    ),
    "total over active parameters",
    "You read all experts. On a chip with a low ridge the batch is so small that not all are"
    " touched.",
)
_by(
    "no_sharing",
    lambda B, dense, expert, E, k, ridge: (
        2 * B * (dense + k * expert) >= ridge * (dense + min(B * k, E) * expert)
    ),
    "min(B·k, E)",
    "min(B·k, E) is the most that can be touched; on average it is E (1 − (1 − k/E)^B).",
)
_by(
    "one_expert_drawn_at_a_time",
    lambda B, dense, expert, E, k, ridge: (
        2 * B * (dense + k * expert) >= ridge * (dense + _touched(B * k, E, 1) * expert)
    ),
    "(1 − 1/E)^(B·k)",
    "You drew B·k experts one by one: the k of one token are all different, so that it misses a"
    " given expert with chance 1 − k/E.",
)
_by(
    "everything_computed",
    lambda B, dense, expert, E, k, ridge: (
        2 * B * (dense + E * expert) >= ridge * (dense + _touched(B, E, k) * expert)
    ),
    "plausible",
    "You compute all E experts for each token: it visits k.",
)
_by(
    "one_flop_a_parameter",
    lambda B, dense, expert, E, k, ridge: (
        B * (dense + k * expert) >= ridge * (dense + _touched(B, E, k) * expert)
    ),
    "plausible",
    "A parameter takes 2 FLOPs for each token: a multiplication and an addition.",
)


@wrong("plausible", "You took 2 bytes for each parameter, whatever bytes_per_param says.")
def in_bf16(
    dense_params: float,
    expert_params: float,
    E: int,
    k: int,
    flops_per_s: float,
    bytes_per_s: float,
    bytes_per_param: float,
) -> int:
    return reference(dense_params, expert_params, E, k, flops_per_s, bytes_per_s, 2)


@wrong(
    "plausible",
    "You return the last batch that is still read for longer: the critical batch is the next one.",
)
def one_less(
    dense_params: float,
    expert_params: float,
    E: int,
    k: int,
    flops_per_s: float,
    bytes_per_s: float,
    bytes_per_param: float,
) -> int:
    sizes = dense_params, expert_params, E, k, flops_per_s, bytes_per_s, bytes_per_param
    return reference(*sizes) - 1


@wrong(
    "a strict inequality",
    "Where computing takes exactly as long as reading, that batch is the critical one.",
)
def equal_refused(
    dense_params: float,
    expert_params: float,
    E: int,
    k: int,
    flops_per_s: float,
    bytes_per_s: float,
    bytes_per_param: float,
) -> int:
    sizes = dense_params, expert_params, E, k, flops_per_s, bytes_per_s, bytes_per_param
    found = reference(*sizes)
    computing, reading = times(found, *sizes)
    return found + 1 if computing == reading else found


def _clear(args: Args) -> bool:
    """Whether no rounding decides: at the answer and before it, computing and reading differ by
    more than 10⁻⁹, a million times what float64 loses."""
    B = reference(*args)
    return all(abs(a - b) > 1e-9 * b for a, b in (times(n, *args) for n in (max(B - 1, 1), B)))


def cases(rng: random.Random) -> list[Case]:
    """The worked mixture on its chip and on others; low ridges, where not all experts are touched;
    no dense part; one expert; to the tie, and hardly off it; the largest batch."""
    chip, low = (1.97e14, 8.1e11), (3e10, 1e10)  # a ridge of 243, and of 3
    dense, expert = 5_503_000_000, 12_884_901_888

    def case(name: str, args: Args, public: bool = True) -> Case:
        assert _clear(args), name
        return Case(name, args, public=public)

    def fresh() -> Args:
        E = rng.randrange(8, 100)
        ridge = rng.uniform(2, 400)
        return (
            rng.randrange(10**8, 10**10),
            rng.randrange(10**7, 10**9),
            E,
            rng.randrange(1, min(E, 9)),
            ridge * 1e11,
            1e11,
            rng.choice([0.5, 1, 2]),
        )

    drawn: list[Args] = []
    while len(drawn) < 3:
        if _clear(one := fresh()) and reference(*one) <= MOST:
            drawn.append(one)
    # FLOP/s with which a batch of 11 takes as long to compute as to read: 5·10⁻⁹ more or less, and
    # float32 does not tell the two apart
    sizes = dense, expert, 18, 2  # (8/9)¹¹ has no end in binary
    computing, reading = times(11, *sizes, 1.0, chip[1], 2)
    even = computing / reading
    tie: Args = (2**20, 2**20, 1, 1, 2.0**34, 2.0**30, 2)
    assert times(16, *tie)[0] == times(16, *tie)[1]
    return [
        case("the worked mixture on a TPU v5e", (dense, expert, 16, 2, *chip, 2)),
        case("in int8", (dense, expert, 16, 2, *chip, 1)),
        case("in 4 bits", (dense, expert, 16, 2, *chip, 0.5)),
        case("on a chip with a ridge of 3", (dense, expert, 16, 2, *low, 2)),
        case("another dense part", (3 * dense, expert, 16, 2, *low, 2)),
        case("other experts", (dense, expert // 20, 16, 2, *low, 2)),
        case("32 experts", (dense, expert, 32, 2, *low, 2)),
        case("3 active", (dense, expert, 16, 3, *low, 2)),
        case("twice the FLOP/s", (dense, expert, 16, 2, 6e10, 1e10, 2)),
        case("twice the bandwidth", (dense, expert, 16, 2, 3e10, 2.1e10, 2)),
        case("256 small experts, ridge 3", (dense, expert // 100, 256, 8, *low, 2)),
        case("256 small experts, ridge 243", (dense, expert // 100, 256, 8, *chip, 2)),
        case("a large dense part, 2,053 experts", (10**10, 10**8, 2053, 1, *chip, 2)),
        case("2,053 of 2,063 experts", (10**9, 10**6, 2063, 2053, *chip, 2)),
        case("all experts active", (dense, expert, 4, 4, *chip, 2)),
        case("4 of 8 experts active, ridge 3", (dense // 10, expert, 8, 4, *low, 1)),
        Case("a tie", tie),
        case("longer to compute by 5·10⁻⁹", (*sizes, even * (1 - 5e-9), chip[1], 2)),
        case("longer to read by 5·10⁻⁹", (*sizes, even * (1 + 5e-9), chip[1], 2)),
        case("one token is enough", (dense, expert, 4, 2, 1e9, 1e10, 2)),
        case("the largest", (10**6, 10**9, 2000, 1, 4.8e14, 1e12, 2)),
        # computing takes as long as reading at 999,999.5
        case("the largest allowed", (10**9, 1, 8, 8, 999_999.5e9, 1e9, 2)),
        # each batch put in for the next one, B = 1, 2, …: more than 100 rounds
        case("almost all experts, ridge 1.02", (1, 10**9, 4096, 1, 1.02e12, 1e12, 2)),
        *(case(f"fresh {i + 1}", a, public=False) for i, a in enumerate(drawn)),
    ]


EXERCISE = Exercise(
    id="mixture_of_experts-critical",
    title="The critical batch of a mixture",
    kind="formula",
    points=4,
    minutes=18,
    entries=("critical",),
    cases=cases,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "Write down both times for a batch B. Which one grows faster?",
        "Computing: 2·B·(dense + k·expert)/C. Reading: (dense + E(1 − (1 − k/E)^B)·expert)·b/W.",
        "Computing grows in proportion to B, reading by less and less: go up from B = 1, or halve.",
    ),
    recall=(
        "Why is the critical batch of a whole mixture below E/k times the dense one?",
        (
            "Attention and embedding are used by every token; what counts is total over active"
            " parameters, and E/k is its limit for experts alone."
        ),
    ),
)
