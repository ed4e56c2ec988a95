"""Texts in, texts out: a checkpoint of the course or a Hugging Face directory, served."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch

from twophase.models import checkpoints, hugging_face
from twophase.models.corpus import END
from twophase.models.generate import decode, encode
from twophase.models.pruning import directory as pruned
from twophase.models.quantize import directory as quantized
from twophase.models.transformer import Transformer
from twophase.serving.config import EngineConfig
from twophase.serving.engine import Engine
from twophase.serving.request import Request, SamplingParams


class _Texts(Protocol):
    """The way from text to tokens and back."""

    def encode(self, text: str) -> list[int]:
        """Tokens of a text."""

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens."""


class _Bytes:
    """Bytes as tokens, as the models of the course have them."""

    encode = staticmethod(encode)
    decode = staticmethod(decode)


@dataclass(frozen=True)
class Answer:
    """What came of a prompt: `text` without the stop sequence that ended it, and the request with
    its tokens and times."""

    prompt: str | None
    text: str
    request: Request


class LLM:
    """A model that answers many prompts at once.

    `checkpoint`: the name of a model of the course, a Hugging Face directory, one that `twophase
    quantize` or `prune` wrote, or a Transformer, whose tokens then are bytes. Further options are
    those of `EngineConfig`.
    """

    def __init__(
        self,
        checkpoint: str | Path | Transformer,
        *,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        self.stops: tuple[tuple[int, ...], ...] = ()
        self.texts: _Texts = _Bytes()
        if isinstance(checkpoint, Transformer):
            self.model = checkpoint
        elif (folder := Path(checkpoint)).is_dir():
            self.model = _load(folder, dtype)
            written = quantized.is_quantized(folder) or pruned.is_pruned(folder)
            if written and not (folder / "tokenizer.json").is_file():
                self.stops = ((END,),)  # of the course: its tokens are bytes
            else:
                self.texts = hugging_face.Tokenizer(folder, self.model.config.V)
                if (folder / "config.json").is_file():
                    self.stops = tuple((t,) for t in hugging_face.stop_tokens(folder))
        else:
            self.model = checkpoints.load(str(checkpoint), dtype=dtype or torch.float32)
            self.stops = ((END,),)
        self.config = EngineConfig(**options)

    def generate(
        self,
        prompts: Sequence[str | Sequence[int]],
        params: SamplingParams | None = None,
        **options: Any,
    ) -> list[Answer]:
        """Answer prompts, texts or tokens, all together; `n` answers to each, in their order.

        `options` are those of `Engine`. A model's own end of text ends an answer, too.
        """
        if isinstance(prompts, str):
            raise ValueError("prompts are a list: put a single one into brackets.")
        params = params or SamplingParams()
        params = replace(params, stop=(*params.stop, *self.stops))
        engine = Engine(self.model, self.config, **options)
        texts: dict[int, str | None] = {}
        for prompt in prompts:
            tokens = self.texts.encode(prompt) if isinstance(prompt, str) else prompt
            first = engine.add(tokens, params)
            for i in range(params.n):
                texts[first + i] = prompt if isinstance(prompt, str) else None
        return [Answer(texts[r.id], self._text(r), r) for r in engine.run()]

    def _text(self, request: Request) -> str:
        tokens = request.tokens
        if request.finish_reason == "stop":
            ends = [s for s in request.params.stop if tuple(tokens[-len(s) :]) == tuple(s)]
            tokens = tokens[: -max(map(len, ends))]
        return self.texts.decode(tokens)


def _load(folder: Path, dtype: torch.dtype | None) -> Transformer:
    """The model of a directory, whoever wrote it."""
    if quantized.is_quantized(folder):
        return quantized.load(folder, dtype)
    if pruned.is_pruned(folder):
        return pruned.load(folder, dtype)
    return hugging_face.load(folder, dtype=dtype)
