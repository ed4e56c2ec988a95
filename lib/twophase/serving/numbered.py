"""All requests of an engine by their numbers, and the families of those that want several."""

from dataclasses import replace

import torch

from twophase.serving.request import Request, SamplingParams, Status


class Numbered(dict[int, Request]):
    """Requests by their numbers, which count up. The answers to one prompt follow each other: the
    first reads it, `n_forks` of it that are still to part from it come behind."""

    def new(
        self,
        prompt: tuple[int, ...],
        params: SamplingParams,
        arrival_s: float,
        parent: int | None = None,
    ) -> Request:
        """One more, with a generator of its own."""
        request = Request(len(self), prompt, params, arrival_s, parent)
        seed = request.id if params.seed is None else params.seed
        request.generator = torch.Generator().manual_seed(seed)
        self[request.id] = request
        return request

    def family(
        self, prompt: tuple[int, ...], params: SamplingParams, arrival_s: float
    ) -> list[Request]:
        """As many as answers are wanted; the first reads the prompt for all."""
        first = self.new(prompt, params, arrival_s)
        first.n_forks = params.n - 1
        others = [
            self.new(prompt, _seeded(params, i), arrival_s, first.id) for i in range(1, params.n)
        ]
        return [first, *others]

    def part(self, request: Request) -> list[Request]:
        """The answers that part from a request now that its prompt is read, and did not end
        before."""
        children = [self[request.id + i] for i in range(1, request.n_forks + 1)]
        request.n_forks = 0
        return [child for child in children if child.status is not Status.FINISHED]

    def heir(self, request: Request) -> Request | None:
        """Of these the first, which from now on reads the prompt in place of the request."""
        last = request.id + request.n_forks
        heir = next(iter(self.part(request)), None)
        if heir is not None:
            heir.n_forks = last - heir.id
        return heir


def _seeded(params: SamplingParams, i: int) -> SamplingParams:
    """What the i-th answer is drawn with."""
    return params if params.seed is None else replace(params, seed=params.seed + i)
