"""Models of every family agree with transformers: prefill, decode through our caches, greedy
tokens, sizes.

One reference per case is made, saved as a checkpoint in shards, and loaded with our loader; see
`hugging_face_models`.
"""

from itertools import cycle

import pytest
import torch
from hugging_face_cases import CASES, LATENT
from hugging_face_models import (
    MARGIN,
    TOLERANCE,
    VARIETY,
    Reference,
    disagreement,
    fed_in_blocks,
    made,
    ragged_disagreement,
)

from twophase.models import hugging_face
from twophase.models.generate import complete
from twophase.models.latent_attention import LatentAttention
from twophase.models.transformer import Transformer

Pair = tuple[Reference, Transformer]
# One case for each kind of cache: full, ring, both, latent.
CACHES = ("llama-3", "mistral", "gemma-3", "deepseek-v3")


@pytest.fixture(params=CASES, ids=str)
def pair(request) -> Pair:
    return made(request.param.name)


@pytest.fixture
def theirs(pair) -> Reference:
    return pair[0]


@pytest.fixture
def ours(pair) -> Transformer:
    return pair[1]


def test_the_reference_says_different_things_and_decides_each_clearly(theirs):
    assert theirs.variety >= VARIETY
    assert theirs.margin >= MARGIN
    assert (
        theirs.logits.std(-1).min() > 0.4
    )  # the spread that differences are a share of: never near 0


def test_prefill_logits_agree(ours, theirs):
    with torch.inference_mode():
        assert disagreement(ours(theirs.tokens), theirs.logits) < TOLERANCE


FIRST = 24  # tokens: longer than every window


def test_logits_decoded_token_by_token_through_the_cache_agree(ours, theirs):
    """From an empty cache; and after the prompt, where our model wrote what follows."""
    decoded = fed_in_blocks(ours, theirs.tokens[:, :FIRST], [1] * FIRST)
    assert disagreement(decoded, theirs.logits[:, :FIRST]) < TOLERANCE
    tokens, written = theirs.ours
    assert torch.equal(tokens, theirs.tokens)  # what it was fed
    assert disagreement(written, theirs.logits[:, theirs.case.T - 1 : -1]) < TOLERANCE


@pytest.mark.parametrize(
    "sizes",
    [
        (5, 1, 8, 2, 1, 13),
        *(pytest.param(s, marks=pytest.mark.more) for s in [(12, 1), (6, 7, 20)]),
    ],
    ids=str,
)
def test_logits_of_a_prompt_fed_in_pieces_agree(ours, theirs, sizes):
    """Pieces against windows of 5, 6, 13 and 20: shorter, equal, one more, several windows long."""
    blocks = pieces(theirs.tokens.shape[1], sizes)
    assert disagreement(fed_in_blocks(ours, theirs.tokens, blocks), theirs.logits) < TOLERANCE


def pieces(total: int, sizes: tuple[int, ...]) -> list[int]:
    """The sizes in turn, again and again, up to `total`."""
    blocks: list[int] = []
    for size in cycle(sizes):
        blocks.append(min(size, total - sum(blocks)))
        if sum(blocks) == total:
            break
    return blocks


def test_greedy_tokens_are_identical_over_64_steps(theirs):
    assert torch.equal(theirs.ours[0], theirs.tokens)


@pytest.mark.parametrize(
    "pair",
    [c if c.name in CACHES else pytest.param(c, marks=pytest.mark.more) for c in CASES],
    ids=str,
    indirect=True,
)
def test_generate_gives_the_same_tokens_with_and_without_a_cache(ours, theirs):
    prompt, expected = theirs.prompt[0].tolist(), theirs.tokens[0, theirs.case.T :].tolist()
    for cached in (True, False):
        assert complete(ours, prompt, 16, cache=cached).tokens == expected[:16]


def test_a_ragged_batch_agrees(ours, theirs):
    B, T = theirs.tokens.shape
    counts = [T - 3, 4, 1][:B]
    assert ragged_disagreement(ours, theirs.tokens, theirs.logits, counts) < TOLERANCE


@pytest.mark.parametrize("absorbed", [True, False], ids=["absorbed", "expanded"])
@pytest.mark.parametrize("pair", LATENT, ids=str, indirect=True)
def test_latent_attention_agrees_in_both_forms_however_it_is_fed(theirs, absorbed):
    ours = hugging_face.load(theirs.folder)
    for module in ours.modules():
        if isinstance(module, LatentAttention):
            module.absorbed = absorbed
    total = theirs.tokens.shape[1]
    for blocks in [total], [9, *[1] * 15, total - FIRST]:
        assert disagreement(fed_in_blocks(ours, theirs.tokens, blocks), theirs.logits) < TOLERANCE


def test_parameters_are_as_many_as_theirs_and_as_the_theory_counts(ours, theirs):
    assert ours.n_params == theirs.n_params == ours.config.architecture().n_params()


def test_caches_take_the_bytes_of_the_theory_below_and_beyond_every_window(ours):
    for S in (1, 4, 5, 6, 13, 14, 200):
        assert ours.new_cache(3, S).nbytes == 3 * ours.config.architecture().cache_bytes(
            S, bytes_per_kv=4
        )
