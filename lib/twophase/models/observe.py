"""Writes down what a model, its caches and the generation loop do, from outside: hooks of torch and
wrapped methods, all gone at the end. A model that nobody observes runs the same code as ever."""

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from twophase.measure.events import KINDS, EventLog
from twophase.models.cache import Cache
from twophase.models.generate import Generation, generate_batch
from twophase.models.latent_attention import UpProjection
from twophase.models.step import Step
from twophase.models.transformer import Transformer

# methods of a cache, and the events they are noted as
WATCHED = {"commit": "commit", "truncate": "cut", "release": "release", "fork": "fork"}


class _Observer:
    """What the hooks share: the log, the caches seen so far, and the tokens of the pass."""

    def __init__(self, log: EventLog) -> None:
        self.log, self.calls = log, 0
        self.caches: list[Cache] = []
        self.tokens: list[list[int]] = []
        self.absorbing: list[UpProjection] = []

    def note_tokens(self, module: torch.nn.Module, args: tuple[torch.Tensor, ...]) -> None:
        self.tokens = args[0].tolist()

    def begin(self, module: torch.nn.Module, args: tuple[torch.Tensor, Step]) -> None:
        """Before the first layer: a pass begins."""
        step = args[1]
        self.log.write(
            "call",
            call=self.calls,
            cache=self.number(step.cache),
            starts=list(step.span.starts),
            tokens=[row[:n] for row, n in zip(self.tokens, step.span.n_new, strict=True)],
        )
        self.calls += 1

    def append(
        self, layer: int, module: torch.nn.Module, args: tuple[torch.Tensor, Step], out: Any
    ) -> None:
        """After a layer's mixer: its store has the new tokens."""
        step = args[1]
        if step.cache is not None and layer in step.cache.stores:
            self.log.write(
                "append",
                call=self.calls - 1,
                cache=self.number(step.cache),
                layer=layer,
                starts=list(step.span.starts),
                n_new=list(step.span.n_new),
            )

    def unfold(
        self, layer: int, module: torch.nn.Module, args: tuple[torch.Tensor], out: Any
    ) -> None:
        """After an up-projection: a layer of latents has keys and values of all heads."""
        self.log.write("unfold", call=self.calls - 1, layer=layer, latents=args[0].shape[1])

    def absorb(self, layer: int, projection: UpProjection) -> None:
        """Have the up-projection of a layer note the queries that it is absorbed into."""

        def noted(q_nope: torch.Tensor) -> torch.Tensor:
            self.log.write("absorb", call=self.calls - 1, layer=layer, queries=q_nope.shape[1])
            return UpProjection.absorb(projection, q_nope)

        projection.absorb = noted  # type: ignore[method-assign]
        self.absorbing.append(projection)

    def number(self, cache: Cache | None) -> int | None:
        """The number of a cache in the log; one that is new is observed from now on."""
        if cache is None:
            return None
        for number, known in enumerate(self.caches):
            if known is cache:
                return number
        self.caches.append(cache)
        for name, kind in WATCHED.items():
            self.wrap(cache, len(self.caches) - 1, name, kind)
        return len(self.caches) - 1

    def wrap(self, cache: Cache, number: int, name: str, kind: str) -> None:
        """Have a method of one cache, and no other, noted when it has come to its end."""
        method = getattr(cache, name)

        def noted(*args: Any, **options: Any) -> None:
            before = cache.lengths
            method(*args, **options)
            fields = inspect.signature(method).bind(*args, **options).arguments
            if kind == "commit":
                kept = [n - m for n, m in zip(cache.lengths, before, strict=True)]
                fields = {"kept": kept}
            fields = {name: value for name, value in fields.items() if name in KINDS[kind]}
            self.log.write(kind, **{"cache": number, **fields, "lengths": list(cache.lengths)})

        setattr(cache, name, noted)

    def leave(self) -> None:
        """Give the caches and the up-projections their own methods back."""
        for projection in self.absorbing:
            del projection.absorb
        for cache in self.caches:
            for name in WATCHED:
                delattr(cache, name)


@contextmanager
def observe(model: Transformer, log: EventLog | None = None) -> Iterator[EventLog]:
    """The log of every pass of a model, and of all that happens to the caches it is called with,
    until the block ends."""
    observer = _Observer(EventLog() if log is None else log)
    mixers = [block.get_submodule("self_attn") for block in model.layers]
    hooks = [
        model.embed_tokens.register_forward_pre_hook(observer.note_tokens),
        mixers[0].register_forward_pre_hook(observer.begin),
        *(m.register_forward_hook(partial(observer.append, i)) for i, m in enumerate(mixers)),
    ]
    for i, mixer in enumerate(mixers):
        if isinstance(up := getattr(mixer, "kv_b_proj", None), UpProjection):
            hooks.append(up.register_forward_hook(partial(observer.unfold, i)))
            observer.absorb(i, up)
    try:
        yield observer.log
    finally:
        for hook in hooks:
            hook.remove()
        observer.leave()


def generation_log(
    model: Transformer, prompts: Sequence[Sequence[int]], n_new: int, **options: Any
) -> tuple[EventLog, list[Generation]]:
    """Run `generate_batch` to its end, with its options, and return what happened in it and its
    records."""
    records = [Generation() for _ in prompts]
    with observe(model) as log:
        for step in generate_batch(model, prompts, n_new, records=records, **options):
            for row, token in enumerate(step):
                if token is not None:
                    reason = records[row].finish_reason
                    log.write("token", row=row, token=int(token), reason=reason)
    return log, records
