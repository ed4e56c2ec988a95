"""Directories of quantized weights as they are published: GPTQ, AWQ, and int8 of bitsandbytes.

`quantization_config` in config.json says which. Linear layers become QuantizedLinear, codes packed
as kernels.quantization has them; embedding, norms and whatever else was left alone is read as it
is.

- GPTQ and AWQ: `qweight`, `qzeros`, `scales` (GPTQ also `g_idx`) in the place of a layer's
  `weight`; their words: kernels.quantization.published.
- bitsandbytes, load_in_8bit: `weight` int8 [O, I], and the largest sizes of its rows, `SCB` fp32
  [O]: w = weight · SCB / 127.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from twophase.kernels.quantization.integers import IntegerFormat, Integers, from_codes
from twophase.kernels.quantization.published import from_awq, from_gptq
from twophase.models.blank import blank
from twophase.models.config import Config
from twophase.models.hugging_face.config import read_config
from twophase.models.hugging_face.names import COMPUTED, EMBEDDING, HEAD, places
from twophase.models.hugging_face.shards import read_json, weight_files
from twophase.models.linear import linears, replace_linears
from twophase.models.quantize.linear import QuantizedLinear
from twophase.models.transformer import Transformer

KEY = "quantization_config"
PARTS = {  # a layer's tensors, and whether they must be there
    "gptq": {"qweight": True, "qzeros": True, "scales": True, "g_idx": False},
    "awq": {"qweight": True, "qzeros": True, "scales": True},
    "bitsandbytes": {"weight": True, "SCB": True, "weight_format": False},
}
LAST = 127
Tensors = dict[str, torch.Tensor]


def is_published(folder: Path) -> bool:
    """Whether config.json says that the weights are quantized. ValueError if it cannot be read."""
    return read_json(folder / "config.json").get(KEY) is not None


def published_config(folder: Path) -> Config:
    """The model that config.json describes, quantized or not. ValueError as `read_config`."""
    said = read_json(folder / "config.json")
    return read_config({key: value for key, value in said.items() if key != KEY})


def load_published(
    folder: Path, dtype: torch.dtype | None = None, device: torch.device | str = "cpu"
) -> Transformer:
    """The model of such a directory, ready to run; `dtype` of what is not quantized (None: that of
    the embedding).

    Raises ValueError, in one sentence, for a method or layout that is not built here, for files
    that are missing or damaged, and for tensors that do not fit each other or the model.
    """
    how = read_json(folder / "config.json")[KEY]
    method = _method(how, folder)
    model = blank(published_config(folder))
    tensors = _read(folder)
    layers = {
        place: _layer(prefix, tensors, how, method, folder)
        for place, prefix in _prefixes(tensors, method, folder).items()
    }
    plain = {_place(key, folder): value for key, value in tensors.items()}
    kind = dtype or (plain[EMBEDDING].dtype if EMBEDDING in plain else torch.bfloat16)
    made: dict[str, QuantizedLinear] = {}
    for name, linear in linears(model):
        if name in layers:
            bias = plain.pop(f"{name}.bias", None)
            if bias is not None and not _has_bias(linear) and not bias.any():
                bias = None  # some tools write zeros for a bias that the model does not have
            _check(name, layers[name], linear, bias, folder)
            made[name] = QuantizedLinear(layers[name], None if bias is None else bias.to(kind))
    if unknown := sorted(layers.keys() - made.keys()):
        raise ValueError(
            f"{folder}: {unknown[0]} is quantized, but no linear layer of the model in config.json."
        )
    replace_linears(model, lambda name, _: made.get(name))
    _fill(model, plain, kind, folder)
    return model.to(device).requires_grad_(False).eval()


def _method(how: Any, folder: Path) -> str:
    """ "gptq", "awq" or "bitsandbytes". ValueError for what is not read here."""
    found: Mapping[str, Any] = how if isinstance(how, Mapping) else {}
    method, bits = str(found.get("quant_method")), found.get("bits")
    built = {
        "gptq": bits in (2, 4, 8) and found.get("checkpoint_format", "gptq") in ("gptq", "gptq_v2"),
        "awq": bits == 4 and str(found.get("version", "gemm")).lower() == "gemm",
        "bitsandbytes": found.get("load_in_8bit") is True,
    }
    if not built.get(method):
        raise ValueError(
            f"{folder}: config.json quantizes weights in a way that is not read here, {how!r};"
            " read are gptq of 2, 4 or 8 bits, awq of 4 bits (gemm), and bitsandbytes in 8 bits."
        )
    return method


def _read(folder: Path) -> Tensors:
    """Every tensor of the directory, tables of angles left aside."""
    found: Tensors = {}
    for file in weight_files(folder):
        try:
            found |= load_file(file)
        except (SafetensorError, OSError) as error:
            raise ValueError(
                f"{file} is damaged or was cut off ({error}): download it again."
            ) from None
    return {key: value for key, value in found.items() if not COMPUTED.fullmatch(key)}


def _prefixes(tensors: Tensors, method: str, folder: Path) -> dict[str, str]:
    """The quantized layers by our names, and what the files call them."""
    first = "SCB" if method == "bitsandbytes" else "qweight"
    found: dict[str, str] = {}
    for key in tensors:
        if key.endswith(f".{first}"):
            prefix = key.removesuffix(f".{first}")
            found[_place(f"{prefix}.weight", folder).removesuffix(".weight")] = prefix
    if not found:
        raise ValueError(
            f"{folder}: config.json speaks of {method}, but no layer has a {first}: the files do"
            " not belong together."
        )
    return found


def _place(key: str, folder: Path) -> str:
    """Our name for a tensor of the files."""
    place = places(key)[0]
    if place.expert is not None or place.half is not None:
        raise ValueError(f"{folder}: quantized experts ({key}) are not read here.")
    return place.name


def _layer(
    prefix: str, tensors: Tensors, how: Mapping[str, Any], method: str, folder: Path
) -> Integers:
    """One layer's matrix; its tensors are taken out of `tensors`."""
    parts: Tensors = {}
    for part, needed in PARTS[method].items():
        if f"{prefix}.{part}" in tensors:
            parts[part] = tensors.pop(f"{prefix}.{part}")
        elif needed:
            raise ValueError(f"{folder}: {prefix} has no {part}, which {method} needs.")
    try:
        if method == "bitsandbytes":
            return _int8(parts["weight"], parts["SCB"])
        words = parts["qweight"], parts["qzeros"], parts["scales"]
        if method == "awq":
            stored = from_awq(*words)
        else:
            minus_one = how.get("checkpoint_format", "gptq") == "gptq"
            stored = from_gptq(*words, how["bits"], parts.get("g_idx"), minus_one)
        _check_group(stored, how.get("group_size", 128))
    except ValueError as error:
        raise ValueError(f"{folder}: {prefix}: {error}") from None
    return stored


def _int8(weight: torch.Tensor, largest: torch.Tensor) -> Integers:
    """int8 [O, I] and the largest sizes of its rows."""
    if weight.dtype != torch.int8 or weight.ndim != 2 or tuple(largest.shape) != weight.shape[:1]:
        raise ValueError(
            f"int8 [O, I] and SCB [O] are expected; got {weight.dtype} {list(weight.shape)} and"
            f" {list(largest.shape)}."
        )
    how = IntegerFormat(8, "channel", scale_dtype=torch.float32)
    codes = (weight.short() + how.half).to(torch.uint8)
    return from_codes(codes, how, largest.float()[:, None] / LAST, None)


def _check_group(stored: Integers, said: Any) -> None:
    size = stored.format.group
    if said not in (size, -1) or (said == -1 and size != stored.inputs):
        raise ValueError(f"its groups hold {size} inputs, but config.json says group_size {said}.")


def _check(
    name: str,
    stored: Integers,
    linear: torch.nn.Linear,
    bias: torch.Tensor | None,
    folder: Path,
) -> None:
    """ValueError if a layer is not as large as the model's, or holds NaN or infinity."""
    found = [len(stored.codes), stored.inputs]
    wanted = [linear.out_features, linear.in_features]
    if found != wanted or (bias is not None) != _has_bias(linear):
        raise ValueError(
            f"{folder}: {name} is {found}{' with a bias' * (bias is not None)}, but by config.json"
            f" it must be {wanted}{' with a bias' * _has_bias(linear)}."
        )
    if not stored.scales.isfinite().all():
        raise ValueError(f"{folder}: {name} has a scale that is NaN or infinite.")


def _has_bias(linear: torch.nn.Linear) -> bool:
    return getattr(linear, "bias", None) is not None


def _fill(model: Transformer, plain: Tensors, dtype: torch.dtype, folder: Path) -> None:
    """Give the model what is not quantized. ValueError for what is missing, too much, of another
    shape, or not finite."""
    own = {name for name, layer in model.named_modules() if isinstance(layer, QuantizedLinear)}
    expected = {k: v for k, v in model.state_dict().items() if k.rpartition(".")[0] not in own}
    if model.config.tied and HEAD in expected:
        expected.pop(HEAD)
        plain.pop(HEAD, None)
    for name in sorted(expected.keys() | plain.keys()):
        if name not in plain:
            raise ValueError(f"{folder}: the files do not hold {name}, which the model has.")
        if name not in expected:
            raise ValueError(f"{folder}: {name} has no place in the model of config.json.")
        value, shape = plain[name], expected[name].shape
        if value.shape != shape or not value.is_floating_point() or not value.isfinite().all():
            raise ValueError(
                f"{folder}: {name} must be {list(shape)} finite floats; got {value.dtype}"
                f" {list(value.shape)}."
            )
    state = {name: value.to(dtype) for name, value in plain.items()}
    model.load_state_dict(state, strict=False, assign=True)
    if model.config.tied and HEAD.removesuffix(".weight") not in own:
        model.lm_head.weight = model.embed_tokens.weight
