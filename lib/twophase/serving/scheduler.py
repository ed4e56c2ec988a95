"""Who reads how many tokens in the next pass (Yu et al., 2022, Orca; chunked prefill: Agrawal et
al., 2024, Sarathi-Serve, arXiv 2403.02310).

Before each pass: those that run go first, one token each if they decode; what is left of the
budget goes to prompts, in chunks, and to whoever waits. When blocks run out, somebody gives way.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from twophase.kernels.span import whole
from twophase.serving.block_manager import INDEXES, BlockManager
from twophase.serving.policy import ContinuousBatching, Policy
from twophase.serving.prefixes import Found
from twophase.serving.request import Request, Status

PREEMPTIONS = ("recompute", "swap")


@dataclass(frozen=True)
class EngineConfig:
    """What an engine may use.

    `n_blocks` blocks of `block_size` tokens; at most `max_seqs` sequences run at once, and a pass
    reads at most `max_batched_tokens` tokens. `chunked_prefill`: prompts may be cut to fit that
    budget; without, a longer one has a pass to itself. `prefix_caching`: blocks are shared by
    prompts that begin alike, `prefix_index`: found by "hash", full blocks, or in a "radix" tree, to
    the last token. `reserve`: take all blocks that a request may need when it is
    admitted, as a contiguous cache does. `preemption`: "recompute" reads a sequence again that had
    to give way, "swap" keeps its blocks elsewhere. `batch_invariant`: each token in calls of its
    own, so that an answer's bits do not depend on its company. ValueError for what is out of range.
    """

    n_blocks: int = 256
    block_size: int = 16
    max_seqs: int = 16
    max_batched_tokens: int = 256
    chunked_prefill: bool = True
    prefix_caching: bool = False
    prefix_index: str = "hash"
    reserve: bool = False
    preemption: str = "recompute"
    batch_invariant: bool = False

    def __post_init__(self) -> None:
        for name in ("n_blocks", "block_size", "max_seqs", "max_batched_tokens"):
            whole(name, getattr(self, name), 1)
        if self.prefix_index not in INDEXES:
            raise ValueError(
                f"prefix_index is one of {', '.join(INDEXES)}; got {self.prefix_index!r}."
            )
        if self.preemption not in PREEMPTIONS:
            raise ValueError(
                f"preemption is one of {', '.join(PREEMPTIONS)}; got {self.preemption!r}."
            )
        if self.max_batched_tokens < self.max_seqs:
            raise ValueError(
                f"a pass must be able to read a token of each of {self.max_seqs} sequences: take"
                f" max_batched_tokens of at least so many; got {self.max_batched_tokens}."
            )


class CopyBlock(NamedTuple):
    """What lies in a block goes to another, too: somebody will write there (copy-on-write)."""

    source: int
    target: int


class SwapOut(NamedTuple):
    """What a sequence holds is put aside; its blocks are others' from now on."""

    request: Request
    table: tuple[int, ...]


class SwapIn(NamedTuple):
    """What was put aside comes back, to blocks of its own."""

    request: Request
    table: tuple[int, ...]


@dataclass
class Scheduled:
    """The next pass: each request that takes part, and how many of its missing tokens are read.

    `moves` come first, in their order: a block may be put aside, taken, and copied to, in one pass.
    """

    n_new: dict[Request, int] = field(default_factory=dict)
    moves: list[CopyBlock | SwapOut | SwapIn] = field(default_factory=list)
    admitted: list[Request] = field(default_factory=list)
    preempted: list[Request] = field(default_factory=list)

    @property
    def n_tokens(self) -> int:
        """Tokens that the pass reads."""
        return sum(self.n_new.values())


class Scheduler:
    """The queue, those that run, and the rule that makes a pass of them."""

    def __init__(
        self, config: EngineConfig, blocks: BlockManager, policy: Policy | None = None
    ) -> None:
        self.config, self.blocks = config, blocks
        self.policy: Policy = ContinuousBatching() if policy is None else policy
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.saved: dict[Request, int] = {}  # tokens that were put aside by a swap

    def add(self, request: Request) -> None:
        """Queue a request. ValueError for one that could never run."""
        needed = self.blocks.blocks_for(request.longest)
        if needed > self.blocks.n_blocks:
            raise ValueError(
                f"a prompt of {len(request.prompt)} tokens and {request.params.max_tokens} new ones"
                f" need {needed} blocks, and the pool has {self.blocks.n_blocks}: take a larger"
                " pool, or ask for less."
            )
        if request.params.n > self.config.max_seqs:
            raise ValueError(
                f"{request.params.n} answers need as many seats, and there are"
                f" {self.config.max_seqs}: ask in parts, or raise max_seqs."
            )
        self.waiting.append(request)

    def schedule(self, now_s: float) -> Scheduled:
        """The next pass; empty if nobody can run."""
        made = Scheduled()
        for request in list(self.running):
            self._continue(request, made)
        if not made.preempted:
            self._admit(made, now_s)
        return made

    def _continue(self, request: Request, made: Scheduled) -> None:
        """Give a running request its tokens; until there are blocks for them, somebody gives
        way."""
        while request.status is Status.RUNNING:
            n = self._share(request, made)
            if n == 0:
                return
            needed = self.blocks.blocks_to_append(request.id, request.n_computed, n)
            if self.blocks.can_allocate(needed):
                copies = self.blocks.append(request.id, request.n_computed, n)
                made.moves += [CopyBlock(*copy) for copy in copies]
                made.n_new[request] = n
                return
            victim = self.policy.victim(tuple(self.running))
            if victim not in self.running:
                raise ValueError(f"a policy's victim is one of those that run; got {victim!r}.")
            self._preempt(victim, made)

    def _share(self, request: Request, made: Scheduled) -> int:
        """How many of its missing tokens a request may read in this pass."""
        left = self.config.max_batched_tokens - made.n_tokens
        if request.n_missing <= left:
            return request.n_missing
        if self.config.chunked_prefill:
            return left
        return 0 if made.n_new else request.n_missing  # a long prompt has a pass to itself

    def _admit(self, made: Scheduled, now_s: float) -> None:
        """Let those that wait join, in the policy's order, until one does not fit."""
        if not self.waiting or not self.policy.may_admit(
            tuple(self.waiting), tuple(self.running), self.config.max_seqs, now_s
        ):
            return
        order = list(self.policy.order(tuple(self.waiting)))
        if len(set(order)) < len(order) or not set(order) <= set(self.waiting):
            raise ValueError("a policy orders those that wait, each once at most.")
        for request in order:
            if self.seats_taken + request.params.n > self.config.max_seqs:
                return
            if not self._start(request, made):
                return

    @property
    def seats_taken(self) -> int:
        """Sequences that run, and answers that will part from one of them."""
        return sum(request.seats for request in self.running)

    def _start(self, request: Request, made: Scheduled) -> bool:
        """Admit one request, if there are tokens and blocks for it."""
        saved = self.saved.get(request, 0)
        known = Found() if saved else self.blocks.find(request.all_tokens)
        request.n_computed = request.n_shared = saved or known.n_tokens
        n = self._share(request, made)
        held = request.n_computed + n
        wanted = max(held, request.longest) if self.config.reserve else held
        if n == 0 or not self._fits(wanted, known.blocks):
            request.n_computed = request.n_shared = 0
            return False
        table = self.blocks.allocate(request.id, wanted, known.blocks, known.partial)
        if known.partial is not None:
            made.moves.append(CopyBlock(known.partial, table[len(known.blocks)]))
        if self.saved.pop(request, 0):
            made.moves.append(SwapIn(request, tuple(table)))
        self.waiting.remove(request)
        self.running.append(request)
        request.status = Status.RUNNING
        made.admitted.append(request)
        made.n_new[request] = n
        return True

    def _fits(self, n_tokens: int, shared: Sequence[int]) -> bool:
        revived = sum(self.blocks.ref_count[block] == 0 for block in shared)
        return self.blocks.can_allocate(self.blocks.blocks_for(n_tokens) - len(shared) + revived)

    def _preempt(self, request: Request, made: Scheduled) -> None:
        """Take a request's blocks; it waits again, before all others."""
        made.n_new.pop(request, None)
        made.preempted.append(request)
        if self.config.preemption == "swap" and request.n_computed:
            self.saved[request] = request.n_computed
            held = self.blocks.blocks_for(request.n_computed)  # behind them nothing is written yet
            made.moves.append(SwapOut(request, tuple(self.blocks.tables[request.id][:held])))
        self.requeue(request)
        request.preemptions += 1

    def requeue(self, request: Request) -> None:
        """Take a running request's blocks, and let it wait before all others."""
        self.stop(request)
        self.waiting.insert(0, request)

    def stop(self, request: Request) -> None:
        """End a request's stay among those that run, or in the queue."""
        if request in self.running:
            self.running.remove(request)
            self.blocks.free(request.id)
        if request in self.waiting:
            self.waiting.remove(request)
        request.status, request.n_computed = Status.WAITING, 0

    def fork(self, parent: Request, child: Request) -> None:
        """Let a second sequence go on from where a running one stands, on the same blocks."""
        self.blocks.fork(parent.id, child.id)
        child.n_computed, child.status = parent.n_computed, Status.RUNNING
        self.running.append(child)
