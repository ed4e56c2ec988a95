"""Whatever happens to it on the way, each request's tokens are those of the naive loop alone.

In fp64: there two orders of the same sum never differ by as much as two logits do.
"""

import random
from dataclasses import replace
from functools import cache

import pytest
import torch

from twophase.kernels.quantization.integers import IntegerFormat
from twophase.measure.events import EventLog
from twophase.models import checkpoints
from twophase.models.compiled.batch_linear import PackedLinear
from twophase.models.compiled.weights import NoKernel
from twophase.models.generate import complete, encode
from twophase.models.quantize import quantize
from twophase.models.quantize.directory import save
from twophase.models.transformer import Transformer
from twophase.serving import (
    LLM,
    DynamicBatching,
    Engine,
    EngineConfig,
    Request,
    SamplingParams,
    ShortestFirst,
    StaticBatching,
    Status,
)
from twophase.serving.block_manager import BlockManager, check_conserved
from twophase.serving.scheduled import Scheduled, SwapOut
from twophase.serving.scheduler import Scheduler

KINDS = ["gqa", "mla", "sliding", "local_global", "cross_layer", "linear", "ssm_attention", "moe"]
# lengths at a block of 4: one token, one less than two blocks, two blocks, one more, many
LENGTHS = (1, 7, 8, 9, 26)
TIGHT = EngineConfig(n_blocks=11, block_size=4, max_seqs=4, max_batched_tokens=11)


@pytest.fixture(scope="module")
def models() -> dict[str, Transformer]:
    return {name: checkpoints.load(name).double() for name in KINDS}


@pytest.fixture(scope="module")
def model(models: dict[str, Transformer]) -> Transformer:
    return models["gqa"]


def prompts(seed: int = 0) -> list[list[int]]:
    rng = random.Random(seed)
    return [[rng.randrange(32, 127) for _ in range(n)] for n in LENGTHS]


def alone(model: Transformer, prompt: list[int], params: SamplingParams) -> list[int]:
    """What the naive loop says."""
    return list(_alone(model, tuple(prompt), params))


@cache
def _alone(model: Transformer, prompt: tuple[int, ...], params: SamplingParams) -> list[int]:
    generator = torch.Generator().manual_seed(params.seed or 0)
    options = {"temperature": params.temperature, "top_k": params.top_k, "top_p": params.top_p}
    n, stop = params.max_tokens, params.stop
    return complete(model, prompt, n, generator=generator, stop=stop, **options).tokens


def served(
    model: Transformer, config: EngineConfig, asked: list[tuple[list[int], SamplingParams]], **more
) -> tuple[list[list[int]], Engine]:
    """All at once."""
    engine = Engine(model, config, **more)
    for prompt, params in asked:
        engine.add(prompt, params)
    requests = engine.run()
    check_conserved(engine.blocks)
    assert engine.blocks.n_free == config.n_blocks
    return [request.tokens for request in requests], engine


def asked_for(lengths: tuple[int, ...] = (14, 1, 9, 16, 8)) -> list:
    return [(p, SamplingParams(max_tokens=n)) for p, n in zip(prompts(), lengths, strict=True)]


@pytest.mark.parametrize("preemption", ["recompute", "swap"])
@pytest.mark.parametrize("name", KINDS)
def test_preempted_requests_say_what_the_naive_loop_says(
    models: dict[str, Transformer], name: str, preemption: str
) -> None:
    model, asked = models[name], asked_for()
    config = EngineConfig(11, 4, 4, 11, preemption=preemption)
    found, engine = served(model, config, asked)
    preemptions = sum(request.preemptions for request in engine.requests.values())
    assert (preemptions > 0) == (name != "linear")  # states take no blocks
    assert found == [alone(model, *one) for one in asked]


@pytest.mark.parametrize("policy", [StaticBatching(), DynamicBatching(0.01), ShortestFirst()])
def test_a_policy_changes_when_and_never_what(model: Transformer, policy: object) -> None:
    asked = asked_for()
    found, _ = served(model, EngineConfig(64, 4, 2, 16), asked, policy=policy)
    assert found == [alone(model, *one) for one in asked]


@pytest.mark.parametrize("chunked", [True, False])
@pytest.mark.parametrize("reserve", [True, False])
def test_chunks_and_reserved_blocks_change_no_token(
    model: Transformer, chunked: bool, reserve: bool
) -> None:
    asked = asked_for()
    config = EngineConfig(40, 4, 4, 5, chunked_prefill=chunked, reserve=reserve)
    found, engine = served(model, config, asked)
    assert found == [alone(model, *one) for one in asked]
    if reserve:
        assert not any(request.preemptions for request in engine.requests.values())


def test_sampled_tokens_are_those_of_the_same_seed_alone(model: Transformer) -> None:
    params = [SamplingParams(12, 0.8, 20, 0.9, seed=seed) for seed in range(5)]
    asked = list(zip(prompts(1), params, strict=True))
    found, _engine = served(model, TIGHT, asked)
    assert found == [alone(model, *one) for one in asked]


def test_an_answer_ends_with_its_stop_sequence(model: Transformer) -> None:
    prompt = prompts()[2]
    free = alone(model, prompt, SamplingParams(max_tokens=20))
    stop = (tuple(free[5:7]),)
    params = SamplingParams(max_tokens=20, stop=stop)
    found, engine = served(model, TIGHT, [(prompt, params)])
    assert found == [alone(model, prompt, params)]
    assert engine.requests[0].finish_reason == "stop"


@pytest.mark.parametrize("shared", [7, 8, 9, 12])
def test_a_shared_prefix_is_read_once_and_changes_no_token(model: Transformer, shared: int) -> None:
    """Also where the whole prompt is known: its last block is read again, for its logits."""
    start = prompts()[4][:shared]
    asked = [(start + [65] * n, SamplingParams(max_tokens=9)) for n in (0, 1, 5)]
    engine = Engine(model, EngineConfig(40, 4, 1, 16, prefix_caching=True))
    for one in asked:
        engine.add(*one)
    found = [request.tokens for request in engine.run()]
    assert found == [alone(model, *one) for one in asked]
    again = engine.add(*asked[0])
    engine.run()
    assert engine.requests[again].tokens == found[0]
    assert engine.requests[again].n_shared == (shared - 1) // 4 * 4
    assert engine.requests[1].n_shared == shared // 4 * 4


@pytest.mark.parametrize("shared", [7, 8, 9])
def test_in_a_tree_a_prefix_is_found_to_its_last_token(model: Transformer, shared: int) -> None:
    """The rest of its last block is copied, and overwritten from there on."""
    start, log = prompts()[4][:shared], EventLog()
    asked = [(start + [65] * n, SamplingParams(max_tokens=9)) for n in (3, 0, 5)]
    config = EngineConfig(40, 4, 1, 16, prefix_caching=True, prefix_index="radix")
    engine = Engine(model, config, log=log)
    for one in asked:
        engine.add(*one)
    found = [request.tokens for request in engine.run()]
    assert found == [alone(model, *one) for one in asked]
    assert [engine.requests[i].n_shared for i in (1, 2)] == [shared - 1, shared + 3]
    assert len(log.select("copy_block")) == ((shared - 1) % 4 > 0) + ((shared + 3) % 4 > 0)
    talk = (*asked[0][0], *found[0])  # the same person goes on
    again = engine.add(talk, SamplingParams(max_tokens=4))
    engine.run()
    assert engine.requests[again].n_shared == len(talk) - 1
    assert engine.requests[again].tokens == alone(model, list(talk), SamplingParams(max_tokens=4))


def test_compaction_moves_what_lies_high_and_changes_no_token(
    models: dict[str, Transformer],
) -> None:
    for name in ("gqa", "mla", "ssm_attention"):
        model, asked, log = models[name], asked_for((14, 3, 20, 3, 18)), EventLog()
        engine = Engine(model, EngineConfig(40, 4, 5, 64), log=log)
        for prompt, params in asked:
            engine.add(prompt, params)
        for _ in range(5):  # two have ended, and left holes
            engine.step()
        held = {block for table in engine.blocks.tables.values() for block in table}
        high = sum(block >= len(held) for block in held)
        assert engine.compact() == high > 0
        assert len(log.select("copy_block")) == high
        assert [request.tokens for request in engine.run()] == [alone(model, *one) for one in asked]
        assert engine.blocks.n_free == 40


@pytest.mark.parametrize("name", ["gqa", "mla", "ssm_attention"])
@pytest.mark.parametrize("n_prompt", [7, 8])
def test_several_answers_share_the_prompt_and_part_by_copy_on_write(
    models: dict[str, Transformer], name: str, n_prompt: int
) -> None:
    model, prompt, log = models[name], prompts()[4][:n_prompt], EventLog()
    engine = Engine(model, EngineConfig(40, 4, 4, 16), log=log)
    engine.add(prompt, SamplingParams(12, 1.0, seed=3, n=3))
    found = [request.tokens for request in engine.run()]
    one = [SamplingParams(12, 1.0, seed=3 + i) for i in range(3)]
    assert found == [alone(model, prompt, params) for params in one]
    read = sum(sum(event["n_new"]) for event in log.select("pass"))
    assert read == n_prompt + 3 * 11  # the prompt once
    assert len(log.select("copy_block")) == (2 if n_prompt % 4 else 0)


@pytest.mark.parametrize("n_prompt", [4, 8, 12])
@pytest.mark.parametrize("n_new", [1, 4, 5])
def test_lengths_that_fill_their_blocks_take_no_block_more(
    model: Transformer, n_prompt: int, n_new: int
) -> None:
    """The last token drawn is never read: an answer of 5 behind 4 fits into two blocks of 4."""
    prompt, params = prompts()[4][:n_prompt], SamplingParams(max_tokens=n_new)
    engine = Engine(model, EngineConfig(-(-(n_prompt + n_new - 1) // 4), 4, 1, 16))
    engine.add(prompt, params)
    engine.run()
    assert engine.requests[0].tokens == alone(model, prompt, params)
    assert not engine.requests[0].preemptions


@pytest.mark.parametrize("index", ["hash", "radix"])
def test_of_a_prompt_that_is_known_whole_a_token_is_read_again(
    model: Transformer, index: str
) -> None:
    prompt, params, log = prompts()[4][:12], SamplingParams(max_tokens=5), EventLog()
    config = EngineConfig(20, 4, 1, 16, prefix_caching=True, prefix_index=index)
    engine = Engine(model, config, log=log)
    first = engine.add(prompt, params)
    engine.run()
    again = engine.add(prompt, params)
    engine.run()
    assert engine.requests[again].tokens == engine.requests[first].tokens
    read = [e["n_new"][0] for e in log.select("pass") if e["requests"] == [again]]
    assert read[0] == (1 if index == "radix" else 4)  # its last block, or its last token


def test_a_prompt_longer_than_the_pool_is_refused_and_the_others_are_served(
    model: Transformer,
) -> None:
    engine = Engine(model, TIGHT)
    asked = asked_for()
    engine.add(*asked[0])
    with pytest.raises(ValueError, match="need 13 blocks, and the pool has 11"):
        engine.add([65] * 50, SamplingParams(max_tokens=1))
    engine.add(*asked[1])
    assert [r.tokens for r in engine.run()] == [alone(model, *one) for one in asked[:2]]


def test_a_fork_of_a_fork_outlives_its_parents(model: Transformer) -> None:
    prompt = prompts()[2]
    engine = Engine(model, EngineConfig(40, 4, 4, 16))
    first = engine.add(prompt, SamplingParams(max_tokens=4))
    engine.step()
    second = engine.fork(first, SamplingParams(max_tokens=9))
    engine.step()
    third = engine.fork(second, SamplingParams(max_tokens=20))
    engine.abort(second)
    engine.run()
    want = alone(model, prompt, SamplingParams(max_tokens=20))
    assert engine.requests[third].tokens == want
    assert engine.requests[first].tokens == want[:4]
    assert engine.blocks.n_free == 40


def test_whoever_leaves_takes_nothing_from_the_others(model: Transformer) -> None:
    """Aborted while it waits, while its prompt is read, and while it decodes; with answers that
    were to part from it."""
    asked = asked_for()
    engine = Engine(model, TIGHT)
    for prompt, params in asked:
        engine.add(prompt, params)
    group = engine.add(prompts()[3], SamplingParams(max_tokens=6, n=3))
    engine.abort(group)  # waits: the second answer reads the prompt
    engine.step()
    engine.abort(3)
    for _ in range(4):
        engine.step()
    engine.abort(0)
    engine.abort(0)
    requests = engine.run()
    for i in (1, 2, 4):
        assert requests[i].tokens == alone(model, *asked[i])
    assert [r.finish_reason for r in requests] == [
        "abort", "length", "length", "abort", "length", "abort", "length", "length",
    ]  # fmt: skip
    assert requests[6].tokens == alone(model, prompts()[3], SamplingParams(max_tokens=6))
    assert requests[6].tokens == requests[7].tokens
    assert engine.blocks.n_free == TIGHT.n_blocks


@pytest.mark.parametrize("name", ["gqa", "ssm_attention"])
@pytest.mark.parametrize("preemption", ["recompute", "swap"])
def test_a_pass_that_is_broken_off_loses_nothing(
    models: dict[str, Transformer], name: str, preemption: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, asked = models[name], asked_for()
    engine = Engine(model, EngineConfig(11, 4, 4, 11, preemption=preemption))
    for prompt, params in asked:
        engine.add(prompt, params)
    last = model.layers[-1]
    whole, calls = last.forward, []

    def sometimes(*inputs: object) -> object:
        calls.append(1)
        if len(calls) % 5 == 3:
            raise KeyboardInterrupt
        return whole(*inputs)

    monkeypatch.setattr(last, "forward", sometimes)
    while engine.busy:
        try:
            engine.step()
        except KeyboardInterrupt:
            check_conserved(engine.blocks)
    monkeypatch.undo()
    assert [engine.requests[i].tokens for i in range(5)] == [alone(model, *one) for one in asked]


def test_bits_do_not_depend_on_company_where_that_is_asked_for() -> None:
    model, asked = checkpoints.load("gqa"), asked_for()
    config = EngineConfig(64, 4, 4, 16, batch_invariant=True)
    rows: dict[str, dict[tuple[int, int], torch.Tensor]] = {"together": {}, "alone": {}}

    def noted(engine: Engine, name: str, first: int) -> None:
        run = engine.runner.run

        def noting(n_new, tables):
            logits = run(n_new, tables)
            for request, row in logits.items():
                rows[name][request.id + first, len(request.tokens)] = row.clone()
            return logits

        engine.runner.run = noting
        engine.run()

    together = Engine(model, config)
    for prompt, params in asked:
        together.add(prompt, params)
    noted(together, "together", 0)
    for i, (prompt, params) in enumerate(asked):
        single = Engine(model, config)
        single.add(prompt, params)
        noted(single, "alone", i)
    assert rows["together"].keys() == rows["alone"].keys()
    assert all(torch.equal(row, rows["alone"][key]) for key, row in rows["together"].items())


def test_a_policy_of_ones_own_is_dropped_in(model: Transformer) -> None:
    class LastComeFirstServed(StaticBatching):
        def order(self, waiting):
            return waiting[::-1]

        def may_admit(self, waiting, running, seats, now_s):
            return True

        def victim(self, running):
            return running[0]

    log, asked = EventLog(), asked_for()
    found, _ = served(
        model, EngineConfig(64, 4, 2, 16), asked, policy=LastComeFirstServed(), log=log
    )
    assert next(event["request"] for event in log.select("admit")) == 4
    assert found == [alone(model, *one) for one in asked]


def test_static_batches_leave_seats_empty_and_continuous_ones_do_not(model: Transformer) -> None:
    passes = {}
    asked = [
        (p, SamplingParams(max_tokens=n)) for p, n in zip(prompts(), (2, 20, 2, 20, 2), strict=True)
    ]
    for policy in (StaticBatching(), None):
        log = EventLog()
        served(model, EngineConfig(64, 4, 2, 64), asked, policy=policy, log=log)
        passes[policy is None] = len(log.select("pass"))
    assert passes[True] < passes[False]


def test_nothing_to_generate_ends_at_once(model: Transformer) -> None:
    engine = Engine(model, TIGHT)
    engine.add([65], SamplingParams(max_tokens=0, n=2))
    assert not engine.busy
    assert [r.status for r in engine.run()] == [Status.FINISHED] * 2


def test_times_are_those_of_the_clock_that_was_given(model: Transformer) -> None:
    now = [10.0]

    def clock() -> float:
        now[0] += 1.0
        return now[0]

    engine = Engine(model, EngineConfig(8, 4, 2, 8), clock=clock)
    engine.add([65], SamplingParams(max_tokens=3), arrival_s=10.0)
    (request,) = engine.run()
    assert request.times_s == [12.0, 14.0, 16.0]
    assert (request.ttft_s, request.latency_s, request.tpot_list_s) == (2.0, 6.0, [2.0, 2.0])


def wrong(model: Transformer, prompt: object = (65,), **params: object) -> None:
    Engine(model, EngineConfig(4, 4, 2, 8)).add(prompt, SamplingParams(**params))


@pytest.mark.parametrize(
    ("deed", "sentence"),
    [
        (lambda m: wrong(m, ()), "the prompt is empty"),
        (lambda m: wrong(m, (65, 300)), "token 300 is outside the vocabulary"),
        (lambda m: wrong(m, "text"), "a prompt is a list of tokens"),
        (lambda m: wrong(m, (65,) * 10, max_tokens=8), "need 5 blocks, and the pool has 4"),
        (lambda m: wrong(m, n=3), "3 answers need as many seats"),
        (lambda m: wrong(m, max_tokens=-1), "max_tokens is a whole number"),
        (lambda m: wrong(m, temperature=-1.0), "temperature"),
        (lambda m: EngineConfig(block_size=0), "block_size is a whole number"),
        (lambda m: EngineConfig(preemption="drop"), "preemption is one of recompute, swap"),
        (lambda m: EngineConfig(max_seqs=8, max_batched_tokens=4), "at least so many; got 4"),
        (lambda m: LLM(m).generate("a text"), "prompts are a list"),
    ],
)
def test_what_cannot_be_served_is_refused_in_a_sentence(
    model: Transformer, deed: object, sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        deed(model)


def test_prefixes_of_states_are_refused(models: dict[str, Transformer]) -> None:
    with pytest.raises(ValueError, match="keep a state, which no block holds"):
        Engine(models["linear"], EngineConfig(prefix_caching=True))


def test_texts_go_in_and_come_out(model: Transformer) -> None:
    answers = LLM("gqa").generate(["def f(", "import "], SamplingParams(max_tokens=8))
    assert [answer.prompt for answer in answers] == ["def f(", "import "]
    for answer in answers:
        assert isinstance(answer.request, Request)
        assert len(answer.request.tokens) <= 8
        assert answer.text.encode() == bytes(answer.request.tokens)


@pytest.mark.parametrize("stop", ["abc", ("abc",), ((),), (10,), (("a",),)])
def test_stops_that_no_token_could_end_are_refused(stop) -> None:
    with pytest.raises(ValueError, match="stop lists sequences of tokens"):
        SamplingParams(stop=stop)
    assert SamplingParams(stop=((10,), b"ab", [1, 2])).stop
    with pytest.raises(ValueError, match="the seed is a whole number"):
        SamplingParams(seed="x")  # type: ignore[arg-type]


class Wrong(ShortestFirst):
    """Decides once what cannot be."""

    def __init__(self, what: str) -> None:
        self.what = what

    def order(self, waiting):
        if self.what == "twice" and len(waiting) < 4:  # some run already
            self.what = "nothing"
            return [*waiting, *waiting]
        return super().order(waiting)

    def victim(self, running):
        if self.what in ("nobody", "raises"):
            was, self.what = self.what, "nothing"
            return {"nobody": None}[was]
        return running[0]


@pytest.mark.parametrize("preemption", ["recompute", "swap"])
@pytest.mark.parametrize("what", ["twice", "nobody", "raises"])
def test_after_a_policy_that_failed_everything_is_said_as_before(
    model: Transformer, what: str, preemption: str
) -> None:
    config = replace(TIGHT, preemption=preemption, prefix_caching=True)
    engine = Engine(model, config, policy=Wrong(what))
    params = SamplingParams(max_tokens=9)
    asked = [engine.add(prompt, params) for prompt in prompts()]
    with pytest.raises((ValueError, KeyError)):
        engine.run()
    assert not engine.runner.slots  # type: ignore[attr-defined]
    check_conserved(engine.blocks)
    engine.run()
    for number, prompt in zip(asked, prompts(), strict=True):
        assert engine.requests[number].tokens == alone(model, prompt, params)


def test_a_swap_puts_aside_what_is_computed_and_no_more() -> None:
    blocks = BlockManager(4, 2)
    scheduler = Scheduler(EngineConfig(4, 2, preemption="swap"), blocks)
    request = Request(0, (1, 2, 3, 4, 5, 6, 7), SamplingParams())
    blocks.allocate(0, 3)
    scheduler.running, request.n_computed, request.status = [request], 3, Status.RUNNING
    blocks.append(0, 3, 4)  # room for tokens that the pass would have read
    made = Scheduled()
    scheduler._preempt(request, made)
    assert made.moves == [SwapOut(request, (0, 1))]


def test_what_was_quantized_is_served(tmp_path) -> None:
    small = quantize(checkpoints.load("draft"), "nearest", IntegerFormat(8, 64, False))
    save(small, tmp_path / "few", {})
    found = LLM(tmp_path / "few", n_blocks=8).generate(["def f("], SamplingParams(max_tokens=6))
    assert found[0].request.tokens == alone(small, list(encode("def f(")), SamplingParams(6))


def test_packed_weights_say_the_same_and_are_there_beside_the_models_own() -> None:
    plain = checkpoints.load("gqa")
    try:
        possible = bool(PackedLinear(plain.lm_head))
    except NoKernel:
        possible = False
    asked = [encode("def f(x):\n"), encode("for i in")]
    said = []
    for pack in (False, True):
        engine = Engine(plain, EngineConfig(pack_weights=pack))
        for prompt in asked:
            engine.add(prompt, SamplingParams(max_tokens=12))
        said.append([request.tokens for request in engine.run()])
        packed = [m for m in engine.runner.model.modules() if isinstance(m, PackedLinear)]
        assert bool(packed) == (pack and possible)
    assert said[0] == said[1]
    assert not any(isinstance(m, PackedLinear) for m in plain.modules())
    with pytest.raises(ValueError, match="batch_invariant keeps the bits"):
        EngineConfig(batch_invariant=True, pack_weights=True)
