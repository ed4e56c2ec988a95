"""Who reads how many tokens in the next pass (Yu et al., 2022, Orca; chunked prefill: Agrawal et
al., 2024, Sarathi-Serve, arXiv 2403.02310).

Before each pass: those that decode go first, one token each; what is left of the budget goes to
prompts, in chunks, and to whoever waits. When blocks run out, somebody gives way.
"""

from twophase.serving.block_manager import BlockManager
from twophase.serving.config import EngineConfig
from twophase.serving.policy import (
    ContinuousBatching,
    Policy,
    asked_to_admit,
    check_admits,
    check_policy,
    named,
    ordered,
)
from twophase.serving.prefixes import Found
from twophase.serving.request import Request, Status
from twophase.serving.scheduled import CopyBlock, Scheduled, SwapIn, SwapOut


class Scheduler:
    """The queue, those that run, and the rule that makes a pass of them."""

    def __init__(
        self,
        config: EngineConfig,
        blocks: BlockManager,
        policy: Policy | None = None,
        windows: BlockManager | None = None,
    ) -> None:
        self.config, self.blocks, self.windows = config, blocks, windows
        self.managers = [blocks] if windows is None else [blocks, windows]
        self.policy: Policy = ContinuousBatching() if policy is None else check_policy(policy)
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.saved: dict[Request, int] = {}  # tokens that were put aside by a swap

    def check(self, request: Request) -> None:
        """ValueError for a request that could never run."""
        longest = request.longest
        chunk = self.config.max_batched_tokens if self.config.chunked_prefill else longest
        for manager in self.managers:
            needed = manager.peak(longest, chunk)
            if needed > manager.n_blocks:
                raise ValueError(
                    f"a prompt of {len(request.prompt)} tokens and {request.params.max_tokens} new"
                    f" ones need {needed} blocks, and the pool has {manager.n_blocks}: take a"
                    " larger pool, or ask for less."
                )
        if request.params.n > self.config.max_seqs:
            raise ValueError(
                f"{request.params.n} answers need as many seats, and there are"
                f" {self.config.max_seqs}: ask in parts, or raise max_seqs."
            )

    def add(self, request: Request) -> None:
        """Queue a request that `check` lets through."""
        self.waiting.append(request)

    def schedule(self, now_s: float) -> Scheduled:
        """The next pass; empty if nobody can run."""
        made = Scheduled()
        for request in sorted(self.running, key=lambda one: one.n_missing > 1):
            self._continue(request, made)  # one that was forked off may stand behind a long prompt
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
            if self._can_append(request, n):
                for manager in self.managers:
                    for copy in manager.append(request.id, request.n_computed, n):
                        made.moves.append(CopyBlock(*copy, manager is self.windows))
                made.n_new[request] = n
                return
            victim = self.policy.victim(tuple(self.running))
            if victim not in self.running:
                raise ValueError(
                    f"a policy's victim is one of those that run; got {named(victim)}."
                )
            self._preempt(victim, made)

    def _can_append(self, request: Request, n: int) -> bool:
        """Whether there are blocks for the next n tokens of a running request."""
        return all(
            manager.can_allocate(manager.blocks_to_append(request.id, request.n_computed, n))
            for manager in self.managers
        )

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
        waiting, running = tuple(self.waiting), tuple(self.running)
        seats = self.config.max_seqs
        if not waiting or not asked_to_admit(self.policy, waiting, running, seats, now_s):
            return
        for request in ordered(self.policy, waiting):
            if self.seats_taken + request.seats > seats:
                return
            if not self._start(request, made):
                return

    def check_admits(self, now_s: float) -> None:
        """ValueError if some wait, nobody runs, and the policy lets nobody in, now or later."""
        if self.waiting and not self.running:
            check_admits(self.policy, tuple(self.waiting), self.config.max_seqs, now_s)

    @property
    def seats_taken(self) -> int:
        """Sequences that run, and answers that will part from one of them."""
        return sum(request.seats for request in self.running)

    def _start(self, request: Request, made: Scheduled) -> bool:
        """Admit one request, if there are tokens and blocks for it."""
        saved = self.saved.get(request, 0)
        known = Found() if saved else self.blocks.find(request.all_tokens)
        request.n_computed, request.n_shared = saved or known.n_tokens, known.n_tokens
        n = self._share(request, made)
        held = request.n_computed + n
        wanted = self.blocks.wanted(held, request.longest) if self.config.reserve else held
        if n == 0 or not self._fits(saved, wanted, held, known):
            request.n_computed = request.n_shared = 0
            return False
        self._allocate(request, wanted, held, known, made)
        self.waiting.remove(request)
        self.running.append(request)
        request.status = Status.RUNNING
        made.admitted.append(request)
        made.n_new[request] = n
        return True

    def _fits(self, saved: int, wanted: int, held: int, known: Found) -> bool:
        """Whether there are blocks for a request that joins; the watermark's stay free for those
        that run, if anybody does."""
        needed = self.blocks.blocks_to_start(saved, wanted, known.blocks)
        if self.running:
            needed += int(self.config.watermark * self.blocks.n_blocks)
        if self.windows is not None:
            windows_needed = self.windows.blocks_to_start(saved, held)
            if not self.windows.can_allocate(windows_needed):
                return False
        return self.blocks.can_allocate(needed)

    def _allocate(
        self, request: Request, wanted: int, held: int, known: Found, made: Scheduled
    ) -> None:
        """Tables for a request that joins, and what is copied or brought back into them."""
        if saved := self.saved.pop(request, 0):
            table = self.blocks.readmit(request.id, saved, wanted)
            windowed = self.windows.readmit(request.id, saved, held) if self.windows else []
            made.moves.append(SwapIn(request, tuple(table), tuple(windowed)))
            return
        table = self.blocks.allocate(request.id, wanted, known.blocks, known.partial)
        if known.partial is not None:
            made.moves.append(CopyBlock(known.partial, table[len(known.blocks)]))
        if self.windows is not None:
            self.windows.allocate(request.id, held)

    def _preempt(self, request: Request, made: Scheduled) -> None:
        """Take a request's blocks; it waits again, before all others."""
        made.n_new.pop(request, None)
        made.preempted.append(request)
        if self.config.preemption == "swap" and request.n_computed:
            self.saved[request] = request.n_computed
            tables = [  # behind what is computed nothing is written yet
                tuple(manager.tables[request.id][: manager.blocks_for(request.n_computed)])
                for manager in self.managers
            ]
            made.moves.append(SwapOut(request, *tables))
        self.requeue(request)
        request.preemptions += 1

    def requeue(self, request: Request) -> None:
        """Take a running request's blocks, and let it wait before all others."""
        self.stop(request)
        self.waiting.insert(0, request)

    def hand_on(self, request: Request, heir: Request) -> None:
        """Let another wait where this one stands in the queue, or as the first if it runs."""
        place = self.waiting.index(request) if request in self.waiting else 0
        self.waiting.insert(place, heir)

    def stop(self, request: Request) -> None:
        """End a request's stay among those that run, or in the queue."""
        if request in self.running:
            self.running.remove(request)
            for manager in self.managers:
                manager.free(request.id)
        if request in self.waiting:
            self.waiting.remove(request)
        request.status, request.n_computed = Status.WAITING, 0

    def fork(self, parent: Request, child: Request) -> None:
        """Let a second sequence go on from where a running one stands, on the same blocks."""
        for manager in self.managers:
            manager.fork(parent.id, child.id)
        child.n_computed, child.status = parent.n_computed, Status.RUNNING
        self.running.append(child)
