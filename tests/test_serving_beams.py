"""Beams in shared blocks say what beams without any cache say."""

import math

import pytest
import torch

from twophase.measure.events import EventLog
from twophase.models import checkpoints
from twophase.models.config import Config
from twophase.models.generate import encode
from twophase.models.transformer import Transformer
from twophase.serving import Hypothesis, beam_search

PROMPT = encode("def read(self, path):\n    with open(")
NAMES = ["gqa", "mla", "ssm_attention", "local_global"]


@pytest.fixture(scope="module")
def models() -> dict[str, Transformer]:
    return {name: checkpoints.load(name).double() for name in NAMES}


@torch.inference_mode()
def naive(
    model: Transformer,
    prompt: list[int],
    n: int,
    max_tokens: int,
    stop: set[int] = frozenset(),  # type: ignore[assignment]
    penalty: float = 1.0,
) -> list[tuple[list[int], float]]:
    """Each beam read from its first token on in every step; whoever ends keeps its place."""
    beams, ended = [((), 0.0)], []
    for length in range(1, max_tokens + 1):
        every = []
        for tokens, before in beams:
            logits = model(torch.tensor([[*prompt, *tokens]]))[0, -1]  # [V]
            log_probs = logits.log_softmax(-1) + before
            every += [((*tokens, t), p) for t, p in enumerate(log_probs.tolist())]
        every.sort(key=lambda one: -one[1])
        over = [t[-1] in stop or length == max_tokens for t, _ in every]
        ended += [(t, p / length**penalty) for (t, p), o in zip(every[:n], over, strict=False) if o]
        ended = sorted(ended, key=lambda one: -one[1])[:n]
        beams = [one for one, o in zip(every, over, strict=True) if not o][:n]
        if len(ended) == n and beams and beams[0][1] / length**penalty <= ended[-1][1]:
            break
    return ended


def held(found: list[Hypothesis], want: list) -> None:
    assert [one.tokens for one in found] == [tokens for tokens, _ in want]
    want_scores = [score for _, score in want]
    # states are kept in fp32
    assert [one.score for one in found] == pytest.approx(want_scores, rel=1e-6)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n", [1, 4])
def test_beams_that_share_blocks_say_what_beams_without_a_cache_say(
    models: dict[str, Transformer], name: str, n: int
) -> None:
    held(
        beam_search(models[name], PROMPT, n, 6, n_blocks=40, block_size=4),
        naive(models[name], list(PROMPT), n, 6),
    )


@pytest.mark.parametrize("penalty", [0.0, 1.0, -1.0])
def test_texts_end_at_stops_and_are_ranked_by_their_length(
    models: dict[str, Transformer], penalty: float
) -> None:
    stop = set(encode(")'e"))
    found = beam_search(
        models["gqa"], PROMPT, 3, 8, stop=[(t,) for t in stop], length_penalty=penalty
    )
    held(found, naive(models["gqa"], list(PROMPT), 3, 8, stop, penalty))
    assert len({len(one.tokens) for one in found}) > 1 or penalty
    for one in found:
        assert one.score == pytest.approx(one.log_prob / len(one.tokens) ** penalty)


def test_beams_are_those_of_transformers() -> None:
    """Random weights of a Llama: same sequences, and scores to fp32's rounding."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"D": 32, "F": 48, "L": 2, "N": 4, "K": 2, "H": 8, "V": 40}
    model = Transformer(Config(**sizes, context=64, tied=False))
    for weight in model.parameters():
        weight.data *= 8 if weight.ndim == 2 else 1
    c = model.config
    config = transformers.LlamaConfig(
        hidden_size=c.D, intermediate_size=c.F, num_hidden_layers=c.L, num_attention_heads=c.N,
        num_key_value_heads=c.K, head_dim=c.H, vocab_size=c.V, rms_norm_eps=c.norm_eps,
        tie_word_embeddings=c.tied, rope_theta=c.rope_theta, eos_token_id=7, pad_token_id=2,
        bos_token_id=1,
    )  # fmt: skip
    theirs = transformers.LlamaForCausalLM(config).eval()
    state = {
        name if name.startswith("lm_head") else f"model.{name}": w
        for name, w in model.state_dict().items()
    }
    theirs.load_state_dict(state, strict=True)
    for first in (3, 11, 29):
        for eos in (7, [7, 8, 9]):
            prompt = [first, 5, 9]
            out = theirs.generate(
                torch.tensor([prompt]), num_beams=4, do_sample=False, max_new_tokens=10,
                num_return_sequences=4, output_scores=True, return_dict_in_generate=True,
                eos_token_id=eos, attention_mask=torch.ones(1, 3),
            )  # fmt: skip
            stop = [(t,) for t in (eos if isinstance(eos, list) else [eos])]
            found = beam_search(model, prompt, 4, 10, stop=stop, block_size=4)
            longest = out.sequences.shape[1] - 3
            padded = [[*one.tokens, *[2] * (longest - len(one.tokens))] for one in found]
            assert padded == out.sequences[:, 3:].tolist()
            scores = out.sequences_scores.tolist()
            assert [one.score for one in found] == pytest.approx(scores, rel=1e-4)


def test_beams_hold_the_prompt_once_and_give_everything_back(
    models: dict[str, Transformer],
) -> None:
    log, size = EventLog(), 4
    beam_search(models["gqa"], PROMPT, 4, 8, n_blocks=40, block_size=size, log=log)
    passes = log.select("pass")
    assert sum(sum(one["n_new"]) for one in passes) == len(PROMPT) + 4 * 7
    full = len(PROMPT) // size
    for one in passes[1:]:
        assert len({tuple(table[:full]) for table in one["tables"]}) == 1
        assert len({b for table in one["tables"] for b in table}) == 40 - one["free_blocks"]
    assert log.select("copy_block")
    assert {e["request"] for e in log.select("finish")} == {
        0,
        *(e["child"] for e in log.select("split")),
    }


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"n_beams": 0}, "n_beams is a whole number of at least 1"),
        ({"max_tokens": 0}, "max_tokens is a whole number of at least 1"),
        ({"stop": ["ab"]}, "stop lists sequences of tokens"),
        ({"n_blocks": 1}, "1 beams of .* do not fit into 1 blocks of 4"),
        ({"n_blocks": math.ceil(len(PROMPT) / 4)}, "beams of .* do not fit"),
    ],
)
def test_a_search_that_cannot_be_is_refused(
    models: dict[str, Transformer], wrong: dict, sentence: str
) -> None:
    asked = {"n_beams": 3, "max_tokens": 9, "n_blocks": 40, "block_size": 4} | wrong
    with pytest.raises(ValueError, match=sentence):
        beam_search(models["gqa"], PROMPT, **asked)
