"""The layouts that a model can run in, by their names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from twophase.kernels.collectives import Comm
from twophase.parallel.combined import tensor_pipeline, tensor_replicas
from twophase.parallel.cut_caches import batch_split, length_split
from twophase.parallel.dealt import expert_parallel, replicas
from twophase.parallel.pipeline import pipeline
from twophase.parallel.sequence import sequence_parallel
from twophase.parallel.stationary import weight_stationary
from twophase.parallel.tensor import tensor_parallel
from twophase.parallel.weights import Source

Build = Callable[[Source, Comm, torch.dtype | None, torch.device | str], Any]

LAYOUTS: dict[str, Build] = {
    "tensor": tensor_parallel,  # heads, MLP columns and vocabulary cut
    "batch-split": batch_split,  # the same, with caches cut by sequence
    "length-split": length_split,  # the same, with caches cut by position
    "sequence": sequence_parallel,  # a prompt's positions cut, weights whole
    "stationary": weight_stationary,  # matrices cut both ways
    "pipeline": pipeline,  # layers dealt out
    "experts": expert_parallel,  # experts and sequences dealt out
    "replicas": replicas,  # sequences dealt out, weights whole
    "tensor-pipeline": tensor_pipeline,  # a pipeline whose stages are groups of `tensor`
    "tensor-replicas": tensor_replicas,  # sequences dealt out to groups of `tensor`
}


def build(
    layout: str,
    source: Source,
    comm: Comm,
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
) -> Any:
    """This rank's part of a model in a layout, for `models.generate` to run on all ranks alike: all
    ranks get the same logits. ValueError for another name, or a model that the layout cannot cut.
    """
    if layout not in LAYOUTS:
        raise ValueError(f"the layouts are {', '.join(LAYOUTS)}; got {layout!r}.")
    return LAYOUTS[layout](source, comm, dtype, device)
