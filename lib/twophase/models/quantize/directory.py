"""A quantized model in a directory: `quantized.json` says what it is, `quantized.safetensors` holds
codes, scales, zero points, and the weights that were left as they are.

The card has one `format` and a list of `layers` for integers; for formats with a name it says of
each layer which one it has.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from twophase.kernels.quantization.integers import IntegerFormat
from twophase.kernels.quantization.named import layout_of
from twophase.models.blank import blank
from twophase.models.checkpoints import publish, write_weights
from twophase.models.config import Config
from twophase.models.linear import replace_linears
from twophase.models.quantize.linear import (
    FewBitsLinear,
    NamedLinear,
    QuantizedLinear,
    blank_linear,
)
from twophase.models.transformer import Transformer

CARD, WEIGHTS = "quantized.json", "quantized.safetensors"
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def save(model: Transformer, folder: Path, details: dict[str, Any]) -> None:
    """Write a quantized model and its card, with `details` of how it came about. ValueError if no
    layer is quantized, or formats differ."""
    layers = _layers(model)
    folder.mkdir(parents=True, exist_ok=True)
    state = {k: v.detach().to("cpu").contiguous() for k, v in model.state_dict().items()}
    if model.config.tied:
        del state["lm_head.weight"]
    card = {"config": model.config.to_dict(), **layers, **details}
    publish(write_weights(state, folder / WEIGHTS), folder / WEIGHTS, {folder / CARD: card})


def _layers(model: Transformer) -> dict[str, Any]:
    """What the card says of layers. ValueError unless some are quantized, to integers of one format
    or all to formats with a name."""
    modules = model.named_modules()
    found = {name: m.format for name, m in modules if isinstance(m, QuantizedLinear | NamedLinear)}
    named = {name: form for name, form in found.items() if isinstance(form, str)}
    if named and len(named) == len(found):
        return {"layers": dict(sorted(named.items()))}
    formats = set(found.values())
    if len(formats) != 1:
        raise ValueError(f"a directory holds one format; this model has {len(formats)}.")
    how = formats.pop()
    assert isinstance(how, IntegerFormat)
    form = {
        "bits": how.bits,
        "group": how.group,
        "affine": how.affine,
        "scale_dtype": str(how.scale_dtype).removeprefix("torch."),
    }
    return {"format": form, "layers": sorted(found)}


def is_quantized(folder: Path) -> bool:
    """Whether a directory holds a quantized model of ours."""
    return (folder / CARD).is_file()


def card(folder: Path) -> dict[str, Any]:
    """What `quantized.json` says. ValueError if it cannot be read."""
    try:
        found = json.loads((folder / CARD).read_text(encoding="utf-8"))
        Config(**found["config"])
        _formats(found)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{folder / CARD} cannot be read ({error}): quantize again.") from None
    return found  # type: ignore[no-any-return]


def load(
    folder: Path, dtype: torch.dtype | None = None, device: torch.device | str = "cpu"
) -> Transformer:
    """The model in a directory, ready to run; `dtype` of what is not quantized (None: as stored).

    ValueError, in one sentence, for a file that is missing, damaged, or does not fit its card.
    """
    known = card(folder)
    wanted = _formats(known)
    try:
        state = load_file(folder / WEIGHTS)
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{folder / WEIGHTS} cannot be read ({error}): quantize again.") from None
    model = blank(Config(**known["config"]))

    def replace(name: str, it: torch.nn.Linear) -> FewBitsLinear | None:
        if name not in wanted:
            return None
        return blank_linear(wanted[name], it.in_features, it.out_features, it.bias is not None)

    replace_linears(model, replace)
    if model.config.tied:
        state["lm_head.weight"] = state.get("embed_tokens.weight", torch.empty(0))
    expected = {
        k: (list(v.shape), v.dtype.is_floating_point) for k, v in model.state_dict().items()
    }
    found = {k: (list(v.shape), v.dtype.is_floating_point) for k, v in state.items()}
    if wrong := sorted(
        k for k in expected.keys() | found.keys() if expected.get(k) != found.get(k)
    ):
        raise ValueError(f"{folder / WEIGHTS} does not fit its card at {wrong[0]}: quantize again.")
    model.load_state_dict(state, assign=True)
    if model.config.tied:
        model.lm_head.weight = model.embed_tokens.weight
    model.to(device=device, dtype=dtype).requires_grad_(False)
    return model.eval()


def _formats(known: dict[str, Any]) -> dict[str, IntegerFormat | str]:
    """The format of each quantized layer. ValueError for one that is none."""
    layers = known["layers"]
    if isinstance(layers, dict):
        for form in layers.values():
            layout_of(form, 1, 1)
        return dict(layers)
    form = known["format"]
    dtype = DTYPES[form["scale_dtype"]]
    how = IntegerFormat(form["bits"], form["group"], form["affine"], dtype)
    return dict.fromkeys(layers, how)
