"""Three ways to the same bytes: round to nearest, GPTQ, AWQ. Formats that have a name are rounded
to nearest only."""

import copy
from collections.abc import Callable
from functools import partial

import torch

from twophase.kernels.quantization.gptq import gptq
from twophase.kernels.quantization.integers import IntegerFormat, encode
from twophase.kernels.quantization.named import encode_named, named_format_of
from twophase.kernels.quantization.scaling import awq_scales, clip_groups
from twophase.models.linear import linears, replace_linears
from twophase.models.quantize.calibration import Inputs, body_linears, watch
from twophase.models.quantize.folding import folds, scale_inputs
from twophase.models.quantize.linear import FewBitsLinear, NamedLinear, QuantizedLinear
from twophase.models.transformer import Transformer

Progress = Callable[[int, int], None]  # layers done, layers in all
METHODS = ("nearest", "gptq", "awq")


def quantize(
    model: Transformer,
    method: str,
    how: IntegerFormat | str,
    calibration: torch.Tensor | None = None,
    progress: Progress | None = None,
    clip: bool = False,
) -> Transformer:
    """A copy of the model whose linear layers, the output matrix apart, are quantized.

    `how`: integers, or the name of a format (`kernels.quantization.named`), whose layers fall back
    to another where its blocks do not divide their rows, or stay as they are. `calibration`: int64
    [windows, T], what "gptq" and "awq" look at. `clip`: after its scales, AWQ also cuts off the
    largest weights of groups where that costs least. Raises ValueError for an unknown method or
    name, a method without its calibration or for a named format, and a model that is quantized
    already or has no linear layer, or none whose rows the format can have.
    """
    if method not in METHODS:
        raise ValueError(f"a method is one of {', '.join(METHODS)}; got {method!r}.")
    if isinstance(how, str) and method != "nearest":
        raise ValueError(f"{how} is rounded to nearest; {method} is for integers in groups.")
    if method != "nearest" and calibration is None:
        raise ValueError(f"{method} looks at inputs: give it calibration windows.")
    if clip and method != "awq":
        raise ValueError(f"clipping is a part of awq; the method is {method}.")
    if any(isinstance(module, FewBitsLinear) for module in model.modules()):
        raise ValueError("this model is quantized already: take the one that it was made of.")
    made = copy.deepcopy(model).requires_grad_(False)
    names = body_linears(made)
    if not names:
        raise ValueError("this model has no linear layers to quantize.")
    if isinstance(how, str):
        _by_name(made, names, how, progress)
        return made
    if method == "gptq" and calibration is not None:
        _by_gptq(made, names, how, calibration, progress)
        return made
    if method == "awq" and calibration is not None:
        _scale_for_awq(made, names, how, calibration, clip)
    _replace(made, names, lambda name, w: QuantizedLinear(encode(w, how)), progress)
    return made


def _replace(
    model: Transformer,
    names: list[str],
    make: Callable[[str, torch.Tensor], FewBitsLinear],
    progress: Progress | None,
) -> None:
    """Put a quantized layer in the place of each, its bias kept."""
    wanted, done = set(names), 0

    def replace(name: str, linear: torch.nn.Linear) -> FewBitsLinear | None:
        nonlocal done
        if name not in wanted:
            return None
        made = make(name, linear.weight)
        if linear.bias is not None:
            made.bias = linear.bias
        done += 1
        if progress:
            progress(done, len(wanted))
        return made

    replace_linears(model, replace)


def _by_name(model: Transformer, names: list[str], form: str, progress: Progress | None) -> None:
    """Each layer in the format, or in what takes its place for rows of its width. ValueError if
    that is nothing for all of them."""
    layers = dict(linears(model))
    found = {name: named_format_of(form, layers[name].in_features) for name in names}
    taken = {name: own for name, own in found.items() if own is not None}
    if not taken:
        widths = sorted({layers[name].in_features for name in names})
        raise ValueError(
            f"blocks of {form} divide no rows of this model, which have"
            f" {', '.join(map(str, widths))} inputs: take integers in groups."
        )
    make = lambda name, w: NamedLinear(encode_named(w, taken[name]))  # noqa: E731
    _replace(model, list(taken), make, progress)


def _by_gptq(
    model: Transformer,
    names: list[str],
    how: IntegerFormat,
    calibration: torch.Tensor,
    progress: Progress | None,
) -> None:
    """Block after block, each calibrated on what the quantized blocks before it put out."""
    blocks = {name: ".".join(name.split(".")[:2]) for name in names}
    done = 0
    for block in dict.fromkeys(blocks.values()):
        own = [name for name in names if blocks[name] == block]
        seen = watch(model, own, calibration)
        _replace(model, own, partial(_gptq_layer, seen, how), None)
        done += len(own)
        if progress:
            progress(done, len(names))


def _gptq_layer(
    seen: dict[str, Inputs], how: IntegerFormat, name: str, w: torch.Tensor
) -> QuantizedLinear:
    return QuantizedLinear(gptq(w, seen[name].hessian, how))


def _scale_for_awq(
    model: Transformer,
    names: list[str],
    how: IntegerFormat,
    calibration: torch.Tensor,
    clip: bool,
) -> None:
    """Search scales where they can be put into the layer before; elsewhere layers stay as they are,
    and are rounded to nearest."""
    seen = watch(model, names, calibration)
    layers = dict(linears(model))
    for fold in folds(model):
        inputs = seen[fold.readers[0]]
        weights = [layers[name].weight.float() for name in fold.readers]
        scales, _ = awq_scales(weights, inputs.mean_size, inputs.hessian, how)
        scale_inputs(model, fold, scales.to(weights[0].dtype))
        hessian = inputs.hessian / torch.outer(scales, scales)  # of what they read from now on
        for name in fold.readers:
            seen[name].hessian = hessian
    for name in names if clip else ():
        # queries and keys meet each other: what a product of both loses, one alone does not say
        if not name.rpartition(".")[2].startswith(("q_", "k_")):
            layers[name].weight.copy_(clip_groups(layers[name].weight, seen[name].hessian, how))
