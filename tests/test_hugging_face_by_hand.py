"""What our Transformer can do and no family of the loader asks for, against transformers all the
same: learned positions, in GPT-2. Config and weights are carried over by hand.
"""

import pytest
import torch
from hugging_face_cases import BY_HAND
from hugging_face_models import (
    MARGIN,
    TOLERANCE,
    VARIETY,
    Reference,
    disagreement,
    fed_in_blocks,
    greedy,
    reference,
)
from safetensors.torch import load_file

from twophase.models.transformer import Config, Transformer

SHARED = {"L": 3, "D": 32, "F": 44, "N": 4, "H": 8, "V": 97, "norm": "layer"}


def gpt2_config() -> Config:
    biases = {"qkv_bias": True, "o_bias": True, "mlp_bias": True}
    plain = {"gated_mlp": False, "activation": "gelu_tanh", "learned_positions": 80}
    return Config(**SHARED, **biases, **plain, K=4, tied=False, norm_eps=1e-5)


def gpt2_weights(stored: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Its matrices are stored transposed, those of queries, keys and values as one."""
    names = {"wte": "embed_tokens", "wpe": "embed_positions", "h": "layers",
             "ln_1": "input_layernorm",
             "ln_2": "post_attention_layernorm", "ln_f": "norm", "mlp.c_fc": "mlp.up_proj",
             "mlp.c_proj": "mlp.down_proj", "attn.c_proj": "self_attn.o_proj"}  # fmt: skip
    weights = {}
    for stored_name, tensor in stored.items():
        name = "." + stored_name.removeprefix("transformer.")
        for theirs, ours in names.items():
            name = name.replace(f".{theirs}.", f".{ours}.")
        tensor = tensor.T if tensor.ndim == 2 and ".layers." in name else tensor
        if ".c_attn." in name:
            for part, rows in zip("qkv", tensor.chunk(3), strict=True):
                weights[name[1:].replace("attn.c_attn", f"self_attn.{part}_proj")] = rows
        else:
            weights[name[1:]] = tensor
    return weights


@pytest.fixture(scope="module", params=BY_HAND, ids=str)
def theirs(request, tmp_path_factory) -> Reference:
    return reference(request.param, tmp_path_factory.mktemp(request.param.name))


@pytest.fixture(scope="module")
def ours(theirs) -> Transformer:
    model = Transformer(gpt2_config()).eval().requires_grad_(False)
    stored: dict[str, torch.Tensor] = {}
    for file in theirs.folder.glob("*.safetensors"):
        stored |= load_file(file)
    model.load_state_dict(gpt2_weights(stored))
    return model


def test_the_reference_says_different_things_and_decides_each_clearly(theirs):
    assert theirs.variety >= VARIETY
    assert theirs.margin >= MARGIN


@pytest.mark.parametrize("block", [77, 1, 5])
def test_logits_agree_however_the_tokens_are_fed(ours, theirs, block):
    total = theirs.tokens.shape[1]
    blocks = [block] * (total // block) + [total % block] * (total % block > 0)
    assert disagreement(fed_in_blocks(ours, theirs.tokens, blocks), theirs.logits) < TOLERANCE


def test_greedy_tokens_are_identical_over_64_steps(ours, theirs):
    assert torch.equal(greedy(ours, theirs.prompt)[0], theirs.tokens)


def test_parameters_are_as_many_as_theirs_and_as_the_theory_counts(ours, theirs):
    assert ours.n_params == theirs.n_params == ours.config.architecture().n_params()
