"""An answer in another process is judged exactly as the same answer in this one."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from exercise_tools import ALL_IDS, namespace_of, right_answers
from hostile.worker import LIMITS, zygote
from patience import PATIENCE_S

from twophase.checks import registry
from twophase.checks.answer import LocalAnswer, each
from twophase.checks.judge import Bench
from twophase.grading.judge.remote_answer import RemoteAnswer
from twophase.grading.sandbox.session import Session
from twophase.protocol import AnswerError
from twophase.protocol.arguments import lent

SETUP = "import math\nimport numpy as np\nimport torch\n"


@pytest.fixture
def session() -> Iterator[Session]:
    with zygote().fork(LIMITS) as one:
        yield one


def remote(session: Session, source: str) -> RemoteAnswer:
    ran = session.run_cell(source, 20.0)
    assert not ran.error, ran.error
    return RemoteAnswer(session)


@cache
def bench_of(exercise_id: str) -> Bench:
    return Bench(registry.load(exercise_id), 3)


# What crosses: a callback, an object, states of tensors, nested lists, a long log, dicts, large
# integers, tests as data. All other exercises send the like.
SOME = (
    "two_phases-sampler",
    "kv_cache-ragged",
    "arithmetic_intensity-flash",
    "arithmetic_intensity-merge",
    "two_phases-slow_log",
    "latency_throughput-deployment",
    "kv_cache-step_bytes",
    "two_phases-top_p_cases",
)
SOME_NOW = [i if i in SOME else pytest.param(i, marks=pytest.mark.more) for i in ALL_IDS]


def the_first_and_more(exercise_id: str) -> list[Any]:
    """The right answers to an exercise. Each has its verdict here by the kill matrix."""
    first, *others = right_answers(exercise_id)
    late = [pytest.mark.more]
    return [
        pytest.param(exercise_id, first, id=first.stem, marks=[] if exercise_id in SOME else late),
        *(pytest.param(exercise_id, p, id=p.stem, marks=late) for p in others),
    ]


@pytest.mark.parametrize(
    ("exercise_id", "path"), [case for i in ALL_IDS for case in the_first_and_more(i)]
)
def test_a_right_answer_of_the_course_gets_the_same_verdict_over_the_wire(
    exercise_id: str, path: Path
) -> None:
    bench = bench_of(exercise_id)
    with zygote().fork(LIMITS) as session:
        there = bench.judge(remote(session, SETUP + path.read_text(encoding="utf-8")))
    assert there == bench.judge(LocalAnswer(namespace_of(path)))
    assert there.right, there.message


CORE = {
    f"twophase.checks.{name}" for name in ("answer", "compare", "exercise", "judge", "registry")
}
PACKAGES = {"twophase.checks", *(f"twophase.checks.{topic}" for topic in registry.topics())}


RECORDS = """
class Misconceptions(list):
    def __call__(self, *said, **of): return lambda answer: answer
    def add(self, *record): pass
def replaced(right, parts): return right
"""  # what records wrong answers does nothing where they run


def source_of(module: str) -> str:
    """A check's module as a cell: without the exercise, with the source of the helper modules that
    it imports from the checks."""
    parts = []
    for node in ast.parse(inspect.getsource(importlib.import_module(module))).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "EXERCISE":
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("twophase.checks"):
            if node.module == "twophase.checks.misconceptions":
                parts.append(RECORDS)
            elif node.module in PACKAGES:  # `import edges`: all of its names, under that one
                for name in node.names:
                    parts.append(source_of(f"{node.module}.{name.name}"))
                    parts.append(f"{name.name} = type('', (), dict(globals()))")
            elif node.module not in CORE:
                parts.append(source_of(str(node.module)))
        elif not (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            parts.append(ast.unparse(node))
    return "\n".join(parts)


@pytest.mark.parametrize("how_many", [1, pytest.param(100, marks=pytest.mark.more)])
@pytest.mark.parametrize("exercise_id", SOME_NOW)
def test_a_misconception_of_the_course_gets_the_same_verdict_over_the_wire(
    exercise_id: str, how_many: int
) -> None:
    bench = bench_of(exercise_id)
    exercise = bench.exercise
    module = f"twophase.checks.{exercise_id.replace('-', '.')}"
    source = f"from __future__ import annotations\n{source_of(module)}"
    compared = 0
    with zygote().fork(LIMITS) as session:
        apart = f"WRITTEN = {{'__name__': '__main__'}}\nexec({source!r}, WRITTEN)"
        if session.run_cell(apart, 20.0).error:  # apart from the names that are given anew below
            pytest.skip("its wrong answers are made of another module of the checks")
        for wrong in exercise.misconceptions:
            names = exercise.namespace(wrong.answer)
            if not all(
                vars(importlib.import_module(f.__module__)).get(f.__name__) is f
                for f in names.values()
            ):
                continue  # made by a factory or a lambda: no source of its own
            session.run_cell(
                "\n".join(f"{n} = WRITTEN[{f.__name__!r}]" for n, f in names.items()), 20.0
            )
            there, here = bench.judge(RemoteAnswer(session)), bench.judge(LocalAnswer(names))
            assert (there.status, there.misconception, there.points) == (
                here.status,
                here.misconception,
                here.points,
            )
            assert [o.right for o in there.outcomes] == [o.right for o in here.outcomes]
            compared += 1
            if compared == how_many:
                break
    if not compared:
        pytest.skip("none of its wrong answers has a source of its own")


def both(session: Session, source: str, look: Any) -> list[Any]:
    """What `look` sees of the same source here and there: a value, or an error's kind, message and
    class names."""
    names: dict[str, Any] = {}
    exec(source, names)
    seen = []
    for answer in (LocalAnswer(names), remote(session, source)):
        try:
            seen.append(look(answer))
        except AnswerError as e:
            seen.append((e.kind, e.message, e.type_names))
    return seen


def _nested(answer: Any) -> Any:
    log: list[int] = []

    def ask(n: int) -> int:
        log.append(n)
        return 1 if n == 0 else n * int(answer.call("factorial", ask, n - 1))

    return answer.call("factorial", ask, 6), log


def _kept(answer: Any) -> Any:
    engine = answer.new("Engine", lambda tokens: sum(tokens))
    return engine.call("step", [1, 2]), engine.call("step", [5]), engine.get("steps")


COUNTER = """
class Counter:
    def __init__(self): self.n = 0
    def add(self, by, twice=None):
        self.n += by
        return twice(self.n) if twice else [self.n, None]
    def take(self, other): return other.n
    def spoil(self, given): given.append(1)
    def itself(self): return self
"""


def _up_to_the_first_that_raises(answer: Any) -> Any:
    counter = answer.new("Counter")
    with pytest.raises(AnswerError) as caught:
        each(counter, ("add", 1), ("add", "no"), ("add", 5))
    return caught.value.message, caught.value.type_names, counter.get("n")


LOOKS = {
    "several things of one object": (
        COUNTER,
        lambda a: each(a.new("Counter"), ("add", 2), "n", ("add", 3, lambda n: 2 * n), "n"),
    ),
    "several, one of them with another object": (
        COUNTER,
        lambda a: each(a.new("Counter"), "n", ("take", a.new("Counter"))),
    ),
    "several, of which one raises": (COUNTER, _up_to_the_first_that_raises),
    "several, of which one is missing": (COUNTER, lambda a: each(a.new("Counter"), "n", ("go",))),
    "several, of which one changes what it is given": (
        COUNTER,
        lambda a: each(a.new("Counter"), ("spoil", [0]), "n"),
    ),
    "several, of which one is no plain data": (
        COUNTER,
        lambda a: each(a.new("Counter"), "n", ("itself",)),
    ),
    "several, of which nothing is wanted of one": (
        COUNTER,
        lambda a: each(a.new("Counter"), ["itself"], ["add", 3], "n"),
    ),
    "several, of which one of those raises": (
        COUNTER,
        lambda a: each(a.new("Counter"), ["add", "no"], "n"),
    ),
    "nothing of an object": (COUNTER, lambda a: each(a.new("Counter"))),
    "a value": ("def f(x): return {'a': [x, (1.5, None)], 'b': b'x'}", lambda a: a.call("f", 3)),
    "a keyword": ("def f(*a, **k): return [a, k]", lambda a: a.call("f", 1, b=[2], c=(3,))),
    "a name that is missing": ("", lambda a: a.call("f")),
    "a name that is no function": ("f = 3", lambda a: a.call("f")),
    "an exception": ("def f(): raise FileNotFoundError(2, 'gone')", lambda a: a.call("f")),
    "a class of its own": (
        "class Odd(KeyError): pass\ndef f(): raise Odd('k')",
        lambda a: a.call("f"),
    ),
    "a stub": (
        "class NotYet(Exception): pass\ndef f(): raise NotYet('kv_cache-x')",
        lambda a: a.call("f"),
    ),
    "an exit": ("import sys\ndef f(): sys.exit(3)", lambda a: a.call("f")),
    "an object": ("def f(): return object()", lambda a: a.call("f")),
    "a nest at the limit": ("def f(x): return x", lambda a: a.call("f", [[[[[[[[[[1]]]]]]]]]])),
    "a nest beyond it": (
        "def f():\n    x = 1\n    for _ in range(33): x = [x]\n    return x",
        lambda a: a.call("f"),
    ),
    "calls within callbacks": ("def factorial(ask, n): return ask(n)", _nested),
    "a callback kept by an object": (
        (
            "class Engine:\n    def __init__(self, model): self.model, self.steps = model, 0\n"
            "    def step(self, t):\n        self.steps += 1\n        return self.model(t)"
        ),
        _kept,
    ),
    "callbacks in a list and a dict": (
        "def f(fs, d): return [g(1) for g in fs] + [d['h'](2)]",
        lambda a: a.call("f", [lambda x: x, lambda x: -x], {"h": lambda x: x * 9}),
    ),
    "a handle as an argument": (
        "class C:\n    n = 4\ndef f(c): return c.n",
        lambda a: a.call("f", a.new("C")),
    ),
    "a callback that raises": (
        "def f(g):\n    try: g()\n    except ZeroDivisionError as e: return str(e)",
        lambda a: a.call("f", lambda: 1 // 0),
    ),
    "a callback's exception that passes": (
        "def f(g): return g()",
        lambda a: a.call("f", lambda: [].index(3)),
    ),
    "a callback given an object": (
        "def f(g): return g(object())",
        lambda a: a.call("f", lambda x: x),
    ),
    "a named tuple": (
        "from collections import namedtuple\nP = namedtuple('P', 'a b')\ndef f(): return P(1, 'x')",
        lambda a: a.call("f"),
    ),
    "a named tuple given to a callback": (
        "from collections import namedtuple\nP = namedtuple('P', 'a b')\n"
        "def f(g): return g(P(1, 2))",
        lambda a: a.call("f", lambda pair: [type(pair).__name__, pair]),
    ),
    "a fraction": (
        "from fractions import Fraction\ndef f(): return Fraction(1, 2)",
        lambda a: a.call("f"),
    ),
    "a method that is missing": ("class C: pass", lambda a: a.new("C").call("go")),
    "an attribute that is missing": ("class C: pass", lambda a: a.new("C").get("n")),
    "a property that raises": (
        "class C:\n    @property\n    def n(self): raise ValueError('no')",
        lambda a: a.new("C").get("n"),
    ),
    "a constructor that raises": (
        "class C:\n    def __init__(self, n): raise ValueError(n)",
        lambda a: a.new("C", "no"),
    ),
}


@pytest.mark.parametrize("name", LOOKS)
def test_here_and_there_look_the_same(session: Session, name: str) -> None:
    source, look = LOOKS[name]
    here, there = both(session, source, look)
    assert here == there
    assert session.broken is None


def test_an_answer_there_may_not_change_what_a_function_of_ours_only_lent(session: Session) -> None:
    source = "def f(read): return read().pop()"
    assert both(session, source, lambda a: a.call("f", lambda: [1, 2])) == [2, 2]
    here, there = both(session, source, lambda a: a.call("f", lent(lambda: [1, 2])))
    assert here == there
    assert "changed what read returned" in str(there)


def test_an_answer_cannot_change_an_argument_on_our_side(session: Session) -> None:
    mine = [1, 2]
    with pytest.raises(AnswerError, match="f changed its argument x: "):
        remote(session, "def f(x):\n    x.append(3)\n    return x").call("f", mine)
    assert mine == [1, 2]


def test_callbacks_count_against_the_deadline(session: Session) -> None:
    answer = remote(session, "def f(g):\n    while True: g()")
    answer.start_case(0.2)
    with pytest.raises(AnswerError, match=r"f took longer than 0\.2 s") as caught:
        answer.call("f", lambda: None)
    assert caught.value.kind == "timeout"


def test_an_answer_that_used_up_all_cases_time_is_told_so_and_not_that_a_case_took_it(
    session: Session,
) -> None:
    answer = remote(session, "def f():\n    while True: pass")
    answer.start_exercise(0.2)
    answer.start_case(10)
    with pytest.raises(AnswerError, match=r"f took longer than was left of 0\.2 s for all cases"):
        answer.call("f")


def test_a_function_of_an_earlier_case_that_is_kept_and_called_is_told_so(
    session: Session,
) -> None:
    answer = remote(session, "KEPT = []\ndef f(g):\n    KEPT.append(g)\n    return KEPT[0]()")
    answer.start_case(PATIENCE_S)
    assert answer.call("f", lambda: 1) == 1
    answer.start_case(PATIENCE_S)
    with pytest.raises(AnswerError, match="a function that it was not given in this case"):
        answer.call("f", lambda: 2)


def test_after_a_time_out_nothing_more_is_asked_of_that_process(session: Session) -> None:
    answer = remote(session, "def f():\n    while True: pass\ndef g(): return 1")
    answer.start_case(0.2)
    with pytest.raises(AnswerError):
        answer.call("f")
    with pytest.raises(AnswerError) as caught:
        answer.call("g")
    assert caught.value.kind == "timeout"


FORGED = """
import os, struct, twophase.protocol.wire as w
from twophase.protocol import encode, ObjectRef
fd = [int(n) for n in os.listdir('/proc/self/fd') if 63 < int(n) < 256][0]
import gc
worker = [o for o in gc.get_objects() if type(o).__name__ == 'Worker'][0]
def say(kind, body, conversation=None):
    n = worker._open[-1] if conversation is None else conversation
    os.write(fd, w.HEAD.pack(len(body), kind, n) + body)
def f(): {}
"""


@pytest.mark.parametrize(
    "attack",
    [
        "say(w.VALUE, b'')",
        "say(w.VALUE, encode(ObjectRef(1)))",
        "say(w.VALUE, encode(1), 12345)",
        "say(w.OBJECT, encode(1))",
        "say(w.RAN, encode(1))",
        "say(b'?', encode(1))",
        "say(w.ERROR, encode(1))",
        "say(w.ERROR, w.pack_error('internal', 'the grader failed', ()))",
        "say(w.ERROR, w.pack_error('timeout', 'the grader failed', ()))",
        "say(w.CALLBACK, w.pack_call(99, [], {}))",
        "say(w.CALLBACK, w.pack_call('__import__', [], {}))",
        "say(w.CALLBACK, b'junk')",
        "os.write(fd, struct.pack('>I', 2**32 - 1) + bytes(100))",
        "import random; os.write(fd, random.Random(0).randbytes(1000))",
    ],
)
def test_whatever_a_worker_says_out_of_turn_is_a_protocol_error(
    session: Session, attack: str
) -> None:
    answer = remote(session, FORGED.format(attack))
    answer.start_case(2.0)
    with pytest.raises(AnswerError) as caught:
        answer.call("f")
    assert caught.value.kind == "protocol"
    assert session.broken is not None


REPORT = {"error": "", "types": (), "output": "", "checked": ()}


@pytest.mark.parametrize(
    "report",
    [
        "(1, 2)",
        "'ok'",
        "{}",
        f"{REPORT | {'error': 1}}",
        f"{REPORT | {'types': ('a', 1)}}",
        f"{REPORT | {'checked': ['a-b']}}",
        f"{REPORT | {'types': 3}}",
    ],
)
def test_a_report_of_a_cell_that_is_none_is_called_so(session: Session, report: str) -> None:
    forged = FORGED.format(f"say(w.RAN, encode({report}))") + "f()\nimport time; time.sleep(9)"
    with pytest.raises(AnswerError, match="nonsense: a cell's report has another shape than it"):
        session.run_cell(forged, PATIENCE_S)


@pytest.mark.parametrize(
    "frames",
    [
        "[]",
        "[encode(1)]",
        "[encode(1)] * 3",
        "(encode(1), encode(2))",
        "[encode(1), 2]",
        "[encode(1), b'junk']",
        "[encode(1), encode(ObjectRef(1))]",
    ],
)
def test_several_answers_that_are_not_a_frame_for_each_are_a_protocol_error(
    session: Session, frames: str
) -> None:
    forged = FORGED.replace("def f(): {}", "class C:\n    def f(self): {}")
    handle = remote(session, forged.format(f"say(w.VALUE, encode({frames}))")).new("C")
    with pytest.raises(AnswerError) as caught:
        each(handle, ("f",), ("f",))
    assert caught.value.kind == "protocol"
    assert session.broken is not None


def test_several_that_take_too_long_are_a_time_out_of_all_of_them(session: Session) -> None:
    answer = remote(session, "class C:\n    n = 1\n    def f(self):\n        while True: pass")
    handle = answer.new("C")
    answer.start_case(0.2)
    with pytest.raises(AnswerError, match=r"n and f took longer than 0\.2 s"):
        each(handle, "n", ("f",))


def test_a_value_sent_ahead_of_time_is_no_more_than_a_value(session: Session) -> None:
    answer = remote(session, FORGED.format("say(w.VALUE, encode(41))"))
    assert answer.call("f") == 41
    with pytest.raises(AnswerError) as caught:
        answer.call("f")
    assert caught.value.kind == "protocol"
