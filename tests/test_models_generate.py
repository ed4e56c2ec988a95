"""The generation loop: the cache changes the time, not the text."""

import math

import pytest
import torch

from twophase import models
from twophase.models.generate import (
    Generation,
    complete,
    complete_batch,
    decode,
    encode,
    generate,
    generate_batch,
)
from twophase.models.transformer import Transformer

PROMPT = encode("def read_lines(path):")


@pytest.fixture(scope="module")
def model() -> Transformer:
    return models.load("gqa")


@pytest.mark.parametrize("prompt", [PROMPT, encode("class Node"), list(b"\0import")])
def test_cached_generation_equals_uncached_token_for_token(model, prompt):
    cached, naive = (complete(model, prompt, 24, cache=cache).tokens for cache in (True, False))
    assert len(cached) == 24
    assert len(set(cached)) > 6  # words, not one byte repeated, which any bug would repeat too
    assert cached == naive


def test_with_the_same_draws_sampling_too_is_the_same_with_and_without_cache(model):
    def run(cache: bool) -> list[int]:
        g = torch.Generator().manual_seed(3)
        return complete(
            model, PROMPT, 20, cache=cache, temperature=1.0, top_p=0.95, generator=g
        ).tokens

    assert run(True) == run(False)


def test_generation_goes_beyond_the_context_it_was_trained_on(model):
    prompt = list(b"x = 1\n" * 60)  # 360 tokens against a context of 256
    assert len(prompt) > model.config.context
    assert complete(model, prompt, 8).tokens == complete(model, prompt, 8, cache=False).tokens


class CallLog(torch.nn.Module):
    """Passes calls on to a model and notes how many tokens each one was fed."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.inner, self.config, self.new_cache = model, model.config, model.new_cache
        self.device = model.device
        self.fed: list[int] = []

    def forward(self, tokens, cache=None, **options):
        self.fed.append(tokens.shape[1])
        return self.inner(tokens, cache, **options)


def test_decode_feeds_one_token_and_the_naive_loop_everything(model):
    for cache, expected in ((True, [5, 1, 1, 1]), (False, [5, 6, 7, 8])):
        log = CallLog(model)
        complete(log, list(b"def f"), 4, cache=cache)
        assert log.fed == expected


def test_choose_is_given_the_law_of_each_token_and_its_answer_is_taken(model):
    laws = []

    def second_best(probs: torch.Tensor) -> int:
        laws.append(probs)
        return int(probs.topk(2).indices[1])

    made = complete(model, PROMPT, 3, temperature=1.0, choose=second_best).tokens
    logits = model(torch.tensor([PROMPT + made[:-1]]))[0, len(PROMPT) - 1 :]
    torch.testing.assert_close(torch.stack(laws), logits.softmax(-1), rtol=1e-3, atol=1e-5)
    assert made == [int(row.topk(2).indices[1]) for row in logits]


def test_a_stop_sequence_ends_the_generation_and_is_its_end(model):
    free = complete(model, PROMPT, 40)
    stop = free.tokens[10:13]
    first = next(i for i in range(40) if free.tokens[i : i + 3] == stop)
    stopped = complete(model, PROMPT, 40, stop=[stop])
    assert stopped.tokens == free.tokens[: first + 3]
    assert (stopped.finish_reason, free.finish_reason) == ("stop", "length")


def test_the_record_has_a_time_for_every_token_and_ttft_tpot_add_up(model):
    record = complete(model, PROMPT, 5)
    assert len(record.times_s) == 5
    assert record.times_s == sorted(record.times_s)
    assert record.ttft_s == record.times_s[0] > 0
    assert record.ttft_s + sum(record.tpot_list_s) == pytest.approx(record.times_s[-1])
    assert record.tpot_s == pytest.approx(sum(record.tpot_list_s) / 4)
    assert record.tokens_per_s == pytest.approx(5 / record.times_s[-1])


def test_text_becomes_bytes_after_a_newline_and_back():
    assert encode("é") == [10, 0xC3, 0xA9]
    assert decode(encode("a €")) == "\na €"
    assert decode([0x61, 0xFF]) == "a\ufffd"


def test_nothing_asked_for_is_nothing_made(model):
    record = complete(model, PROMPT, 0)
    assert (record.tokens, record.finish_reason) == ([], "length")
    assert math.isnan(record.ttft_s)
    assert math.isnan(Generation(times_s=[1.0]).tpot_s)


@pytest.mark.parametrize(
    ("prompt", "n_new", "options", "says"),
    [
        ([], 1, {}, "the prompt is empty"),
        ([256], 1, {}, "token 256 is outside the vocabulary of 256"),
        ([1], -1, {}, "at least 0"),
        ([1], 2.5, {}, "number of new tokens is a whole number of at least 0; got 2.5"),
        ([1], True, {}, "number of new tokens is a whole number"),
        ([1], 1, {"stop": [5]}, "a stop sequence is a list of tokens, whole numbers; got 5"),
        ([1], 1, {"stop": ["."]}, "a stop sequence is a list of tokens, whole numbers; got '.'"),
        ([1], 1, {"stop": 5}, "`stop` is a list of token sequences; got 5"),
        ([1], 1, {"top_p": 2.0}, "top_p"),
    ],
)
def test_bad_input_is_refused_at_the_call_and_not_at_the_first_token(
    model, prompt, n_new, options, says
):
    with pytest.raises(ValueError, match=says):
        generate(model, prompt, n_new, **options)


PROMPTS = [PROMPT, encode("x = 1\n"), [10], encode("class Stack:\n    def push(self, ")]


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("options", [{}, {"temperature": 1.0, "top_p": 0.9}], ids=str)
def test_each_prompt_of_a_batch_is_continued_as_if_it_were_alone(model, options, cache):
    def drawn(seed: int) -> torch.Generator:
        return torch.Generator().manual_seed(seed)

    drawing = options and {"generators": [drawn(b) for b in range(4)]}
    stop, n = [list(b"\n"), list(b"self")], 20 if cache else 8
    batch = complete_batch(model, PROMPTS, n, cache=cache, stop=stop, **options, **drawing)
    for b, (prompt, together) in enumerate(zip(PROMPTS, batch, strict=True)):
        own = options and {"generator": drawn(b)}
        alone = complete(model, prompt, n, stop=stop, **options, **own)
        assert (together.tokens, together.finish_reason) == (alone.tokens, alone.finish_reason)
        assert len(together.times_s) == len(together.tokens)
    assert len({len(r.tokens) for r in batch}) > 1  # they end at different steps


@pytest.mark.parametrize("name", ["mla", "local_global", "cross_layer", "linear", "ssm_attention"])
def test_a_ragged_batch_is_continued_alike_by_every_kind_of_layer(name):
    other = models.load(name)
    batch = complete_batch(other, PROMPTS, 12)
    assert [r.tokens for r in batch] == [complete(other, p, 12).tokens for p in PROMPTS]


def test_a_step_of_a_batch_says_none_for_those_that_have_ended(model):
    free = [complete(model, p, 6).tokens for p in PROMPTS[:2]]
    stop = [free[0][:3]]
    steps = list(generate_batch(model, PROMPTS[:2], 6, stop=stop))
    assert [one for one, _ in steps] == [*free[0][:3], None, None, None]
    assert [other for _, other in steps] == free[1]


def test_the_loop_makes_the_logits_that_it_draws_from_and_no_others(model):
    made = []
    head = model.lm_head.register_forward_hook(lambda *args: made.append(tuple(args[2].shape)))
    V = model.config.V
    complete_batch(model, PROMPTS[:2], 2)
    complete(model, PROMPT, 2, all_logits=True)
    head.remove()
    assert made == [(2, V)] * 2 + [(1, len(PROMPT), V), (1, 1, V)]


def test_a_batch_that_cannot_be_continued_is_refused(model):
    for prompts, more, says in (
        ([], {}, "no prompt"),
        ([[1], []], {}, "prompt is empty"),
        ([[1], [256]], {}, "outside the vocabulary"),
        ([1, 2], {}, "a prompt is a list of tokens, whole numbers; got 1"),
        ([[1.0]], {}, r"whole numbers; got \[1.0\]"),
        (["a"], {}, "whole numbers; got 'a'"),
        ([torch.tensor([1, 2])], {}, "a prompt is a list of tokens"),
        ([[1], [2]], {"generators": [torch.Generator()]}, "2 prompts need as many generators"),
        ([[1], [2]], {"records": [Generation()]}, "2 prompts need as many records"),
    ):
        with pytest.raises(ValueError, match=says):
            generate_batch(model, prompts, 4, **more)
