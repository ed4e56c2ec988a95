"""A transformer whose decode steps run in compiled loops, on the weights and the cache of the plain
one."""

from collections.abc import Callable
from functools import partial
from threading import RLock
from typing import Any, cast

import torch
from torch import nn

from twophase.kernels.compiled.compiling import saying_so
from twophase.kernels.compiled.pages import use_large_pages
from twophase.kernels.compiled.threads import workers, workers_of_parallel_loops
from twophase.kernels.span import span_counts
from twophase.models.cache import Cache, Counts
from twophase.models.compiled.batch import batch_step
from twophase.models.compiled.batch_linear import wants_widening, with_batch_linears
from twophase.models.compiled.ends import Embedding, Head, PlainEmbedding, PlainHead
from twophase.models.compiled.halves import Half
from twophase.models.compiled.inputs import check_model, number_of
from twophase.models.compiled.make import in_runs, make_half
from twophase.models.compiled.narrowed import narrowed
from twophase.models.compiled.plain import PlainBlock, halves_of
from twophase.models.compiled.quantized import is_quantized, packed_alone
from twophase.models.compiled.several import Several, without_loops
from twophase.models.compiled.several_halves import in_numbers
from twophase.models.compiled.token import Token, Workspace
from twophase.models.compiled.weights import NoKernel, Version, check_kind
from twophase.models.compiled.whole import whole_of
from twophase.models.linear import linears
from twophase.models.quantize.linear import weight_bytes
from twophase.models.step import check_positions
from twophase.models.transformer import Block, Transformer

_Made = Callable[[Transformer, Workspace], Callable[..., Any]]
# A smaller model has its tokens faster from one core: a loop on all of them costs a microsecond
# before it begins. And for batches it does without a second copy of its matrices.
LARGE_BYTES = 16e6
# Tokens of a pass of several: from there on products in torch are as fast (where it has products of
# bf16, these are from 8 on, but what stands around them is not).
MOST = 16


class CompiledTransformer:
    """Called as the `Transformer` that it is made of, on the same caches: a step of one token of
    one sequence runs in compiled loops, and so does a pass of a few (`several`: a verification of
    drafted tokens); a step of several sequences attends in them (`batch`), and whatever else there
    is runs in the plain model.

    Logits of one sequence in loops are fp32, whatever the weights are, and under torch.autocast,
    too. Loops read matrices where they lie, but for those of a small model in fp32 whose numbers
    are all bf16 (`narrowed`); of these, of norms and biases, and of codes in the order that loops
    read, they have copies, and steps of several sequences one more of matrices (`batch_linear`). So
    after a change of the model, make another one (a step notices other numbers, hooks and modules,
    see `Version`, but no `forward` that was put into a module, nor another eps, window or
    activation). A copy or a pickle is made anew of its model. Passes of one sequence wait for each
    other. What has no loops for one token runs in torch: `plain` says what, and why.

    `parallel`: on all cores; by default where the model is large enough. Raises ValueError for a
    model that reads both ways, is not on the CPU, or whose weights are neither float32 nor
    bfloat16.
    """

    def __init__(self, model: Transformer, *, parallel: bool | None = None) -> None:
        check_model(model)
        self.model, self.config = model, model.config
        if parallel is None:
            parallel = workers() > 1 and weight_bytes(model) > LARGE_BYTES
        self.parallel = parallel
        use_large_pages(*model.parameters())
        self.plain: dict[str, str] = {}  # what runs in torch, and why
        self._work, self._version, self._lock = Workspace(model, parallel), Version(model), RLock()
        self._ran: set[bool] = set()  # whether with several tokens
        self._several: Several | None = None  # for passes of these, once they are wanted
        self._batched: Transformer | None = None  # for batches, once it is wanted
        self._narrowed = narrowed(model) if weight_bytes(model) <= LARGE_BYTES else None
        self._make(self._narrowed or model)
        if self._narrowed is not None and self.plain:  # which computes in the model's own dtype
            self._narrowed, self.plain = None, {}
            self._make(model)
        if self._narrowed is not None:
            self._version.add(model.parameters())
        use_large_pages(*(torch.from_numpy(w.arrays[0]) for w in self._work.codes.values()))

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and pickled as what it is made of: addresses and locks are of one process."""
        return partial(type(self), parallel=self.parallel), (self.model,)

    def _make(self, model: Transformer) -> None:
        """Loops for the numbers of this model, the very same as those of `self.model`."""
        layers = [self._of_block(i, block) for i, block in enumerate(model.layers)]
        self._halves = in_runs(layers, self._work)
        self._embed = self._in_loops("embedding", model, Embedding, PlainEmbedding)
        self._head = self._in_loops("head", model, Head, PlainHead)
        self._whole = whole_of(self._embed, self._halves, self._head, self._work)

    @property
    def device(self) -> torch.device:
        """Where the plain model is: in the memory of the CPU."""
        return self.model.device

    def new_cache(self, *sizes: Any, **options: Any) -> Cache:
        """An empty cache, as the plain model makes it."""
        return self.model.new_cache(*sizes, **options)

    @property
    def report(self) -> str:
        """A sentence: on how many cores loops run; which prompts run in torch instead, and what
        else, and why."""
        cores = "all cores" if self.parallel else "one core"
        if self._narrowed is not None:
            cores += ", reading weights as the bf16 that they are"
        by_reason: dict[str, list[str]] = {}
        for name, reason in self.plain.items():
            by_reason.setdefault(reason, []).append(name)
        plain = [
            f" in plain torch, since {reason}: {', '.join(names)}"
            for reason, names in by_reason.items()
        ]
        prompts = " prompts in plain torch"
        if any(map(in_numbers, self._halves)) or self._work.codes:  # a few tokens have loops, too
            prompts = (
                f" prompts of more than {MOST} tokens, or of several sequences, in plain torch"
            )
        return ";".join([f"compiled path, on {cores}", prompts, *plain]) + "."

    def _of_block(self, i: int, block: nn.Module) -> list[Half]:
        """The halves of a block, each in loops where it can be."""
        try:
            check_kind(block, Block)
        except NoKernel as reason:
            self.plain[f"layer {i}"] = str(reason)
            return [PlainBlock(block)]
        made: list[Half] = []
        for name, half in zip(("attention", "MLP"), halves_of(cast(Block, block)), strict=True):
            try:
                made.append(make_half(half, self._work))
            except NoKernel as reason:
                self.plain[f"{name} of layer {i}"] = str(reason)
                made.append(half)
        return made

    def _in_loops(
        self, name: str, model: Transformer, compiled: _Made, plain: _Made
    ) -> Callable[..., Any]:
        """The embedding or the head in loops, or in torch."""
        try:
            return compiled(model, self._work)
        except NoKernel as reason:
            self.plain[f"the {name}"] = str(reason)
            return plain(model, self._work)

    def __call__(
        self,
        tokens: torch.Tensor,
        cache: Cache | None = None,
        positions: torch.Tensor | None = None,
        n_new: Counts | None = None,
        *,
        at: torch.Tensor | int | None = None,
        tree: torch.Tensor | None = None,
        commit: bool = True,
    ) -> torch.Tensor:
        """Logits [B, T, V] or, with `at`, [B, V], as the plain model has them."""
        shape = tokens.shape if isinstance(tokens, torch.Tensor) else ()
        usual = len(shape) == 2 and tokens.dtype in (torch.int64, torch.int32)
        usual = usual and tokens.is_cpu and positions is None and tree is None
        B, T = shape if usual else (0, 0)
        alone = B == 1 and (n_new is None or span_counts(n_new, 1, T) == (T,))
        if (
            not isinstance(cache, Cache)
            or not usual
            or (T != 1 and not (alone and 1 < T <= MOST and self._of_several))
        ):
            return self.model(  # type: ignore[no-any-return]
                tokens, cache, positions, n_new, at=at, tree=tree, commit=commit
            )
        at = None if at is None else number_of(at, B, T)
        in_loops = alone and T == 1 and not self.plain
        if torch.is_grad_enabled() and not in_loops:  # which keep no graph
            with torch.no_grad():
                return self(tokens, cache, n_new=n_new, at=at, commit=commit)
        if alone:
            logits = self._careful_pass(tokens, cache, at)  # [T, V] or [1, V]
        else:
            self._work.checked(cache)
            logits = batch_step(self._of_batches(), tokens, cache, n_new)  # [B, V]
        if commit:
            cache.commit()
        if at is not None:
            return logits
        return logits[None] if alone else logits[:, None]  # [B, T, V]

    def _of_batches(self) -> Transformer:
        """What runs steps of several sequences: the model, or one whose matrices lie as their
        products read them."""
        if self._batched is None:
            large = weight_bytes(self.model) > LARGE_BYTES
            in_loops = (is_quantized(m) or wants_widening(m) for m in self.model.modules())
            if not large and not any(in_loops):
                self._version.check()
                return self.model
            with self._lock:  # no step of another thread may see the version half added to
                self._make_batched(large)
        self._version.check()
        return cast(Transformer, self._batched)

    def _make_batched(self, large: bool) -> None:
        if self._batched is None:  # else another thread was first
            copied = [m.weight for _, m in linears(self.model) if not wants_widening(m)]
            self._version.add(copied)
            codes = packed_alone(self._work.codes)
            self._batched = with_batch_linears(self.model, large, codes)

    @property
    def _of_several(self) -> Several | None:
        """What runs a pass of a few tokens of one sequence; None where that is the plain model."""
        if self._several is None:
            with self._lock:
                self._make_several()
        several = cast(Several, self._several)
        none = several.plain is self.model and not several.in_loops
        return None if none else several

    def _make_several(self) -> None:
        if self._several is None:
            self._version.check()  # it takes layers of the model as they are now
            parts = self._embed, self._halves, self._head
            plain = self._of_batches() if without_loops(*parts) else self.model
            self._several = Several(*parts, plain, self._work)

    def _careful_pass(self, tokens: torch.Tensor, cache: Cache, at: int | None) -> torch.Tensor:
        """A pass, one at a time, where a first one may compile. Numba makes a SystemError of a
        Ctrl-C that comes while it hands over a result."""
        several = tokens.shape[1] > 1
        try:
            with self._lock:
                if several in self._ran:
                    return self._pass(tokens, cache, at)
                dtype = self.model.embed_tokens.weight.dtype
                with saying_so(self.config, dtype, self.parallel, several):
                    logits = self._pass(tokens, cache, at)
        except SystemError as error:
            raise error.__cause__ or error from None
        self._ran.add(several)
        return logits

    def _pass(self, tokens: torch.Tensor, cache: Cache, at: int | None) -> torch.Tensor:
        """Logits [T, V] of the tokens [1, T] of one sequence, or [1, V] of one of them; the cache
        waits for its commit."""
        self._version.check()
        self._work.workers = workers_of_parallel_loops() if self.parallel else 1
        T = tokens.shape[1]
        span = cache.begin(1, T)
        try:
            if self.config.learned_positions:
                check_positions(span.positions, span, self.config.learned_positions)
            if T > 1:
                return cast(Several, self._of_several)(tokens, span, cache, at)
            if self._whole is not None:
                return self._whole(tokens, span, cache)
            token = Token(self._embed(tokens, span), span, cache, self._work)
            for half in self._halves:
                half(token)
            return self._head(token)  # type: ignore[no-any-return]
        except BaseException:  # Ctrl-C, too: what is half written is not to be committed
            cache.discard()
            raise
