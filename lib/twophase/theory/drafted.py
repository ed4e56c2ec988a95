"""A model with a smaller one that drafts for it, on the same chips: a round is so many steps of the
draft and one of the model that checks them, and gives a few tokens at once.

By the formulas of chapter 14 (`speculative_decoding`): the tokens of a round, the same acceptance
at every place; the model's pass over drafted tokens reads weights and caches once and multiplies
for each token. Means are those of a token; steps are rounds.
"""

from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

from twophase.theory._domain import Number
from twophase.theory.architecture import Architecture
from twophase.theory.deployment import Deployment, Times, largest
from twophase.theory.draft_heads import DraftHead
from twophase.theory.grid import Grid
from twophase.theory.hardware import bytes_per_value
from twophase.theory.layout import chip_part
from twophase.theory.sharded_deployment import ShardedDeployment, fewest_chips
from twophase.theory.speculative_decoding import expected_tokens
from twophase.theory.workload import Workload


def draft_workload(w: Workload, draft: Architecture) -> Workload:
    """What is asked of the draft: as of the model, but a smaller model's experts (if it has some)
    in every copy; a head's are dealt out as the model's. ValueError for a layout in which a draft
    has no place."""
    if w.layout not in (None, "tensor", "replicas") or (w.grid is not None and w.grid.pp > 1):
        raise ValueError(
            "A draft runs beside the model on chips that share every layer: take --tp, --dp and"
            " --ep, without stages of a pipeline, or --layout tensor or replicas."
        )
    if isinstance(draft, DraftHead) and draft.moe is not None:
        return w
    grid = w.grid and Grid(w.grid.tp, w.grid.dp)
    between = w.between if grid else None
    return replace(w, grid=grid, skew=1, between=between, dispatch="bf16")


@dataclass(frozen=True)
class DraftedDeployment(Deployment):
    """A deployment `target` with a `draft` on its chips, `w.draft_length` tokens a round."""

    target: Deployment = field(kw_only=True)
    draft: Deployment = field(kw_only=True)

    @property
    def n_drafted(self) -> int:
        """Tokens drafted in a round."""
        assert self.w.draft_length is not None
        return self.w.draft_length

    @cached_property
    def tokens_per_step(self) -> float:
        """Tokens that a round gives each sequence on average."""
        assert self.w.acceptance is not None
        return float(expected_tokens(self.w.acceptance, self.n_drafted))

    @property
    def layers_per_token(self) -> float:
        """Layers of draft and model that run for a token."""
        layers = self.target.layers_per_token + self.n_drafted * self.draft.layers_per_token
        return layers / self.tokens_per_step

    @property
    def sequences_at_once(self) -> int:
        """As the model's."""
        return self.target.sequences_at_once

    @cached_property
    def weight_bytes(self) -> Fraction:
        """Of both; a head's tables are the model's."""
        return self.target.weight_bytes + self.draft_weight_bytes

    @cached_property
    def draft_weight_bytes(self) -> Fraction:
        """Weights that the chip stores for the draft alone."""
        head = self.draft.arch
        if not isinstance(head, DraftHead):
            return self.draft.weight_bytes
        own = chip_part(head, self.w.cut_chips)
        assert isinstance(own, DraftHead)
        return self.draft.weight_bytes - own.n_borrowed * Fraction(bytes_per_value(self.w.kept))

    def cache_bytes(self, S: Number) -> Fraction:
        """Of both, of one sequence."""
        return self.target.cache_bytes(S) + self.draft.cache_bytes(S)

    def held_cache_bytes(self, B: int, S: int) -> Fraction:
        """Caches of both that the fullest chip keeps."""
        return self.target.held_cache_bytes(B, S) + self.draft.held_cache_bytes(B, S)

    def max_batch(self, S: int) -> int:
        """The most sequences of S positions that fit."""
        return largest(lambda B: self.fits(B, S))

    def fits(self, B: int, S: int) -> bool:
        """Whether B sequences of S positions fit."""
        return self.total_bytes(B, S) <= self.usable_bytes

    def chips_needed(self, B: int, S: int) -> int | None:
        """The fewest chips on which they fit."""
        if isinstance(self.target, ShardedDeployment):
            return fewest_chips(self, B, S)
        return super().chips_needed(B, S)

    def on(self, n_chips: int) -> Deployment:
        """Both on another number of chips."""
        return self.with_workload(self.target.on(n_chips).w)

    def with_workload(self, w: Workload) -> Deployment:
        """Both for another workload."""
        asked = draft_workload(w, self.draft.arch)
        target, draft = self.target.with_workload(w), self.draft.with_workload(asked)
        return replace(self, w=w, target=target, draft=draft)

    def step_weight_bytes(self, B: int, T: int = 1) -> float:
        """Weights that a round of B sequences reads."""
        drafting = self.n_drafted * self.draft.step_weight_bytes(B)
        return drafting + self.target.step_weight_bytes(B, self.n_drafted + 1)

    def further_expert_bytes(self, B: int, T: int = 1) -> float:
        """Of both: a round's tokens may all visit the experts of one."""
        drafting = self.n_drafted * self.draft.further_expert_bytes(B)
        return drafting + self.target.further_expert_bytes(B, self.n_drafted + 1)

    @property
    def token_weight_bytes(self) -> float:
        """Weights that one token reads: the model's."""
        return self.target.token_weight_bytes

    def step_bytes(self, B: int, S: int, T: int = 1) -> float:
        """Weights and caches that a round reads."""
        drafting = self.n_drafted * self.draft.step_bytes(B, S)
        return drafting + self.target.step_bytes(B, S, self.n_drafted + 1)

    def step_flops(self, B: int, S: Number, T: int = 1) -> float:
        """FLOPs of a round."""
        drafting = self.n_drafted * self.draft.step_flops(B, S)
        return drafting + self.target.step_flops(B, S, self.n_drafted + 1)

    def step_sent_bytes(self, B: int, S: int, T: int = 1) -> float | None:
        """Bytes that a chip sends in a round."""
        drafting = self.draft.step_sent_bytes(B, S)
        checking = self.target.step_sent_bytes(B, S, self.n_drafted + 1)
        if drafting is None or checking is None:
            return None
        return self.n_drafted * drafting + checking

    def step(self, B: int, S: Number, T: int = 1) -> Times:
        """Times of a round."""
        checking = self.target.step(B, S, self.n_drafted + 1)
        return self.draft.step(B, S) * self.n_drafted + checking

    def mean_step(self, B: int, T: int = 1) -> Times:
        """Times of a token of each sequence in the steady state: a round's, over its tokens."""
        checking = self.target.mean_step(B, self.n_drafted + 1)
        drafting = self.draft.mean_step(B) * self.n_drafted
        return (drafting + checking) * (1 / self.tokens_per_step)

    @cached_property
    def mean_cache_bytes(self) -> float:
        """The cache that is read for a token of a sequence."""
        read = self.target.mean_cache_bytes + self.n_drafted * self.draft.mean_cache_bytes
        return read / self.tokens_per_step

    @cached_property
    def mean_token_flops(self) -> float:
        """FLOPs of a token: of all that are drafted and checked, those of one that stays."""
        checking = (self.n_drafted + 1) * self.target.mean_token_flops
        return (checking + self.n_drafted * self.draft.mean_token_flops) / self.tokens_per_step

    def prefill_flops(self, T: int, found: int = 0) -> float:
        """FLOPs of a prompt, which both read."""
        return self.target.prefill_flops(T, found) + self.draft.prefill_flops(T, found)

    def prefill(self, T: int, found: int = 0) -> Times:
        """Times of a prompt alone, which both read."""
        return self.target.prefill(T, found) + self.draft.prefill(T, found)

    def prompt(self, T: int, found: int = 0) -> Times:
        """Times that a prompt takes of the machine's."""
        return self.target.prompt(T, found) + self.draft.prompt(T, found)

    def weights_alone(self, B: int, T: int = 1) -> Times:
        """Times of a round without any attention to caches."""
        checking = self.target.weights_alone(B, self.n_drafted + 1)
        return self.draft.weights_alone(B) * self.n_drafted + checking

    def speedup(self) -> float:
        """Tokens a second against the model alone, in the steady state."""
        alone, together = (d.mean_step(self.w.batch) for d in (self.target, self))
        return alone.overlapped_s / together.overlapped_s
