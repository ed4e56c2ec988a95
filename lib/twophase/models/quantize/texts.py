"""Text to calibrate on and text to be judged by, for models whose tokens are bytes and for those
with a tokenizer."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch.nn import functional

from twophase.models.quantize.calibration import windows
from twophase.models.transformer import Transformer

Encode = Callable[[str], Sequence[int]]
SOME_BYTES = 400_000  # of a long text: what tokenizers and patience take


def as_tokens(text: bytes, encode: Encode | None, most: int = SOME_BYTES) -> np.ndarray:
    """The tokens of the first `most` bytes of a text, int64; without `encode` its bytes."""
    part = text[:most]
    if encode is None:
        return np.frombuffer(part, np.uint8).astype(np.int64)
    return np.array(encode(part.decode(errors="ignore")), np.int64)


def calibration_windows(
    text: bytes, encode: Encode | None, n: int, T: int, seed: int
) -> torch.Tensor:
    """n windows of T tokens, int64 [n, T]. ValueError if the text is shorter than one."""
    most = len(text) if encode is None else SOME_BYTES
    return windows(as_tokens(text, encode, most), n, T, seed)


def check_judging(model: Transformer, text: bytes, encode: Encode | None, T: int) -> np.ndarray:
    """The tokens of the beginning of a text, int64. ValueError unless they fill a window and the
    next token of it can be foretold: a model that reads both ways sees what it would foretell."""
    if not model.config.causal:
        raise ValueError(
            "this model reads both ways (masked diffusion) and foretells no next token, by which"
            " it would be judged here: take one that reads forward."
        )
    tokens = as_tokens(text, encode)
    if len(tokens) <= T:
        raise ValueError(
            f"the text to be judged by has {len(tokens)} tokens, and a window takes {T + 1}: take a"
            " longer one."
        )
    return tokens


@torch.no_grad()
def text_bits_per_byte(
    model: Transformer, text: bytes, encode: Encode | None, T: int, most_windows: int = 64
) -> float:
    """Loss on the beginning of a text, in bits per byte of it whatever a token is: windows of T
    tokens that do not overlap, each but its first foretold. ValueError as in `check_judging`."""
    tokens = check_judging(model, text, encode, T)
    n = min(most_windows, (len(tokens) - 1) // T)
    bytes_per_token = min(len(text), SOME_BYTES) / len(tokens)
    nats = 0.0
    for i in range(n):
        part = torch.from_numpy(tokens[i * T : (i + 1) * T + 1])[None]
        logits = model(part[:, :-1]).float()[0]  # [T, V]
        nats += float(functional.cross_entropy(logits, part[0, 1:], reduction="sum"))
    return nats / math.log(2) / (n * T * bytes_per_token)
