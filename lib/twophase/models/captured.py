"""Training steps on a GPU without their launches: one is captured as a CUDA graph, and replayed.

A step of a model of this family is a thousand kernels of a few microseconds each. Launched one by
one they wait for Python; replayed, the GPU goes from one to the next by itself. For that a step
must be the same every time, so all that changes from step to step lies on the device: the text,
where its windows begin, what is masked in them, the learning rates, the losses, and the number of
the step.
"""

import math
from collections.abc import Callable

import numpy as np
import torch

from twophase.models.diffusion import Hidden
from twophase.models.recipe import Recipe, window_starts

Update = Callable[[torch.Tensor, torch.Tensor, Hidden | None], torch.Tensor]
Hide = Callable[[int], Hidden]  # of the step of that number
WARM_UP = 3  # steps before the capture: torch makes its handles and the optimizer's state in them
TABLE = 8192  # steps whose windows and rates lie on the device at a time


class CapturedSteps:
    """The steps of one run. `update(tokens, share, hidden)` takes one: tokens int64 [B, T + 1],
    `share` of the peak learning rates, fp32 []; it returns the loss. `hidden` is None, or what
    `hide` draws for the step of that number. All are on `device`, and so is all that `update` does;
    nothing in it may wait for the host. On a CPU the steps run uncaptured.
    """

    def __init__(
        self,
        recipe: Recipe,
        T: int,
        data: np.ndarray,
        device: str,
        update: Update,
        hide: Hide | None = None,
    ) -> None:
        self.recipe, self.T, self.n_bytes = recipe, T, len(data)
        self.device, self.update = device, update
        self.text = torch.from_numpy(data.copy()).to(device)  # uint8 [n_tokens]
        self.window = torch.arange(T + 1, device=device)  # [T + 1]
        self.at = torch.zeros(1, dtype=torch.int64, device=device)  # the step's row of the tables
        self.starts = torch.zeros(TABLE, recipe.B, dtype=torch.int64, device=device)
        self.shares = torch.zeros(TABLE, device=device)
        self.losses = torch.zeros(TABLE, device=device)
        self.hide = hide
        if hide is not None:
            self.times = torch.ones(TABLE, recipe.B, device=device)
            self.masked = torch.zeros(TABLE, recipe.B, T, dtype=torch.bool, device=device)
        self.graph: torch.cuda.CUDAGraph | None = None
        # a capture needs a stream of its own, and runs beside each other do, too
        self.stream = torch.cuda.Stream() if device == "cuda" else None  # type: ignore[no-untyped-call]

    def run(self, first: int, n: int) -> list[float]:
        """The steps `first` to `first + n − 1` of the run; returns their losses in nats per byte.
        ValueError for a loss that is not finite, or more steps than a table holds."""
        if not 1 <= n <= TABLE:
            raise ValueError(f"between 1 and {TABLE} steps are taken at a time; got {n}.")
        if self.stream is not None:
            self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):  # of None: nothing changes
            self._write_tables(first, n)
            for i in range(n):
                self._step_or_replay(first_of_all=i < WARM_UP)
            losses: list[float] = self.losses[:n].tolist()
        for i, loss in enumerate(losses):
            if not math.isfinite(loss):
                raise ValueError(
                    f"the loss is {loss} at step {first + i}: lower the learning rates."
                )
        return losses

    def forget(self) -> None:
        """Capture anew: the graph reads and writes an optimizer's state that another took the place
        of."""
        self.graph = None

    def _write_tables(self, first: int, n: int) -> None:
        """Where the windows of the next n steps begin, and their rates."""
        r = self.recipe
        starts = [
            window_starts(self.n_bytes, s, r.B, self.T, r.seed) for s in range(first, first + n)
        ]
        self.starts[:n] = torch.from_numpy(np.stack(starts)).to(self.device)
        shares = [r.lr_share(s, self.T) for s in range(first, first + n)]
        self.shares[:n] = torch.tensor(shares, device=self.device)
        if self.hide is not None:
            for i in range(n):
                self.times[i], self.masked[i] = self.hide(first + i)
        self.at.zero_()

    def _step_or_replay(self, first_of_all: bool) -> None:
        if self.graph is not None:
            self.graph.replay()
        elif self.device != "cuda" or first_of_all:
            self._step()
        else:
            self.graph = torch.cuda.CUDAGraph()
            # whatever other threads do on the GPU meanwhile is no part of it
            with torch.cuda.graph(
                self.graph, stream=self.stream, capture_error_mode="thread_local"
            ):
                self._step()
            self.graph.replay()  # capturing runs nothing

    def _step(self) -> None:
        """One step, by the tables' row `at`."""
        starts = self.starts.index_select(0, self.at)[0]  # [B]
        tokens = self.text[starts[:, None] + self.window].long()  # [B, T + 1]
        loss = self.update(tokens, self.shares.index_select(0, self.at)[0], self._hidden())
        self.losses.index_copy_(0, self.at, loss.detach().float()[None])
        self.at += 1

    def _hidden(self) -> Hidden | None:
        """What this step hides: times [B] and masks [B, T]."""
        if self.hide is None:
            return None
        return self.times.index_select(0, self.at)[0], self.masked.index_select(0, self.at)[0]
