"""latent_attention-latent_cache: latents and rotated keys, as the down-projection makes them."""

from __future__ import annotations

from typing import ClassVar

import torch

from twophase.checks.compare import Tolerance
from twophase.checks.exercise import Exercise
from twophase.checks.latent_attention._latent_cases import FAR, cases, observe
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()

Tensor = torch.Tensor


class Right:
    """The right answer, in small methods that the wrong ones below replace."""

    def __init__(self, B: int, S_max: int, R: int, rope_dim: int, theta: float) -> None:
        self.latents = torch.zeros(B, S_max, R)
        self.keys = torch.zeros(B, S_max, rope_dim)
        self.R, self.rope_dim, self.theta = R, rope_dim, theta
        self.S_max = S_max
        self.length = 0

    def append(self, down: Tensor) -> tuple[Tensor, Tensor]:
        end = self.length + down.shape[1]
        if end > self.S_max:
            raise ValueError(f"{self.length} of {self.S_max} tokens are taken")
        latent, key = down[..., : self.R], down[..., self.R :]
        self.latents[:, self.length : end] = latent
        self.keys[:, self.length : end] = self.turned(key, self.length)
        self.length = end
        return self.latents[:, :end], self.keys[:, :end]

    def turned(self, x: Tensor, start: int) -> Tensor:
        """x [B, T, width], its tokens at positions start, start + 1, ..."""
        position = torch.arange(start, start + x.shape[1], dtype=torch.float64)  # [T]
        half = x.shape[2] // 2
        frequency = self.theta ** (-torch.arange(half, dtype=torch.float64) / half)  # [width/2]
        angles = torch.outer(position, frequency)  # [T, width/2]
        cos, sin = angles.cos().float(), angles.sin().float()
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


@wrong(
    "apply_rope on the whole cached vector",
    "You turned the latent together with the key. A turned latent can no longer be unfolded: only"
    " the last rope_dim numbers are turned.",
)
class AllTurned(Right):
    def append(self, down: Tensor) -> tuple[Tensor, Tensor]:
        start = self.length
        latents, keys = super().append(down)
        whole = self.turned(down, start)
        latents[:, start:], keys[:, start:] = whole[..., : self.R], whole[..., self.R :]
        return latents, keys


@wrong(
    "plausible",
    "The latent was turned as well, on its own: it carries no position. Turn the last rope_dim"
    " numbers and nothing else.",
)
class LatentTurnedToo(Right):
    def append(self, down: Tensor) -> tuple[Tensor, Tensor]:
        turned = self.turned(down[..., : self.R // 2 * 2], self.length)
        return super().append(torch.cat([turned, down[..., self.R // 2 * 2 :]], -1))


wrong.add(
    "split_the_other_way",
    replaced(
        Right,
        {
            "down[..., : self.R], down[..., self.R :]": (
                "down[..., self.rope_dim :], down[..., : self.rope_dim]"
            )
        },
    ),
    "the order of DeepSeek's kv_a_proj_with_mqa guessed",
    "You took the key from the front: the latent's R numbers come first, the key's behind them.",
)
wrong.add(
    "not_turned",
    replaced(Right, {"self.turned(key, self.length)": "key"}),
    "MLA without its decoupled key (rasbt 05_mla)",
    "The key went into the cache as it came: it is turned by its position when it is stored.",
)
wrong.add(
    "restarts_in_every_call",
    replaced(Right, {"self.turned(key, self.length)": "self.turned(key, 0)"}),
    "RoPE offset restarting at 0 in each forward pass",
    "Positions restart at 0 in every append: the first new token stands at the number of tokens"
    " held.",
)
wrong.add(
    "counts_from_one",
    replaced(Right, {"self.turned(key, self.length)": "self.turned(key, self.length + 1)"}),
    "positions 1-indexed in a text (CS336 A1 #4)",
    "Your positions count from 1: the first token stands at 0, and its key is not turned at all.",
)
wrong.add(
    "one_position_for_a_block",
    replaced(
        Right,
        {
            "torch.arange(start, start + x.shape[1], dtype=torch.float64)": (
                "torch.full((x.shape[1],), float(start), dtype=torch.float64)"
            )
        },
    ),
    "decode code used for a prompt",
    "All tokens of a block were turned by the first one's position: each has its own.",
)


@wrong(
    "rotating what is read from the cache",
    "You turned all keys again at every append: a key is turned once, when it is stored.",
)
class TurnedAgain(Right):
    def append(self, down: Tensor) -> tuple[Tensor, Tensor]:
        before = self.length
        latents, keys = super().append(down)
        keys[:, :before] = self.turned(keys[:, :before], 0)
        return latents, keys


wrong.add(
    "turned_backwards",
    replaced(
        Right, {"a * cos - b * sin, b * cos + a * sin": "a * cos + b * sin, b * cos - a * sin"}
    ),
    "a sign of RoPE",
    "You turned by the negative angle: (a, b) becomes (a·cos − b·sin, b·cos + a·sin).",
)
wrong.add(
    "neighbors_paired",
    replaced(
        Right,
        {
            "x[..., :half], x[..., half:]": "x[..., ::2], x[..., 1::2]",
            "torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)": (
                "torch.stack([a * cos - b * sin, b * cos + a * sin], dim=-1).flatten(-2)"
            ),
        },
    ),
    "RoPE in the other pairing (tiny-llm #63)",
    "You paired neighbors. Here the numbers i and i + rope_dim/2 of the key are one point.",
)
wrong.add(
    "frequencies_of_the_whole",
    replaced(
        Right,
        {"dtype=torch.float64) / half)": "dtype=torch.float64) * 2 / (self.R + self.rope_dim))"},
    ),
    "tables made for the whole cached vector",
    "Your frequencies are those of a vector R + rope_dim wide: the key's own width is rope_dim.",
)


@wrong(
    "a blog's cache class",
    "Nothing checks the room: a slice past the end is empty, and the token is lost without a word.",
)
class NoCheck(Right):
    def append(self, down: Tensor) -> tuple[Tensor, Tensor]:
        room = self.S_max - self.length
        return super().append(down[:, :room])


@wrong(
    "plausible",
    "The refused append moved the pointer, and with it every later position: check the room before"
    " you change anything.",
)
class CountsBeforeRefusing(Right):
    def append(self, down: Tensor) -> tuple[Tensor, Tensor]:
        start, self.length = self.length, self.length + down.shape[1]
        if self.length > self.S_max:
            self.length = min(self.length, self.S_max)
            raise ValueError("full")
        self.length = start
        return super().append(down)


wrong.add(
    "refuses_too_early",
    replaced(Right, {"end > self.S_max": "end >= self.S_max"}),
    "plausible",
    "You refuse the token that would exactly fill the cache: S_max tokens fit.",
)
wrong.add(
    "whole_buffer",
    replaced(Right, {"self.latents[:, :end], self.keys[:, :end]": "self.latents, self.keys"}),
    "static caches without a mask",
    "append returned the empty places, too: return what the cache holds.",
)
wrong.add(
    "only_new_tokens",
    replaced(
        Right,
        {
            "return self.latents[:, :end], self.keys[:, :end]": (
                "return latent, self.turned(key, end - down.shape[1])"
            )
        },
    ),
    "plausible",
    "append returned the new tokens only: attention needs all that the cache holds.",
)


@wrong(
    "tensors kept in class attributes or globals",
    "All your caches share one store. Each layer has a cache of its own: keep the tensors in self.",
)
class SharedByAllLayers(Right):
    shared: ClassVar[dict[str, Tensor]] = {}

    def __init__(self, B: int, S_max: int, R: int, rope_dim: int, theta: float) -> None:
        super().__init__(B, S_max, R, rope_dim, theta)
        self.shared.update(latents=self.latents, keys=self.keys)

    def append(self, down: Tensor) -> tuple[Tensor, Tensor]:
        self.latents, self.keys = self.shared["latents"], self.shared["keys"]
        return super().append(down)


EXERCISE = Exercise(
    id="latent_attention-latent_cache",
    title="A cache of latents",
    kind="kernel",
    points=5,
    minutes=20,
    entries=("LatentCache",),
    cases=cases,
    observe=observe,
    reference=Right,
    compare=Tolerance(
        rtol=0.0,
        atol=2e-3,
        dtype=True,
        why="angles in fp32 are good to 2e-4 at the positions used here; wrong ones miss by 0.02",
    ),
    misconceptions=tuple(wrong),
    hints=(
        "Two buffers, [B, S_max, R] and [B, S_max, rope_dim], and the number of tokens held.",
        (
            "Check the room first. down[..., :R] goes into the first buffer as it is, down[..., R:]"
            " is turned and goes into the second; token t of the block stands at length + t."
        ),
        (
            "angles[t, i] = (length + t) · theta^(−2i/rope_dim). The two halves of the key:"
            " (a, b) → (a·cos − b·sin, b·cos + a·sin). Then move the pointer."
        ),
    ),
    ranges={"append.down.shape[1]": (1, FAR - 1), "S_max": (1, FAR)},
    recall=(
        "Which part of what MLA caches is turned by RoPE, and when?",
        (
            "The rotated key alone, once, when it is stored. The latent carries no position, so"
            " that it can be unfolded, or absorbed into, at any time."
        ),
    ),
)
