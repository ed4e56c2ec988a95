"""What matters how much: layers, query heads, MLP channels, numbers of the stream, measured on a
calibration set.

`activation`: how large is what a unit says (Muralidharan et al. 2024, arXiv 2407.14679, section
2.2); for a layer, how far it turns the stream, 1 − cosine (Men et al. 2024, arXiv 2403.03853).
`gradient`: how much the loss changes if what a unit says is scaled down a little, |activation ·
gradient| (Molchanov et al. 2017, arXiv 1611.06440). `leave_one_out`: how much worse the loss gets
without the unit, one pass each. `random`: what the others must beat.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch.nn import functional

from twophase.models.pruning.silence import SEAMS, per_unit, silenced
from twophase.models.transformer import Transformer

UNITS = ("layers", "heads", "channels", "width")
Progress = Callable[[int, int], None]
MEASURES = ("activation", "gradient", "leave_one_out", "random")


def importance(
    model: Transformer,
    tokens: torch.Tensor,
    unit: str,
    measure: str,
    seed: int = 1,
    progress: Progress | None = None,
) -> torch.Tensor:
    """The importance of every unit on tokens, int64 [B, T + 1]: fp64 [L] for layers, [L, N] for
    heads, [L, F] for channels, [D] for the width; larger matters more.

    NaN where a layer has fewer. `seed` is of `random`; `progress` is told passes done and passes in
    all. Raises ValueError for another unit or measure, for `leave_one_out` of the width, which has
    no seam, and for layers without heads or channels that a seam shows (states, latents,
    experts).
    """
    if unit not in UNITS or measure not in MEASURES:
        raise ValueError(
            f"a unit is one of {', '.join(UNITS)}, a measure one of {', '.join(MEASURES)}; got"
            f" {unit!r} and {measure!r}."
        )
    check_seams(model, unit)
    ways: dict[str, Callable[[], torch.Tensor]] = {
        "activation": lambda: _by_activation(model, tokens, unit, by_gradient=False),
        "gradient": lambda: _by_activation(model, tokens, unit, by_gradient=True),
        "leave_one_out": lambda: leave_one_out(model, tokens, unit, progress),
        "random": lambda: _by_chance(model, unit, seed),
    }
    return ways[measure]()


def loss_without(model: Transformer, tokens: torch.Tensor) -> float:
    """The loss on tokens, int64 [B, T + 1], in nats per token, as the model runs now; within
    `silenced`, without what that takes away."""
    with torch.inference_mode():
        return float(_loss(model, tokens))


def leave_one_out(
    model: Transformer, tokens: torch.Tensor, unit: str, progress: Progress | None = None
) -> torch.Tensor:
    """How much the loss rises, in nats per token, without each unit: exact, and a pass for each."""
    if unit == "width":
        raise ValueError(
            "a number of the stream has no seam to be silenced at: measure it by activation or"
            " gradient."
        )
    whole = loss_without(model, tokens)
    found = torch.full(shape_of_scores(model, unit), torch.nan, dtype=torch.float64)
    places = (~_missing(model, unit)).nonzero().tolist()
    for done, place in enumerate(places, 1):
        layer = place[0]
        gone: dict[str, object] = {
            unit: [layer] if unit == "layers" else {layer: [place[1]]},
        }
        with silenced(model, **gone):  # type: ignore[arg-type]
            found[tuple(place)] = loss_without(model, tokens) - whole
        if progress:
            progress(done, len(places))
    return found


def _by_chance(model: Transformer, unit: str, seed: int) -> torch.Tensor:
    """Numbers from 0 to 1."""
    generator = torch.Generator().manual_seed(seed)
    found = torch.rand(shape_of_scores(model, unit), generator=generator, dtype=torch.float64)
    return found.masked_fill(_missing(model, unit), torch.nan)


def check_seams(model: Transformer, unit: str) -> None:
    """ValueError if a layer has no place where these units can be seen."""
    if unit not in SEAMS:
        return
    for number, layer in enumerate(model.layers.children()):
        own = model.config.at(number)
        n = (own.N if unit == "heads" else own.F) * per_unit(model, unit)
        try:
            found = layer.get_submodule(SEAMS[unit]).in_features == n
        except AttributeError:
            found = False
        if not found:  # latents have heads of another width
            raise ValueError(
                f"layer {number} has no {unit} that can be cut: it is of another kind (a state,"
                " latents, experts)."
            )


def shape_of_scores(model: Transformer, unit: str) -> tuple[int, ...]:
    """The shape of the importance of every unit, as `importance` says. ValueError for another
    unit."""
    if unit not in UNITS:
        raise ValueError(f"a unit is one of {', '.join(UNITS)}; got {unit!r}.")
    c = model.config
    widest = [c.at(layer) for layer in range(c.L)]
    return {
        "layers": (c.L,),
        "heads": (c.L, max(own.N for own in widest)),
        "channels": (c.L, max(own.F for own in widest)),
        "width": (c.D,),
    }[unit]


def _missing(model: Transformer, unit: str) -> torch.Tensor:
    """Where a layer has fewer units than the widest."""
    found = torch.zeros(shape_of_scores(model, unit), dtype=torch.bool)
    if unit in SEAMS:
        for layer in range(model.config.L):
            own = model.config.at(layer)
            found[layer, (own.N if unit == "heads" else own.F) :] = True
    return found


def _loss(model: Transformer, tokens: torch.Tensor) -> torch.Tensor:
    if tokens.ndim != 2 or tokens.dtype != torch.int64 or 0 in tokens[:, 1:].shape:
        raise ValueError(
            "a calibration set is of tokens, int64 [B, T + 1], at least one sequence of two; got"
            f" {tokens.dtype} {list(tokens.shape)}."
        )
    logits = model(tokens[:, :-1])  # [B, T, V]
    return functional.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())


def _by_activation(
    model: Transformer, tokens: torch.Tensor, unit: str, by_gradient: bool
) -> torch.Tensor:
    """One pass forward, and for gradients one back, with what the units say caught on the way."""
    caught: list[tuple[int, torch.Tensor]] = []
    score: dict[str, Callable[..., torch.Tensor]] = {
        "layers": _turned,
        "width": _plain,
        "heads": _plain,
        "channels": _plain,
    }
    embedding = model.embed_tokens.weight
    with torch.set_grad_enabled(by_gradient), _watched(model, unit, caught):
        was, embedding.requires_grad = embedding.requires_grad, by_gradient
        try:
            loss = _loss(model, tokens)
            values = [value for _, value in caught]
            slopes = torch.autograd.grad(loss, values) if by_gradient else [None] * len(values)
        finally:
            embedding.requires_grad = was
    size = per_unit(model, unit) if unit in SEAMS else 1
    found = torch.zeros(shape_of_scores(model, unit), dtype=torch.float64)
    for (layer, value), slope in zip(caught, slopes, strict=True):
        one = score[unit](value.detach(), slope, size)
        if unit == "width":
            found += one  # over all norms
        elif unit == "layers":
            found[layer] = one
        else:
            found[layer, : len(one)] = one
    return found.masked_fill(_missing(model, unit), torch.nan)


def _plain(value: torch.Tensor, slope: torch.Tensor | None, size: int) -> torch.Tensor:
    """Of each unit's numbers in value [B, T, units·size]: the mean length, or |value · slope|."""
    B, T, n = value.shape
    own = value.double().view(B, T, n // size, size)  # [B, T, units, size]
    if slope is None:
        lengths: torch.Tensor = torch.linalg.vector_norm(own, dim=-1)  # [B, T, units]
        return lengths.mean((0, 1))  # [units]
    moved = own * slope.double().view(B, T, n // size, size)  # [B, T, units, size]
    return moved.sum((1, 3)).abs().sum(0)  # [units]


def _turned(value: torch.Tensor, slope: torch.Tensor | None, size: int) -> torch.Tensor:
    """Of a layer's stream before and after, [2, B, T, D]: 1 − cosine, or |what it adds · slope|."""
    before, after = value.double()
    if slope is None:
        return 1 - torch.cosine_similarity(before, after, dim=-1).mean()
    moved: torch.Tensor = (after - before) * slope[1].double()  # [B, T, D]
    return moved.sum((1, 2)).abs().sum()


@contextmanager
def _watched(
    model: Transformer, unit: str, caught: list[tuple[int, torch.Tensor]]
) -> Iterator[None]:
    """Catch what the units say, layer by layer, until the block ends."""

    def input_of(layer: int) -> Callable[..., None]:
        return lambda module, args: caught.append((layer, args[0].contiguous()))

    def output_of(layer: int) -> Callable[..., None]:
        return lambda module, args, out: caught.append((layer, out))

    def around(layer: int) -> Callable[..., torch.Tensor]:
        def both(module: object, args: tuple[torch.Tensor], out: torch.Tensor) -> torch.Tensor:
            pair = torch.stack([args[0], out])  # [2, B, T, D]
            caught.append((layer, pair))
            return pair[1]  # what follows is computed from the pair, so that it has a slope

        return both

    hooks = []
    for number, layer in enumerate(model.layers.children()):
        if unit == "layers":
            hooks.append(layer.register_forward_hook(around(number)))
        elif unit == "width":
            for norm in ("input_layernorm", "post_attention_layernorm"):
                seen = layer.get_submodule(norm)
                hooks.append(seen.register_forward_hook(output_of(number)))
        else:
            seam = layer.get_submodule(SEAMS[unit])
            hooks.append(seam.register_forward_pre_hook(input_of(number)))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
