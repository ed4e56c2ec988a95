"""What a row of the ledger is: a claim, what the text prints, how it is computed and read."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from twophase.errata.rules import Stated

VERDICTS = ("holds", "holds if", "wrong", "bug", "ambiguous", "not checked")
KINDS = ("computed", "code", "looked up", "definition", "taste", "unverifiable")
UNCHECKED = ("definition", "taste", "unverifiable")  # nothing that a computation could refute
TOPICS = {
    "two_phases": "1 Two phases",
    "arithmetic_intensity": "2 Arithmetic intensity",
    "kv_cache": "3 KV cache",
    "latency_throughput": "4 Latency and throughput",
    "grouped_query_attention": "5 Grouped-query attention",
    "latent_attention": "6 Latent attention",
    "local_attention": "7 Local attention",
    "sharding": "10 Sharding",
    "mixture_of_experts": "11 Mixture of experts",
    "quantization": "12 Quantization",
    "pruning": "13 Pruning",
    "speculative_decoding": "14 Speculative decoding",
    "continuous_batching": "15 Continuous batching",
    "paging": "16 Paging",
}
Inputs = Mapping[str, str | float]


@dataclass(frozen=True)
class Reading:
    """Another way to read the claim: what it assumes, and what that changes."""

    assumption: str
    inputs: Inputs
    expression: str | None


@dataclass(frozen=True)
class Error:
    """How far off the claim is: an expression, and the unit of what it gives ("times" for a
    factor)."""

    expression: str
    unit: str


@dataclass(frozen=True)
class Claim:
    """One claim.

    `cases` are the sets of inputs it is computed on, usually one; `printed` names those that the
    text itself prints, which no reading may replace; the others are chosen here, because the text
    leaves them open. `otherwise` is a world or a claim (inputs, and an expression if need be) in
    which the outcome is the other one: proof that the row could have come out so. `same_as` is the
    id of the same proposition in another text, from which everything but the words is taken.
    """

    id: str
    source: str
    where: str
    topic: str
    claim: str
    verdict: str
    correction: str
    stated: Stated
    formula: str | None
    rule: str
    cases: tuple[Inputs, ...]
    let: Mapping[str, str]
    expression: str | None
    readings: tuple[Reading, ...]
    printed: frozenset[str] = frozenset()
    kind: str = "computed"
    reference: str = ""
    otherwise: Reading | None = None
    error: Error | None = None
    same_as: str = ""


@dataclass(frozen=True)
class Source:
    """One of the texts, described as far as it names itself."""

    key: str
    title: str
    author: str
    date: str
    note: str
    claims: tuple[Claim, ...] = field(repr=False)
