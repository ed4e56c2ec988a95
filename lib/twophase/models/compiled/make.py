"""Which half of a block has loops, by its kind; and which layers are one call."""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from twophase.models.attention import GroupedQueryAttention
from twophase.models.compiled.codes_run import CodesRun
from twophase.models.compiled.experts import Experts
from twophase.models.compiled.halves import MLP, Attention, Half
from twophase.models.compiled.latent import AbsorbedAttention
from twophase.models.compiled.plain import PlainHalf
from twophase.models.compiled.recurrent import LinearState, StateSpaceState
from twophase.models.compiled.run import Halves, Run
from twophase.models.compiled.state_run import StateRun
from twophase.models.compiled.token import Workspace
from twophase.models.compiled.weights import NoKernel
from twophase.models.latent_attention import LatentAttention
from twophase.models.linear_attention import LinearAttention
from twophase.models.mixture_of_experts import MixtureOfExperts
from twophase.models.mlp import GatedMLP, PlainMLP
from twophase.models.state_space import SelectiveStateSpace

MAKES: dict[type, Callable[[PlainHalf, Workspace], Half]] = {
    GroupedQueryAttention: Attention,
    LatentAttention: AbsorbedAttention,
    LinearAttention: LinearState,
    SelectiveStateSpace: StateSpaceState,
    GatedMLP: MLP,
    PlainMLP: MLP,
    MixtureOfExperts: Experts,
}


def make_half(half: PlainHalf, work: Workspace) -> Half:
    """A half in loops. Raises NoKernel where there are none."""
    kind = type(half.layer)
    if kind not in MAKES:
        raise NoKernel(f"a {kind.__name__} has no compiled loops")
    return MAKES[kind](half, work)


RUNS: tuple[Any, ...] = (Run, CodesRun, StateRun)


def in_runs(layers: Sequence[Halves], work: Workspace) -> list[Half]:
    """The halves of all layers, where layers one behind the other that have enough in common are a
    run."""
    found: list[Half] = []
    for kind, members in groupby(layers, _kind_of):
        if kind is None:
            found += [half for layer in members for half in layer]
        else:
            found.append(kind[0](list(members), work))
    return found


def _kind_of(layer: Halves) -> tuple[Any, ...] | None:
    """The run that a layer could be in, with what the others must have in common with it."""
    kinds = ((run, run.common(layer)) for run in RUNS)
    return next((kind for kind in kinds if kind[1] is not None), None)
