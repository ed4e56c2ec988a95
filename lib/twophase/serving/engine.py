"""The loop: schedule, run, sample, hand out (`step`), until nobody is left.

It knows no time but what `clock` says. A clock that a test or a simulation moves makes the same
engine reproducible; the default is that of the machine, from the moment the engine was made.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from twophase.kernels.sampling import sample
from twophase.measure.events import EventLog
from twophase.models.transformer import Transformer
from twophase.serving.config import EngineConfig
from twophase.serving.moves import Aside, carry_out
from twophase.serving.notes import note_schedule
from twophase.serving.numbered import Numbered
from twophase.serving.policy import Policy
from twophase.serving.request import Request, SamplingParams, Status, check_positions, check_prompt
from twophase.serving.runner import Runner
from twophase.serving.scheduled import Scheduled
from twophase.serving.scheduler import Scheduler
from twophase.serving.start import runner_and_room, since_now

IDLE_S = 0.001


class Engine:
    """Serves requests that may come at any time.

    `model`: a Transformer, or whoever else runs passes (`Runner`). `log`: events of
    `measure.events`, if one is given. Raises ValueError for a policy that lacks a decision, and for
    prefix caching on a model with states, whose past is in no block.
    """

    def __init__(
        self,
        model: Transformer | Runner,
        config: EngineConfig | None = None,
        *,
        policy: Policy | None = None,
        log: EventLog | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        c = self.config = config or EngineConfig()
        self.runner, (self.blocks, self.windows) = runner_and_room(model, c)
        self.scheduler = Scheduler(c, self.blocks, policy, self.windows)
        self.log, self.clock = log, clock or since_now()
        self.requests = Numbered()
        self._aside: Aside = {}

    @property
    def busy(self) -> bool:
        """Whether anybody waits or runs."""
        return bool(self.scheduler.waiting or self.scheduler.running)

    def add(
        self,
        prompt: Sequence[int],
        params: SamplingParams | None = None,
        arrival_s: float | None = None,
    ) -> int:
        """Take a request, and give its number (its further answers have those that follow).

        ValueError, in one sentence, for a prompt that is none, or more than this engine could ever
        hold.
        """
        params = params or SamplingParams()
        tokens = check_prompt(prompt, self.runner.V)
        arrival_s = self.clock() if arrival_s is None else arrival_s
        if not math.isfinite(arrival_s):
            raise ValueError(f"a request arrives at a time, in seconds; got {arrival_s}.")
        self._check(tokens, params)
        family = self.requests.family(tokens, params, arrival_s)
        first = family[0]
        self._note("arrive", request=first.id, n_prompt=len(tokens), answers=params.n)
        if params.max_tokens:
            self.scheduler.add(first)
        else:
            for request in family:
                self._finish(request, "length")
        return first.id

    def _check(self, prompt: tuple[int, ...], params: SamplingParams) -> None:
        """ValueError for more than the model has positions for, or the pools blocks."""
        check_positions(len(prompt), params.max_tokens, self.runner.most_positions)
        if params.max_tokens:
            self.scheduler.check(Request(len(self.requests), prompt, params))

    def abort(self, request_id: int) -> None:
        """End a request, wherever it is; one that has ended stays as it is. KeyError for a number
        that was never given."""
        request = self.requests[request_id]
        if request.status is not Status.FINISHED:
            if heir := self.requests.heir(request):
                self.scheduler.hand_on(request, heir)
            self._finish(request, "abort")

    def step(self) -> list[Request]:
        """One pass: read what the scheduler says, draw a token for each request that is read to its
        end, and give those that have ended now."""
        try:
            made = self.scheduler.schedule(self.clock())
        except BaseException:  # a policy raised: moves are lost, and nobody's blocks are sure
            running = dict.fromkeys(self.scheduler.running, 0)
            self._start_over(Scheduled(running, preempted=list(self.scheduler.waiting)))
            raise
        if self.log is not None:
            note_schedule(self.log, made, self.scheduler)
        try:
            carry_out(self.runner, made, self._aside, self.windows is not None)
            logits = self._run(made.n_new) if made.n_new else {}
        except BaseException:  # what is half written is read again
            self._start_over(made)
            raise
        now_s = self.clock()
        self._computed(made)
        try:
            ended = self._draw_all(logits, now_s)
        except BaseException:  # logits that are no numbers: whoever got no token reads again
            ended = [one for one in self.scheduler.running if one.finish_reason]
            undrawn = [one for one in self.scheduler.running if not one.n_missing]
            self._start_over(Scheduled(dict.fromkeys(undrawn, 0)))
            raise
        finally:
            for request in ended:
                self._finish(request)
        return ended

    def _computed(self, made: Scheduled) -> None:
        """The pass is over: its tokens are in the cache."""
        for request, n in made.n_new.items():
            request.n_computed += n
            for manager in self.scheduler.managers:
                manager.pass_over(request.id, request.n_computed)
            if request.n_computed % self.config.block_size < n:  # a block is full
                self._remember(request)

    def run(self) -> list[Request]:
        """Step until nobody waits or runs; all requests, in the order of their numbers.

        ValueError for a policy that would let them wait for ever."""
        while self.busy:
            self.step()
            if self.busy and not self.scheduler.running:
                self.scheduler.check_admits(self.clock())
                time.sleep(IDLE_S)  # a policy lets them wait
        return list(self.requests.values())

    def fork(self, request_id: int, params: SamplingParams | None = None) -> int:
        """A second sequence that goes on from where a running one stands, and its number: it has
        the same tokens and blocks, and parts with the next one. `params.max_tokens` counts those
        that it has.

        ValueError if the first does not decode, there is no seat, or the second would have nothing
        to say or no room. KeyError for a number that was never given.
        """
        parent = self.requests[request_id]
        params = replace(parent.params, n=1) if params is None else params
        if parent.status is not Status.RUNNING or parent.n_missing != 1:
            raise ValueError(f"request {request_id} is not decoding: only a running one can fork.")
        if self.scheduler.seats_taken >= self.config.max_seqs:
            raise ValueError(f"all {self.config.max_seqs} seats are taken.")
        if params.n > 1 or params.max_tokens <= len(parent.tokens):
            raise ValueError(
                f"a fork is one answer, of more than the {len(parent.tokens)} tokens that request"
                f" {request_id} has; got n={params.n}, max_tokens={params.max_tokens}."
            )
        self._check(parent.prompt, params)
        child = self.requests.new(parent.prompt, params, parent.arrival_s, parent.id)
        child.tokens, child.times_s = list(parent.tokens), list(parent.times_s)
        self._split(parent, child)
        return child.id

    def _run(self, n_new: dict[Request, int]) -> dict[Request, torch.Tensor]:
        if self.windows is None:
            return self.runner.run(n_new, self.blocks.tables)
        return self.runner.run(n_new, self.blocks.tables, self.windows.tables)

    def _split(self, parent: Request, child: Request) -> None:
        self.scheduler.fork(parent, child)
        self.runner.seat(child.id)
        self.runner.copy_state(parent.id, child.id)
        self._note("split", parent=parent.id, child=child.id)

    def _answers(self, request: Request) -> list[Request]:
        """The request, and those that part from it now that its prompt is read."""
        going = self.requests.part(request)
        for child in going:
            self._split(request, child)
        return [request, *going]

    def _draw_all(self, logits: dict[Request, torch.Tensor], now_s: float) -> list[Request]:
        """Draw a token for each of these and the answers that part from them; those that have
        ended."""
        return [
            one
            for request, row in logits.items()
            for one in self._answers(request)
            if self._draw(one, row, now_s)
        ]

    def _draw(self, request: Request, logits: torch.Tensor, now_s: float) -> bool:
        """Draw a request's next token; whether it was the last."""
        p = request.params
        drawn = sample(logits, p.temperature, p.top_k, p.top_p, generator=request.generator)
        request.take(drawn, now_s)
        self._note("token", row=request.id, token=drawn, reason=request.finish_reason)
        return request.finish_reason is not None

    def _start_over(self, made: Scheduled) -> None:
        """After a pass that was broken off: those in it wait again, and are read from the start."""
        for request in (*made.n_new, *made.preempted):
            self.runner.unseat(request.id)
        for request in reversed(made.n_new):
            self.scheduler.requeue(request)
            self._aside.pop(request, None)  # it was to come back, and did not
        for request in set(self.scheduler.saved) - set(self._aside):
            del self.scheduler.saved[request]  # nobody has put it aside

    def _remember(self, request: Request) -> None:
        """Let others find what a request has computed."""
        if self.config.prefix_caching:
            tokens = request.all_tokens[: request.n_computed]
            self.blocks.remember(request.id, tokens)

    def compact(self) -> int:
        """Bring what is held to the blocks with the lowest numbers; how many were copied."""
        copies = self.blocks.compact(self.runner.copy_block)
        if self.windows is not None:
            copies += self.windows.compact(self.runner.copy_window_block)
        for source, target in copies:
            self._note("copy_block", source=source, target=target)
        return len(copies)

    def _finish(self, request: Request, reason: str | None = None) -> None:
        if request.status is Status.RUNNING:
            self._remember(request)
        self.runner.unseat(request.id)
        self.scheduler.stop(request)
        self.scheduler.saved.pop(request, None)
        self._aside.pop(request, None)
        request.status, request.finish_reason = Status.FINISHED, reason or request.finish_reason
        self._note("finish", request=request.id, reason=str(request.finish_reason))

    def _note(self, kind: str, **fields: Any) -> None:
        if self.log is not None:
            self.log.write(kind, **fields)
