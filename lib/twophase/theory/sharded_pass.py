"""A pass of a model on chips that share it, and what the fullest chip has to do in it."""

from dataclasses import dataclass
from functools import cached_property, lru_cache

from twophase.theory import messages
from twophase.theory._domain import SOME, Number
from twophase.theory.architecture import Architecture
from twophase.theory.hardware import Hardware
from twophase.theory.links import Link
from twophase.theory.messages import Messages
from twophase.theory.two_phases import forward_flops
from twophase.theory.weight_format import stored_bytes


def prompt_flops(arch: Architecture, B: Number, T: int, found: int = 0) -> Number:
    """FLOPs of B prompts of T tokens of which the first `found` are in the cache already; the head
    runs at the last of them only."""
    whole = arch.prefill_flops(B, T, head_at_last_only=True)
    if not found:
        return whole
    head = B * forward_flops(1, arch.V * arch.D)
    return whole - arch.prefill_flops(B, found, head_at_last_only=True) + head


@dataclass(frozen=True)
class Pass:
    """B sequences with T new tokens each and S positions in the end: decode with T = 1, prefill
    with T = S, or less where the beginning of a prompt was found in the cache. `drafted`: the new
    tokens are those of a draft, each of which is asked for logits. bytes_per_kept: of embedding,
    head, norms and router, if not bytes_per_param; bytes_per_attention likewise;
    bytes_per_dispatched: of what travels to experts, if not bytes_per_activation. ValueError for
    bytes that are not positive, for B and T that are no whole numbers, and for less positions than
    a prompt has new tokens."""

    arch: Architecture
    B: int
    S: Number
    T: int = 1
    bytes_per_param: Number = 2
    bytes_per_kv: Number = 2
    bytes_per_activation: Number = 2
    bytes_per_kept: Number | None = None
    bytes_per_attention: Number | None = None
    bytes_per_dispatched: Number | None = None
    drafted: bool = False

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name.startswith("bytes_per_") and value is not None and not value > 0:
                raise ValueError(f"{name} must be positive, but it is {value!r}.")
        for name in ("B", "T"):
            SOME.check(name, getattr(self, name))
        least, what = (1, "1") if self.decodes else (self.T, f"T = {self.T}")
        if not least <= self.S:
            raise ValueError(f"S must be at least {what}, but it is {self.S!r}.")

    @property
    def decodes(self) -> bool:
        """Whether its new tokens are an answer's, not a prompt's."""
        return self.T == 1 or self.drafted

    @property
    def n_logits(self) -> int:
        """Of how many tokens of a sequence the head says what comes next."""
        return self.T if self.decodes else 1

    @property
    def n_tokens(self) -> int:
        """Tokens of all sequences."""
        return self.B * self.T

    def flops(self, arch: Architecture, B: float) -> float:
        """FLOPs of this pass for B sequences of a model, or of a chip's part of one."""
        if self.decodes:
            return self.T * float(arch.decode_step_flops(B, self.S))
        found = int(self.S) - self.T
        return float(prompt_flops(arch, B, self.T + found, found))

    def stored(self, parts: dict[str, Number]) -> Number:
        """Bytes of parameters by part."""
        kept = self.bytes_per_param if self.bytes_per_kept is None else self.bytes_per_kept
        return stored_bytes(parts, self.bytes_per_param, kept, self.bytes_per_attention)

    def weights(self, arch: Architecture) -> Number:
        """Bytes of all weights of a model, or of a chip's part of one; exact, if the formats are
        fractions."""
        return self.stored(dict(arch.breakdown()))

    def weights_read(self, arch: Architecture, n_tokens: float) -> float:
        """Bytes of weights that so many tokens need."""
        return float(self.stored(arch.step_breakdown(n_tokens)))

    def read_again(self, kept: Number, arch: Architecture) -> float:
        """Of kept caches of these layers, what the pass reads: decode all of them (where keys are
        chosen, those), a prompt those of the positions that were found; its own keys and values are
        written as they are made."""
        if not kept:  # layers that have no attention
            return 0.0
        if self.decodes and arch.chooses:
            return float(kept * arch.cache_read_bytes(self.S) / arch.cache_bytes(self.S))
        if self.decodes:
            return float(kept)
        if self.S == self.T:
            return 0.0
        return float(kept * arch.cache_bytes(self.S - self.T) / arch.cache_bytes(self.S))

    def caches(self, arch: Architecture, B: Number, S: Number) -> Number:
        """Bytes of B caches of S positions."""
        return B * arch.cache_bytes(S, self.bytes_per_kv)


@dataclass(frozen=True)
class Load:
    """What the fullest chip has to do in one pass. What it reads of both comes from its memory;
    messages: what it takes part in, one after the other."""

    weight_bytes: Number
    cache_bytes: Number
    weight_read_bytes: float
    cache_read_bytes: float
    flops: float
    messages: Messages

    @property
    def held_bytes(self) -> Number:
        """Weights and caches in the chip's memory."""
        return self.weight_bytes + self.cache_bytes

    @property
    def read_bytes(self) -> float:
        """Weights and caches that the pass reads."""
        return self.weight_read_bytes + self.cache_read_bytes

    @cached_property
    def sent_bytes(self) -> float:
        """Bytes that the chip sends."""
        return float(messages.sent_bytes(self.messages))

    def work_s(self, chip: Hardware, dtype: str = "bf16") -> float:
        """Seconds of reading or computing, whichever takes longer."""
        return max(
            self.read_bytes / chip.hbm_bytes_per_s, self.flops / chip.peak_flops_per_s(dtype)
        )

    def sending_s(self, link: Link, between: Link | None = None) -> float:
        """Seconds of all messages; `between`: the link of those that leave a machine."""
        return _time_s(self.messages, link, between)

    def step_s(
        self, chip: Hardware, link: Link, dtype: str = "bf16", overlap: bool = False
    ) -> float:
        """Seconds of the pass: the work, then the messages; with perfect overlap, the longer."""
        both = self.work_s(chip, dtype), self.sending_s(link)
        return max(both) if overlap else sum(both)


@lru_cache(maxsize=4096)
def _time_s(sent: Messages, link: Link, between: Link | None) -> float:
    """Remembered: a search for the best batch asks for a prompt's messages again and again."""
    return messages.time_s(sent, link, between)
