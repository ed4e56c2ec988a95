"""Other programs that answer the same requests on the same weights: transformers, static and with
its continuous batching, and llama.cpp.

A peer is made of a model, the most tokens that a sequence has and the number of seats, and answers
requests; or it raises Missing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from decode_peers import Missing, decode, llama_cpp_context, transformers_model

from twophase.models.transformer import Transformer
from twophase.serving import Engine, EngineConfig, Policy, Request, SamplingParams
from twophase.serving.workload import Arrival

Answers = list[list[int]]
Serve = Callable[[Sequence[Arrival]], Answers]
CHUNK = 512  # tokens of a pass: llama.cpp's default, too


def our_config(most: int, seats: int, pack: bool = False) -> EngineConfig:
    """Blocks for as many sequences as there are seats, of any length that occurs."""
    return EngineConfig(seats * -(-most // 64), 64, seats, CHUNK, pack_weights=pack)


def ours(
    model: Transformer, most: int, seats: int, policy: type[Policy], pack: bool = True
) -> Serve:
    """Our engine under a policy; with `pack` its matrices lie as products of several tokens read
    them, as llama.cpp's do."""
    return _served(Engine(model, our_config(most, seats, pack), policy=policy()))


def _served(engine: Engine) -> Serve:
    def serve(asked: Sequence[Arrival]) -> Answers:
        given = [engine.add(one.prompt, SamplingParams(max_tokens=one.n_output)) for one in asked]
        engine.run()
        return [engine.requests[number].tokens for number in given]

    return serve


def transformers_static(model: Transformer, most: int, seats: int) -> Serve:
    """`generate` on batches in the order of arrival, padded on the left; each runs until its
    longest answer is done, and what is beyond an answer's length is thrown away."""
    theirs = transformers_model(model, most + 1)
    theirs.generation_config.pad_token_id = 0

    def batch(asked: Sequence[Arrival]) -> Answers:
        longest = max(len(one.prompt) for one in asked)
        most_new = max(one.n_output for one in asked)
        rows = [[0] * (longest - len(one.prompt)) + list(one.prompt) for one in asked]
        mask = [[0] * (longest - len(one.prompt)) + [1] * len(one.prompt) for one in asked]
        out = theirs.generate(
            torch.tensor(rows), attention_mask=torch.tensor(mask), do_sample=False,
            max_new_tokens=most_new, min_new_tokens=most_new, eos_token_id=None,
        )[:, longest:].tolist()  # fmt: skip
        return [row[: one.n_output] for row, one in zip(out, asked, strict=True)]

    def serve(asked: Sequence[Arrival]) -> Answers:
        with torch.inference_mode():
            batches = (asked[i : i + seats] for i in range(0, len(asked), seats))
            return [row for some in batches for row in batch(some)]

    return serve


def transformers_continuous(model: Transformer, most: int, seats: int) -> Serve:
    """Its continuous batching over paged caches, with as many blocks, seats and tokens a pass as
    ours. Raises Missing where this version has none, or it does not run here."""
    theirs = transformers_model(model, most + 1)
    try:
        from transformers import ContinuousBatchingConfig, GenerationConfig
    except ImportError:
        raise Missing("this version of transformers has no continuous batching.") from None
    logging.getLogger("ContinuousBatchingLogger").setLevel(logging.CRITICAL)
    c = our_config(most, seats)
    options = ContinuousBatchingConfig(
        page_size=c.block_size, num_blocks=c.n_blocks, max_batch_tokens=CHUNK,
        max_requests_per_batch=seats, allow_block_sharing=False, use_cuda_graph=False,
    )  # fmt: skip
    settings = GenerationConfig(do_sample=False, eos_token_id=-1, pad_token_id=0)

    def serve(asked: Sequence[Arrival]) -> Answers:
        with theirs.continuous_batching_context_manager(
            generation_config=settings, continuous_batching_config=options, warmup=False
        ) as manager:
            ids = [
                manager.add_request(list(one.prompt), max_new_tokens=one.n_output) for one in asked
            ]
            found: dict[str, list[int]] = {}
            while len(found) < len(ids):
                result = manager.get_result(timeout=1)
                if result is not None and result.is_finished():
                    if result.error:
                        raise Missing(f"transformers' continuous batching fails: {result.error}")
                    found[result.request_id] = list(result.generated_tokens)
                elif result is None and not manager.is_running():
                    raise Missing("transformers' continuous batching does not run on this machine.")
        return [found[i] for i in ids]

    return serve


def llama_cpp_continuous(model: Transformer, most: int, seats: int) -> Serve:
    """llama.cpp's passes under our scheduler, a sequence of its context for each seat: what its C++
    server does with slots. The Python package has the library and not that server; its own answers
    one request at a time."""
    return _served(Engine(LlamaCpp(model, most, seats), our_config(most, seats)))


class LlamaCpp:
    """A `Runner` whose passes are llama.cpp's. Blocks are never short, so nothing is moved."""

    has_states, most_positions = False, 0

    def __init__(self, model: Transformer, most: int, seats: int) -> None:
        self.V = model.config.V
        self.llama, self.context = llama_cpp_context(model, most + 16, seats)
        self.slots: dict[int, int] = {}
        self._free = list(range(seats))

    def seat(self, seq: int) -> None:
        """Take one of its sequences."""
        self.slots[seq] = self._free.pop()

    def unseat(self, seq: int) -> None:
        """Forget what it holds."""
        if seq in self.slots:
            slot = self.slots.pop(seq)
            memory = self.llama.llama_get_memory(self.context)
            self.llama.llama_memory_seq_rm(memory, slot, -1, -1)
            self._free.append(slot)

    def run(self, n_new: dict[Request, int], *_: Any) -> dict[Request, torch.Tensor]:
        """One batch."""
        tokens = [
            (token, position, self.slots[request.id])
            for request, n in n_new.items()
            for position, token in enumerate(
                request.tokens_from(request.n_computed, n), request.n_computed
            )
        ]
        places = decode(self.llama, self.context, tokens)
        return {
            request: self._logits(places[self.slots[request.id]])
            for request, n in n_new.items()
            if n == request.n_missing
        }

    def _logits(self, place: int) -> torch.Tensor:
        row = self.llama.llama_get_logits_ith(self.context, place)
        return torch.from_numpy(np.ctypeslib.as_array(row, (self.V,)).copy())  # [V]

    def _never(self, *_: Any) -> Any:
        raise NotImplementedError("no block is ever moved: the pool has room for every seat.")

    copy_block = copy_window_block = copy_state = save = restore = _never
