"""The worker has neither the checks nor the withheld functions, by whatever road they are looked
for."""

from __future__ import annotations

import importlib
import os
import pkgutil
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hostile.worker import LIMITS, output, zygote

import twophase.kernels
from twophase.checks import registry
from twophase.grading.release import release
from twophase.grading.sandbox import landlock
from twophase.grading.sandbox.session import Session
from twophase.grading.sandbox.zygote_handle import Zygote

FUNCTION, CLASS = (
    "twophase.kernels.online_softmax.online_softmax",
    "twophase.kernels.kv_cache.KVCache",
)
FORMULA = "twophase.theory.kv_cache.max_batch"


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with zygote().fork((FUNCTION, CLASS, FORMULA), LIMITS) as one:
        yield one


@pytest.mark.parametrize(
    "source",
    [
        "import twophase.checks",
        "import twophase.checks.kv_cache.max_batch",
        "from twophase import checks",
        "from twophase import grading",
        "from twophase.grading.sandbox import worker",
        "import importlib; importlib.import_module('twophase.checks.registry')",
        "import importlib.util; importlib.util.find_spec('twophase.checks')",
        "import twophase.cli",
        "import transformers",
        "from transformers.models.llama.modeling_llama import apply_rotary_pos_emb",
        "from gguf.quants import dequantize",
        "from twophase.lab.checking import check_answer; check_answer('kv_cache-max_batch')",
        "import sys; [sys.modules[n] for n in list(sys.modules) if 'twophase.checks' in n][0]",
        "import twophase.kernels.online_softmax as m; m.online_softmax(None)",
        "from twophase.kernels.kv_cache import KVCache; KVCache(1, 1, 1, 1)",
        "from twophase.kernels.kv_cache import KVCache; KVCache.write(object(), None, None, None)",
        "from twophase.theory.kv_cache import max_batch; max_batch(100, 40, 2, 10)",
        "from twophase.theory.kv_cache import max_batch; max_batch.__wrapped__(100, 40, 2, 10)",
        "import importlib, twophase.theory.kv_cache as m; importlib.reload(m)",
        "import sys; del sys.modules['twophase.theory.kv_cache']; import twophase.theory.kv_cache",
    ],
)
def test_this_road_ends_in_an_error(session: Session, source: str) -> None:
    ran = session.run_cell(source, 20.0)
    assert {
        "ImportError",
        "ModuleNotFoundError",
        "AttributeError",
        "IndexError",
        "PermissionError",
    } & set(ran.types), ran
    session.run_cell(
        "import sys, twophase.theory as t; sys.modules.setdefault('twophase.theory.kv_cache',"
        " t.kv_cache)",
        5.0,
    )


def test_the_error_is_one_sentence_that_says_why(session: Session) -> None:
    ran = session.run_cell(
        "from twophase.theory.kv_cache import max_batch; max_batch(1, 1, 1, 1)", 20.0
    )
    assert (
        ran.error
        == f"Withheld: {FORMULA} is not available here: it is the answer to an exercise of this"
        " notebook."
    )
    ran = session.run_cell("import twophase.checks", 20.0)
    assert (
        ran.error
        == "Withheld: twophase.checks is not available here: the official grader keeps it in"
        " another process."
    )
    ran = session.run_cell("import transformers", 20.0)
    assert (
        ran.error
        == "Withheld: transformers is not available here: it has answers to exercises of this"
        " course."
    )


def test_a_method_of_a_withheld_class_says_why(session: Session) -> None:
    for asked in ("KVCache(1, 1, 1, 1)", "KVCache.of", "KVCache.write"):
        ran = session.run_cell(f"from twophase.kernels.kv_cache import KVCache; {asked}", 20.0)
        assert f"{CLASS} is not available here: it is the answer" in ran.error


def test_what_is_not_withheld_works(session: Session) -> None:
    assert (
        output(
            session,
            "from twophase.theory.kv_cache import kv_bytes_per_token as f; print(f(2, 3, 4))",
        )
        == "96"
    )
    assert (
        output(
            session, "import torch; print(torch.ones(2, 2).matmul(torch.ones(2, 2)).sum().item())"
        )
        == "8.0"
    )


def test_what_the_notebook_imports_for_practice_does_nothing(session: Session) -> None:
    source = (
        "from twophase.lab import NotYet, check, hint, solution, progress\nprint(check('x'),"
        " hint('x'), solution('x'), progress())"
    )
    assert output(session, source) == "None None None None"


def test_no_exercise_and_no_case_is_in_the_workers_memory(session: Session) -> None:
    source = """
import gc
gc.unfreeze()
modules = {str(type(o).__module__) for o in gc.get_objects()}
print(sorted(m for m in modules if m.startswith(('twophase.checks', 'twophase.cli'))))
"""
    assert output(session, source) == "[]"


def test_the_worker_has_no_descriptor_but_its_own_and_no_secret_in_its_environment() -> None:
    os.environ["SECRET_TOKEN"] = "hunter2"
    try:
        with zygote().fork((), LIMITS) as one:
            fds = output(
                one, "import os; print(sorted(int(n) for n in os.listdir('/proc/self/fd'))[:-1])"
            )
            assert len(eval(fds)) == 4  # 0, 1, 2 lead nowhere; one is the channel
            assert output(
                one, "print([os.readlink(f'/proc/self/fd/{n}') for n in range(3)])"
            ) == str(["/dev/null"] * 3)
            assert (
                output(one, "print(os.environ.get('SECRET_TOKEN'), os.listdir('.'))") == "None []"
            )
            kept = "print(os.environ.get('XDG_CACHE_HOME'), __import__('sys').dont_write_bytecode)"
            assert output(one, kept) == "None True"
            assert output(one, "print(os.getpgrp() == os.getpid() == os.getsid(0))") == "True"
    finally:
        del os.environ["SECRET_TOKEN"]


needs_landlock = pytest.mark.skipif(landlock.abi() == 0, reason="this kernel has no Landlock")
PACKAGE = Path(registry.__file__).parents[1]


@needs_landlock
@pytest.mark.parametrize(
    "source",
    [
        f"open({str(PACKAGE / 'checks/kv_cache/max_batch.py')!r})",
        f"open({str(PACKAGE / 'theory/kv_cache.py')!r})",
        "import sys; sys.meta_path[:] = [f for f in sys.meta_path if type(f).__name__ != 'Refuse'];"
        " import twophase.checks.registry",
        "import inspect, twophase.theory.kv_cache as m; inspect.getsource(m)",
        f"import os; os.listdir({str(PACKAGE.parents[1] / 'solutions')!r})",
        "import os; os.listdir('/tmp')",
        "open('/tmp/left_behind', 'w')",
        "open('../left_behind', 'w').close(); open('/usr/left_behind', 'w')",
        "import os; os.open('/', os.O_TMPFILE | os.O_RDWR)",
        "import os; print(open(f'/proc/{os.getppid()}/environ').read())",
    ],
)
def test_no_file_can_be_reached_that_is_none_of_a_submissions_business(source: str) -> None:
    with zygote().fork((), LIMITS) as one:
        ran = one.run_cell(source, 20.0)
    # An import finds nothing where it may not look, if it has not looked there before.
    assert {"OSError", "ModuleNotFoundError"} & set(ran.types), ran


@pytest.mark.skipif(landlock.abi() < 6, reason="this kernel cannot close signals and TCP")
def test_no_signal_and_no_connection_leaves_the_worker() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, zygote().fork((), LIMITS) as one:
        assert "PermissionError" in one.run_cell("import os; os.kill(os.getppid(), 0)", 20.0).types
        connect = (
            f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 5)"
        )
        assert "PermissionError" in one.run_cell(connect, 20.0).types


def test_a_submission_may_use_its_libraries_and_write_into_memory() -> None:
    with zygote().fork((), LIMITS) as session:
        assert output(session, "import wave, sympy; print(sympy.Integer(2) ** 3)") == "8"
        save = (
            "import io, torch; f = io.BytesIO(); torch.save(torch.ones(2), f); f.seek(0);"
            " print(torch.load(f).sum().item())"
        )
        assert output(session, save) == "2.0"


def test_limits_hold_in_the_worker() -> None:
    with zygote().fork((), LIMITS) as one:
        assert "MemoryError" in one.run_cell("x = bytearray(2 * 10**9)", 20.0).types
        assert "OSError" in one.run_cell("open('big', 'wb').write(bytes(2 * 2**20))", 20.0).types
        assert (
            "OSError" in one.run_cell("files = [open('/dev/null') for _ in range(300)]", 20.0).types
        )


@pytest.mark.parametrize("topic", registry.topics())
def test_every_withheld_name_of_a_topic_is_emptied(topic: str) -> None:
    names = release.Source().load(topic).withholds
    assert {n for e in registry.load_topic(topic) for n in e.withholds} < set(names)
    with zygote().fork(names, LIMITS) as one:
        for name in names:
            module, _, attribute = name.rpartition(".")
            ran = one.run_cell(f"import inspect\nfrom {module} import {attribute} as f\nf()", 20.0)
            assert "Withheld" in ran.types, (name, ran)


def withheld_of(session: Session, names: list[str]) -> set[str]:
    """Which of these names are withheld in this process."""
    ran = session.run_cell(
        "import importlib\n"
        "def taken(dotted):\n"
        "    module, _, name = dotted.rpartition('.')\n"
        "    try:\n"
        "        getattr(importlib.import_module(module), name)()\n"
        "    except Exception as e:\n"
        "        return type(e).__name__ == 'Withheld'\n"
        f"print('withheld', *[n for n in {names!r} if taken(n)])",
        20.0,
    )
    assert not ran.error, ran
    return set(ran.output.rpartition("withheld")[2].split())


def test_a_process_lacks_its_own_topics_names_and_no_others_whatever_ran_before_it() -> None:
    """From one zygote, in turns; after the death of its process; beside another process; and if a
    process that has lost one topic's names is by mistake asked for another's."""
    topics = ("kv_cache", "sharding", "quantization")
    withheld = {t: release.Source().load(t).withholds for t in topics} | {"none": ()}
    names = sorted({n for some in withheld.values() for n in some})
    with Zygote() as own:
        for topic in ("sharding", "kv_cache", "none", "sharding", "quantization", "kv_cache"):
            with own.fork(withheld[topic], LIMITS) as one:
                assert withheld_of(one, names) == set(withheld[topic]), topic
                with own.fork(withheld[topic], LIMITS, beside=True) as two:
                    assert withheld_of(two, names) == set(withheld[topic]), topic
        os.kill(own.pid, signal.SIGKILL)
        for topic in ("kv_cache", "sharding"):
            with own.fork(withheld[topic], LIMITS) as one:
                assert withheld_of(one, names) == set(withheld[topic]), topic
        own._withheld = tuple(withheld["quantization"])
        with own.fork(withheld["quantization"], LIMITS) as one:
            assert withheld_of(one, names) == set(withheld["quantization"])


def test_formulas_of_the_topic_put_together_are_no_answer() -> None:
    """Divide the FLOPs by the bytes, or the sum of steps with the rest set to nothing: the whole
    theory module is withheld."""
    for topic, source in (
        ("arithmetic_intensity", "t.matmul_flops(1, 2, 3) / t.matmul_bytes(1, 2, 3, 2, 2)"),
        ("latency_throughput", "t.step_time_split_s(1e9, 2, 3e4, 1e-30, 1e12, 1e30, 1)"),
        ("two_phases", "t.cached_generation_flops(3, 2, 100, 1e-30, 1e-30, 1e-30)"),
    ):
        with zygote().fork(release.Source().load(topic).withholds, LIMITS) as one:
            ran = one.run_cell(f"from twophase.theory import {topic} as t\n{source}", 20.0)
            assert "Withheld" in ran.types, (topic, ran)


def machine_code() -> dict[str, Any]:
    """Every function of the package that Numba compiles, by dotted name, as Python functions."""
    found = {}
    for name, module in kernels():
        for attribute, value in vars(module).items():
            text = getattr(getattr(value, "serial", value), "py_func", None)
            if text is not None and text.__module__ == name:
                found[f"{name}.{attribute}"] = text
    return found


def kernels() -> list[tuple[str, ModuleType]]:
    found = pkgutil.walk_packages(twophase.kernels.__path__, "twophase.kernels.")
    return [(m.name, importlib.import_module(m.name)) for m in found]


@pytest.mark.parametrize("topic", registry.topics())
def test_a_compiled_function_that_calls_a_withheld_one_is_withheld_too(topic: str) -> None:
    """Machine code on disk has all that it calls inside: emptying that takes nothing out of it."""
    withheld, compiled = set(release.Source().load(topic).withholds), machine_code()
    modules = dict(kernels())
    known = {id(getattr(modules[n.rpartition(".")[0]], n.rpartition(".")[2])): n for n in compiled}
    for name in compiled.keys() - withheld:
        names = vars(modules[name.rpartition(".")[0]])
        called = {known.get(id(names.get(n))) for n in compiled[name].__code__.co_names}
        assert not called & withheld, f"{name} calls {called & withheld}"
