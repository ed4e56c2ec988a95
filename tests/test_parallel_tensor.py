"""A tensor-parallel model says what the whole one says, whatever it is made of and however little
divides; its messages are those of the theory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from draws import draws
from hugging_face_folders import build, save
from hypothesis import given
from hypothesis import strategies as st

from twophase import models
from twophase.kernels.collectives import Comm, RankError, simulate
from twophase.measure.collectives import Tracer, sent_bytes
from twophase.measure.events import EventLog
from twophase.models.config import Config
from twophase.models.generate import complete_batch, encode
from twophase.models.hugging_face import open_checkpoint
from twophase.models.transformer import Transformer
from twophase.parallel.shares import Shares, head_shares, share
from twophase.parallel.tensor import tensor_parallel
from twophase.parallel.weights import CourseFile, InMemory, Source, source_of
from twophase.theory import messages
from twophase.theory.layout import heads_of_chip
from twophase.theory.sizes import MixtureOfExperts

PROMPTS = [encode("def read(path):"), encode("import")]
FAMILY = ["gqa", "mqa", "mha", "mla", "moe", "linear", "cross_layer", "local_global", "sliding"]


def both(source: Source, whole: Transformer, n: int, n_new: int = 4) -> tuple[Any, Any]:
    """Tokens and logits of a model by itself and on n ranks, in fp64: sums in another order differ
    by rounding, and no token is so near to another."""
    tokens = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])

    def run(model: Any) -> tuple[list[list[int]], torch.Tensor]:
        made = [record.tokens for record in complete_batch(model, PROMPTS, n_new)]
        with torch.inference_mode():
            return made, model(tokens)

    return run(whole), simulate(n, lambda comm: run(tensor_parallel(source, comm, torch.float64)))


def check_equal(source: Source, whole: Transformer, n: int) -> None:
    (tokens, logits), ranks = both(source, whole, n)
    for found, found_logits in ranks:
        assert found == tokens
        # norms compute in fp32, so that a sum in another order may round one number otherwise
        torch.testing.assert_close(found_logits, logits, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "n"), [*((name, 3) for name in FAMILY), ("gqa", 2), ("mla", 4), ("moe", 4)]
)
def test_every_member_of_the_family_says_the_same_on_ranks_that_do_not_divide_its_heads(name, n):
    check_equal(CourseFile(name), models.load(name, torch.float64), n)


def odd(**more: Any) -> Config:
    sizes = {"L": 2, "D": 24, "F": 13, "N": 8, "K": 4, "H": 6, "V": 257} | more
    return Config(**sizes)


ODD = {
    "F and V divide by no number": odd(),
    "3 KV heads": odd(N=9, K=3),
    "one KV head for all": odd(K=1),
    "5 groups of 2": odd(N=10, K=5),
    "biases": odd(qkv_bias=True, o_bias=True, mlp_bias=True),
    "four norms, caps": odd(norms_per_layer=4, score_cap=3.0, logit_cap=2.0, norm="layer"),
    "plain MLP, learned positions": odd(
        gated_mlp=False, activation="gelu", learned_positions=64, mlp_bias=True
    ),
    "its own output matrix": odd(tied=False),
    "layers of other widths": odd(
        widths=({"F": 9, "N": 8, "K": 8}, {"F": 31, "N": 12, "K": 4}),
    ),
    "shared experts": odd(moe=MixtureOfExperts(E=3, k=2, F=11, n_shared=2, n_dense_layers=1), F=17),
}


def random_model(config: Config) -> Transformer:
    torch.manual_seed(5)
    model = Transformer(config).double().eval().requires_grad_(False)
    for parameter in model.parameters():  # biases, too, that are 0 at first
        parameter.normal_(std=0.2)
    return model


@pytest.mark.parametrize(
    ("name", "n"), [*((name, 3) for name in ODD), *((name, 8) for name in [*ODD][:3])]
)
def test_odd_sizes_are_divided_as_evenly_as_they_go(name, n):
    model = random_model(ODD[name])
    check_equal(InMemory(model), model, n)


@given(K=st.integers(1, 9), G=st.integers(1, 6), n=st.integers(1, 16))
@draws(200)
def test_every_head_has_one_rank_beside_its_keys_or_the_sizes_are_refused(K, G, n):
    try:
        shares = [head_shares(K * G, K, rank, n) for rank in range(n)]
    except ValueError:
        assert n > K
        assert n > G or n > G * K or -(-n // K) > G
        return
    assert [q for queries, _ in shares for q in queries] == list(range(K * G))
    for queries, keys in shares:
        assert len(queries)
        assert {q // G for q in queries} == set(keys)
        assert len(queries) % len(keys) == 0
    if (K * G) % n == 0 and (K % n == 0 or n % K == 0):
        assert shares == [heads_of_chip(rank, n, K * G, K) for rank in range(n)]


@given(n=st.integers(0, 40), n_ranks=st.integers(1, 9))
@draws(50)
def test_shares_differ_by_one_at_most_and_are_those_of_a_tensor_that_is_split(n, n_ranks):
    chunks = torch.arange(n).tensor_split(n_ranks)
    assert [list(share(n, rank, n_ranks)) for rank in range(n_ranks)] == [
        c.tolist() for c in chunks
    ]


@pytest.mark.parametrize("n", [2, 3, 4])
def test_traced_bytes_are_the_theorys_to_the_byte(n):
    c, B, T, n_new = models.load("gqa").config, 2, 8, 3

    def rank(comm: Comm) -> EventLog:
        tracer = Tracer(comm)
        complete_batch(tensor_parallel(CourseFile("gqa"), tracer), [[7] * T, [8] * T], n_new)
        return tracer.log

    log = EventLog.merged(simulate(n, rank))
    for phase, tokens, passes in (("prefill", B * T, 1), ("decode", B, n_new - 1)):
        layer = messages.tensor_part(tokens, c.D, (n,), 4)
        expected = messages.repeated(layer + layer, c.L)
        expected += messages.vocabulary_part(tokens, B, c.D, c.V, (n,), 4, 4)
        events = [e for e in log.select("collective") if e["phase"] == phase]
        assert sent_bytes(events) == pytest.approx(
            n * passes * messages.sent_bytes(expected), rel=1e-12
        )
        assert len(events) == n * passes * (2 * c.L + 2)
        assert {e["layer"] for e in events} == {None, *range(c.L)}


@pytest.mark.parametrize("family", ["mixtral", "deepseek_v3"])
def test_a_hugging_face_directory_says_the_same_and_each_rank_reads_its_boxes_only(
    family, tmp_path, monkeypatch
):
    save(build(family), tmp_path)
    checkpoint = open_checkpoint(tmp_path)
    whole = checkpoint.load(torch.float64)
    check_equal(checkpoint, whole, 2)
    read = [0]

    def counted(name: str, *parts: Any) -> torch.Tensor:
        found = type(checkpoint).read(checkpoint, name, *parts)
        read[0] += found.numel()
        return found

    class Counting:
        config, dtype, read = checkpoint.config, checkpoint.dtype, staticmethod(counted)

    held = simulate(
        2, lambda comm: sum(p.numel() for p in tensor_parallel(Counting(), comm).parameters())
    )
    tied = checkpoint.config.tied * checkpoint.config.V * checkpoint.config.D
    assert sum(held) <= read[0] <= sum(held) + tied
    assert read[0] < 1.5 * sum(p.numel() for p in whole.parameters()) + tied


@pytest.mark.parametrize(
    ("config", "n", "says"),
    [
        (odd(), 14, "13 MLP columns cannot be divided over 14 ranks"),
        (odd(F=50), 9, "8 query heads in 4 groups cannot be divided over 9 ranks"),
        (odd(V=5, F=50), 6, "5 vocabulary rows cannot be divided over 6 ranks"),
    ],
)
def test_what_cannot_be_divided_is_refused_in_a_sentence(config, n, says):
    source = InMemory(random_model(config))
    with pytest.raises((RankError, ValueError), match=says):
        simulate(n, lambda comm: tensor_parallel(source, comm))


def test_a_state_space_model_is_refused_in_a_sentence():
    with pytest.raises(ValueError, match='layers of the kind "ssm" are not divided here'):
        Shares(CourseFile("ssm").config, 0, 2)
    with pytest.raises(ValueError, match="there is no directory 'gpt', and no checkpoint"):
        source_of("gpt")


def test_a_token_outside_the_vocabulary_is_refused_on_every_rank():
    def rank(comm: Comm) -> None:
        model = tensor_parallel(CourseFile("gqa"), comm)
        with pytest.raises(ValueError, match="a token is outside the vocabulary: 0 to 255"):
            model(torch.tensor([[256]]))

    simulate(2, rank)


def test_the_file_of_the_course_is_what_its_loader_reads():
    whole, source = models.load("moe"), CourseFile("moe")
    for name, value in whole.state_dict().items():
        assert torch.equal(source.read(name), value)
        half = value.shape[0] // 2
        assert torch.equal(source.read(name, (0, half, value.shape[0])), value[half:])
    assert Path(source.folder, "moe.safetensors").is_file()
