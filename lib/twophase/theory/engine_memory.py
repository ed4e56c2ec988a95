"""What an engine sets aside on a chip beside weights and caches, and the tokens of cache it keeps.

vLLM runs its largest step once before it serves, and what that step held at its peak is not given
to caches: the activations of a whole chunk of prompts, or the logits of as many sequences as may
ever decode together with the copies that a sampler makes of them, whichever is more. Beside it
there are a runtime's own buffers, and more where chips exchange messages. The activations follow
from the sizes; the other three are constants, fitted to what vLLM reported of itself
(`twophase.measure.cache_reports`, which says with what error).
"""

import json
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from math import floor
from pathlib import Path

from twophase.theory._domain import Domain, Number, formula
from twophase.theory._ops import maximum
from twophase.theory.architecture import Architecture
from twophase.theory.deployment import Deployment
from twophase.theory.workload import Workload

FITTED = Path(__file__).with_name("engine_memory.json")
LARGE_BYTES = 70 * 2**30  # vLLM's engine/arg_utils.py, get_batch_defaults: large, but no A100


@dataclass(frozen=True)
class Limits:
    """What a step may hold at most: tokens of prompts, and sequences that take a token each."""

    chunk: int
    sequences: int


@dataclass(frozen=True)
class SetAside:
    """The fitted constants: bytes for a logit, of the runtime, and more of it where chips exchange
    messages; how far reports lay that the fit had not seen, as shares (medians) of the memory that
    the engine might use, and of the caches' bytes with these constants and without them, those of
    `n_reports` engines that started."""

    logit_bytes: float
    runtime_bytes: float
    messages_bytes: float
    missed_of_usable: float
    missed_of_cache: float
    missed_without: float
    n_reports: int


@lru_cache(maxsize=1)
def fitted() -> SetAside:
    """The constants in `engine_memory.json`, which `python -m twophase.measure.cache_reports`
    writes."""
    return SetAside(**json.loads(FITTED.read_text(encoding="utf-8")))


def usual_limits(name: str, memory_bytes: float) -> Limits:
    """What vLLM's server takes if nothing is said (get_batch_defaults in its engine/arg_utils.py,
    2025): 8,192 tokens and 1,024 sequences on a chip of 70 GiB or more that is no A100; else 2,048
    and 256. ValueError for bytes that are not positive."""
    Domain().check("memory_bytes", memory_bytes)
    if memory_bytes >= LARGE_BYTES and "a100" not in name.lower():
        return Limits(8192, 1024)
    return Limits(2048, 256)


@formula()
def chunk_activation_bytes(
    n_tokens: Number, D: Number, F: Number, bytes_per_value: Number = 2
) -> Number:
    """Bytes that the widest moment of a layer holds for a chunk of tokens: the stream beside the
    layers, its normed copy, and an MLP's two products of width F with the one they give."""
    return n_tokens * (2 * D + 3 * F) * bytes_per_value


@formula()
def expert_activation_bytes(
    n_tokens: Number, D: Number, F: Number, k: Number, bytes_per_value: Number = 2
) -> Number:
    """The same with k experts of width F for each token: k copies, each as wide as an expert's two
    products or as the D values that come out, and k times what those two products give."""
    return n_tokens * (2 * D + k * (maximum(2 * F, D) + F)) * bytes_per_value


@formula(zero_ok=("logit_bytes", "runtime_bytes"))
def set_aside_bytes(
    activation_bytes: Number, sequences: Number, V: Number, logit_bytes: Number,
    runtime_bytes: Number,
) -> Number:  # fmt: skip
    """Bytes that an engine sets aside: a chunk's activations or the logits of all sequences,
    whichever is more, and its runtime's."""
    return maximum(activation_bytes, sequences * V * logit_bytes) + runtime_bytes


def step_activation_bytes(arch: Architecture, n_chips: int, n_tokens: int) -> float:
    """Bytes of a chunk's activations on one of n chips, each of which has its part of an MLP's
    columns (of every expert, too)."""
    if arch.moe is None:
        return float(chunk_activation_bytes(n_tokens, arch.D, arch.F / n_chips))
    F, k = arch.moe.F / n_chips, arch.moe.k + arch.moe.n_shared
    return float(expert_activation_bytes(n_tokens, arch.D, F, k))


def limits_of(d: Deployment) -> Limits:
    """What vLLM's server takes on this deployment's chips."""
    return usual_limits(d.chip.name, float(d.chip.hbm_bytes))


def is_said(w: Workload) -> bool:
    """Whether the workload itself says what lies beside weights and caches."""
    return bool(w.activation_bytes or w.overhead_bytes or w.overhead_fraction)


def aside_of(d: Deployment, limits: Limits | None = None) -> float:
    """Bytes that an engine is expected to set aside on a chip of this deployment, `limits` being
    vLLM's own if none are given."""
    w, own = d.w, fitted()
    usual = limits or limits_of(d)
    runtime = own.runtime_bytes + (own.messages_bytes if w.sends else 0.0)
    held = step_activation_bytes(d.arch, w.cut_chips, usual.chunk)
    return float(set_aside_bytes(held, usual.sequences, d.arch.V, own.logit_bytes, runtime))


@dataclass(frozen=True)
class CacheRoom:
    """Tokens of cache, all chips together: at most, where all that the engine may use and that
    holds no weights is theirs; and expected, less `set_aside_bytes` on each chip. `sequences`: as
    many of the workload's context as are expected to fit."""

    tokens_ceiling: int
    expected_tokens: int
    expected_sequences: int
    set_aside_bytes: float


def cache_room(d: Deployment, limits: Limits | None = None) -> CacheRoom:
    """Room for caches in this deployment. What the workload itself says of activations and overhead
    takes the place of what is expected."""
    w = d.w
    most = (d.usable_bytes - w.exact("overhead_bytes")) / (1 + w.exact("overhead_fraction"))
    most -= w.exact("activation_bytes")  # for weights and caches
    said = is_said(w)
    aside = float(d.usable_bytes - most) if said else aside_of(d, limits)
    return CacheRoom(
        tokens_ceiling=_tokens(d, most),
        expected_tokens=_tokens(d, most if said else most - Fraction(aside)),
        expected_sequences=max(0, beside_engine(d, limits).max_batch(w.context)),
        set_aside_bytes=aside,
    )


def _tokens(d: Deployment, room: Fraction) -> int:
    """Tokens of cache that so many bytes of each chip hold beside its weights: as many as the stage
    with the least room for them."""
    n, S = d.sequences_at_once, d.w.context
    stages = d.held_by_stages(n, S)
    if any(weights >= room for weights, _ in stages):
        return 0
    return min(floor((room - weights) / caches * n * S) for weights, caches in stages if caches)


def beside_engine(d: Deployment, limits: Limits | None = None) -> Deployment:
    """The same with what an engine is expected to set aside as its overhead, so that what fits it
    is what the engine is expected to hold; as it is where the workload itself says what lies beside
    weights and caches."""
    if is_said(d.w):
        return d
    return d.with_workload(replace(d.w, overhead_bytes=aside_of(d, limits)))


def chips_for_engine(d: Deployment, B: int, S: int) -> int | None:
    """The fewest chips on which an engine is expected to hold B sequences of S positions; None if
    there are none. How much it sets aside depends on how many they are."""
    n = d.chips_needed(B, S)
    while n is not None:
        beside = beside_engine(d.on(n))
        if beside.fits(B, S):
            return n
        more = beside.chips_needed(B, S)
        n = more if more is not None and more > n else None
    return None
