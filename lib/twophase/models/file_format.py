"""How weights lie in a checkpoint's file: in bf16, or, where a model is large, each matrix as 8-bit
integers with one scale a row (`<name>` and `<name>.scales`), which are decoded into bf16."""

import copy

import torch

from twophase.kernels.quantization.integers import IntegerFormat, Integers, encode
from twophase.models.transformer import Transformer

INT8 = IntegerFormat(bits=8, group="channel", scale_dtype=torch.float32)
SCALES = ".scales"


def to_file(model: Transformer, int8: bool = False) -> dict[str, torch.Tensor]:
    """What is written of a model: bf16, or matrices [O, I] as uint8 codes [O, I] and fp32 scales
    [O, 1], where `int8` says so; a tied output matrix once. ValueError for weights that are not
    finite."""
    state: dict[str, torch.Tensor] = {}
    for key, value in model.state_dict().items():
        value = value.detach().to("cpu")
        if key == "lm_head.weight" and model.config.tied:
            continue
        if int8 and value.ndim == 2:
            stored = encode(value, INT8)
            state[key], state[key + SCALES] = stored.codes, stored.scales
        else:
            state[key] = value.to(torch.bfloat16).contiguous()
    return state


def from_file(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The weights in bf16 that a file stands for; codes without scales stay as they are. ValueError
    for codes and scales that do not fit each other."""
    weights = {}
    for key, value in state.items():
        if key.endswith(SCALES) and key.removesuffix(SCALES) in state:
            continue
        if (scales := state.get(key + SCALES)) is not None:
            value = Integers(INT8, value.shape[1], value, scales).decode().to(torch.bfloat16)
        weights[key] = value
    return weights


def as_saved(model: Transformer, int8: bool = False) -> Transformer:
    """A copy, in fp32 and ready to run, with the numbers that its file will hold."""
    saved = copy.deepcopy(model).float().eval()
    weights = from_file(to_file(model, int8))
    saved.load_state_dict(weights, strict=not model.config.tied)
    return saved
