"""Beam search over blocks that beams share: the `n` likeliest texts so far go on, each with its
likeliest tokens, and of all these the `n` likeliest again.

A beam that has several followers forks; one that has none gives its blocks back; two that part
within a block part by copy-on-write. So no cache is ever reordered, as one in a single piece has to
be (Kwon et al., 2023, section 4.4).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from twophase.kernels.sampling import stop_reason
from twophase.kernels.span import whole
from twophase.measure.events import EventLog
from twophase.models.transformer import Transformer
from twophase.serving.block_manager import BlockManager, NoFreeBlocks
from twophase.serving.model_runner import ModelRunner
from twophase.serving.notes import note_pass
from twophase.serving.request import Request, SamplingParams, check_prompt


@dataclass(frozen=True)
class Hypothesis:
    """A text that has ended: its tokens, a stop sequence included; the logarithm of its
    probability; and that over its length to the power of the penalty, by which texts are
    ranked."""

    tokens: tuple[int, ...]
    log_prob: float
    score: float


@dataclass(frozen=True)
class Candidate:
    """A beam and a token that may follow it."""

    log_prob: float
    beam: Request
    token: int


def beam_search(
    model: Transformer,
    prompt: Sequence[int],
    n_beams: int,
    max_tokens: int,
    *,
    stop: Sequence[Sequence[int]] = (),
    length_penalty: float = 1.0,
    n_blocks: int = 256,
    block_size: int = 16,
    log: EventLog | None = None,
) -> list[Hypothesis]:
    """The best `n_beams` texts that beam search finds behind a prompt, the best first.

    The rules are those of transformers' `generate(num_beams=n_beams, do_sample=False)`: of the
    candidates of a step those among the first `n_beams` may end; when as many texts have ended, the
    search goes on while the likeliest beam, ranked at its present length, beats the worst of them.
    ValueError for numbers out of range, a stop sequence without tokens, or a pool in which the
    beams do not fit.
    """
    whole("n_beams", n_beams, 1)
    whole("max_tokens", max_tokens, 1)
    params = SamplingParams(max_tokens=max_tokens, stop=tuple(map(tuple, stop)))
    search = _Search(model, n_beams, n_blocks, block_size, log)
    search.begin(Request(0, check_prompt(prompt, model.config.V), params))
    ended: list[Hypothesis] = []
    while True:
        candidates = search.candidates(max(2, 1 + len(params.stop)) * n_beams)
        going = []
        for rank, candidate in enumerate(candidates):
            tokens = [*candidate.beam.tokens, candidate.token]
            if stop_reason(tokens, max_tokens, params.stop) is None:
                going.append(candidate)
            elif rank < n_beams:
                score = candidate.log_prob / len(tokens) ** length_penalty
                ended.append(Hypothesis(tuple(tokens), candidate.log_prob, score))
        ended = sorted(ended, key=lambda one: -one.score)[:n_beams]
        if not going:
            break
        reach = going[0].log_prob / (len(going[0].beam.tokens) + 1) ** length_penalty
        if len(ended) == n_beams and reach <= ended[-1].score:
            break
        search.go_on(going[:n_beams])
    search.end()
    return ended


class _Search:
    """The beams, their blocks, and the passes over them."""

    def __init__(
        self,
        model: Transformer,
        n_beams: int,
        n_blocks: int,
        block_size: int,
        log: EventLog | None,
    ) -> None:
        self.runner = ModelRunner(model, n_blocks, block_size, n_beams)
        self.blocks = BlockManager(n_blocks, block_size)
        self.log = log
        self.beams: dict[Request, float] = {}  # and the logarithm of the probability of each
        self._next_id = 1

    def begin(self, beam: Request) -> None:
        """Read the prompt in the next pass."""
        try:
            self.blocks.allocate(beam.id, len(beam.prompt))
        except NoFreeBlocks:
            raise self._too_small(beam) from None
        self.runner.seat(beam.id)
        self.beams[beam] = 0.0
        self._note("arrive", request=beam.id, n_prompt=len(beam.prompt), answers=1)
        self._note("admit", request=beam.id, shared=0)

    def candidates(self, n: int) -> list[Candidate]:
        """The n likeliest followers of all beams, the likeliest first."""
        logits = self._run()
        rows = torch.stack([logits[beam] for beam in self.beams])  # [beams, V]
        so_far = list(self.beams.values())
        before = torch.tensor(so_far, dtype=torch.float64, device=rows.device)  # [beams]
        log_probs = rows.double().log_softmax(-1) + before[:, None]  # [beams, V]
        V = log_probs.shape[1]
        best = log_probs.flatten().topk(min(n, log_probs.numel()))  # of [beams·V]
        beams = list(self.beams)
        return [
            Candidate(log_prob, beams[i // V], i % V)
            for log_prob, i in zip(best.values.tolist(), best.indices.tolist(), strict=True)
        ]

    def go_on(self, chosen: Sequence[Candidate]) -> None:
        """These are the beams from now on. Whoever has no follower goes first: so there are seats
        for the forks."""
        for beam in set(self.beams) - {candidate.beam for candidate in chosen}:
            self._drop(beam)
        own = {candidate.beam: candidate for candidate in reversed(chosen)}  # its first follower
        beams: dict[Request, float] = {}
        for candidate in chosen:
            parent = candidate.beam
            beam = parent if own[parent] is candidate else self._fork(parent)
            beams[beam] = candidate.log_prob
        for beam, candidate in zip(beams, chosen, strict=True):
            beam.tokens.append(candidate.token)
            self._note("token", row=beam.id, token=candidate.token, reason=None)
        self.beams = beams

    def end(self) -> None:
        """All blocks are free again."""
        for beam in list(self.beams):
            self._drop(beam)

    def _run(self) -> dict[Request, torch.Tensor]:
        """Read what each beam's cache does not hold, and give the logits [V] behind it."""
        n_new = {beam: beam.n_missing for beam in self.beams}
        for beam, n in n_new.items():
            try:
                copies = self.blocks.append(beam.id, beam.n_computed, n)
            except NoFreeBlocks:
                raise self._too_small(beam) from None
            for source, target in copies:
                self.runner.copy_block(source, target)
                self._note("copy_block", source=source, target=target)
        if self.log is not None:
            note_pass(self.log, n_new, self.blocks, 0)
        logits = self.runner.run(n_new, self.blocks.tables)
        for beam, n in n_new.items():
            beam.n_computed += n
        return logits

    def _fork(self, parent: Request) -> Request:
        child = Request(self._next_id, parent.prompt, parent.params, parent=parent.id)
        self._next_id += 1
        child.tokens, child.n_computed = list(parent.tokens), parent.n_computed
        self.blocks.fork(parent.id, child.id)
        self.runner.seat(child.id)
        self.runner.copy_state(parent.id, child.id)
        self._note("split", parent=parent.id, child=child.id)
        return child

    def _drop(self, beam: Request) -> None:
        self.blocks.free(beam.id)
        self.runner.unseat(beam.id)
        del self.beams[beam]
        self._note("finish", request=beam.id, reason="dropped")

    def _too_small(self, beam: Request) -> ValueError:
        return ValueError(
            f"{len(self.beams) or 1} beams of {beam.length} tokens do not fit into"
            f" {self.blocks.n_blocks} blocks of {self.blocks.block_size}: take more."
        )

    def _note(self, kind: str, **fields: object) -> None:
        if self.log is not None:
            self.log.write(kind, **fields)
