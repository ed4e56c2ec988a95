"""A run of training: a model, its optimizer, the step they are at, and what the step does."""

import math
import os
import pickle
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch

from twophase.models.captured import CapturedSteps
from twophase.models.config import Config
from twophase.models.diffusion import Hidden, draw_hidden
from twophase.models.mixture_of_experts import run_every_expert
from twophase.models.objective import compiles, training_loss
from twophase.models.optimizer import MuonAdamW
from twophase.models.recipe import Recipe, batch
from twophase.models.transformer import Transformer

STRETCH = 250  # steps on a GPU between two looks at the loss


class Trainer:
    """A model, its optimizer and the step they are at: all that a killed run needs to go on."""

    def __init__(
        self, config: Config, recipe: Recipe, data: np.ndarray, device: str, data_digest: str = ""
    ) -> None:
        torch.manual_seed(recipe.seed)
        self.config, self.recipe, self.data, self.device = config, recipe, data, device
        self.identity = {
            "config": config.to_dict(),
            "recipe": asdict(recipe),
            "corpus": data_digest,
        }
        self.model = Transformer(config).to(device)
        self.optimizer = MuonAdamW(
            self.model, recipe.lr_matrices, recipe.lr_others, recipe.weight_decay
        )
        self.step_count = 0
        self.seconds = 0.0
        self.losses: list[float] = []  # of every step, in nats per byte
        self.total_steps = recipe.steps(config.context)
        self.loss, self.compiled = training_loss, False
        self.captured: CapturedSteps | None = None
        if device == "cuda":
            run_every_expert(self.model)  # nothing there may wait for counts of visits
            hide = None if config.causal else self._hide
            self.captured = CapturedSteps(recipe, config.context, data, device, self._update, hide)

    def compile(self) -> bool:
        """Have torch compile the loss and its gradient, if it can; returns whether it did.

        What lies between the matrix products then takes a pass or two over memory, where each
        operator took one. Sums come in another order, so that losses are the same up to rounding.
        States are left alone, and experts on a CPU: torch cannot follow a loop of Numba's, and
        would compile anew for every count of visitors.
        """
        counted = self.config.moe is not None and self.device == "cpu"
        traceable = self.config.ssm is None and not counted
        if traceable and not self.compiled and compiles():
            self.loss, self.compiled = torch.compile(training_loss, dynamic=False), True
        return self.compiled

    def step(self) -> torch.Tensor:
        """One optimizer step; returns the loss in nats per byte, before it."""
        r, T = self.recipe, self.config.context
        tokens = batch(self.data, self.step_count, r.B, T, r.seed).to(self.device)
        loss = self._update(tokens, r.lr_share(self.step_count, T))
        if not math.isfinite(float(loss)):
            raise ValueError(
                f"the loss is {float(loss)} at step {self.step_count}: lower the learning rates."
            )
        self.losses.append(float(loss))
        self.step_count += 1
        return loss

    def steps(self) -> float:
        """The next steps, one, or as many on a GPU as it takes without waiting for anybody; returns
        their mean loss."""
        if self.captured is None:
            return float(self.step())
        n = min(STRETCH, self.total_steps - self.step_count)
        losses = self.captured.run(self.step_count, n)
        self.losses += losses
        self.step_count += n
        return sum(losses) / n

    def _mask_seed(self, step: int) -> int:
        """What draws the masks of a step, where a model learns from masked bytes."""
        return self.recipe.seed * 1_000_003 + step

    def _hide(self, step: int) -> Hidden:
        """The times [B] and masks [B, T] of a step."""
        generator = torch.Generator(self.device).manual_seed(self._mask_seed(step))
        return draw_hidden(self.recipe.B, self.config.context, generator)

    def _update(
        self, tokens: torch.Tensor, share: float | torch.Tensor, hidden: Hidden | None = None
    ) -> torch.Tensor:
        """Learn from tokens, int64 [B, T + 1], at a share of the peak learning rates; returns the
        loss before that. On a GPU nothing here waits for it (`CapturedSteps`)."""
        r = self.recipe
        with torch.autocast(self.device, torch.bfloat16, enabled=r.autocast):
            loss, aux = self.loss(self.model, tokens, self._mask_seed(self.step_count), hidden)
        self.optimizer.zero_grad(self.model)
        (loss + r.aux_weight * aux).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), r.clip)
        self.optimizer.step(share)
        return loss.detach()

    def save(self, path: Path) -> None:
        """Write everything to `path`, whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        state = {
            "identity": self.identity,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "step": self.step_count,
            "seconds": self.seconds,
            "losses": self.losses,
        }
        with open(path.with_suffix(".tmp"), "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())  # on the disk before it takes the old one's place
        os.replace(path.with_suffix(".tmp"), path)

    def resume(self, path: Path) -> None:
        """Take up the run saved at `path`. Raises ValueError if it was another config, recipe or
        corpus."""
        try:
            state = torch.load(path, map_location=self.device, weights_only=True)
            differs = [
                key for key, value in self.identity.items() if state["identity"][key] != value
            ]
        except (RuntimeError, EOFError, OSError, KeyError, TypeError, pickle.UnpicklingError):
            raise ValueError(f"the saved run {path} is damaged: delete it to begin anew.") from None
        if differs:
            raise ValueError(
                f"the run saved at {path} has another {differs[0]}: delete it, or choose another"
                " --out."
            )
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step_count, self.seconds = state["step"], state["seconds"]
        self.losses = state["losses"]
        if self.captured is not None:
            self.captured.forget()
