"""The worker has neither the checks nor the library, by whatever road they are looked for."""

from __future__ import annotations

import ast
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from hostile.worker import LIMITS, output, zygote

from twophase.checks import registry
from twophase.grading.sandbox import landlock
from twophase.grading.sandbox.session import Session

PACKAGE = Path(registry.__file__).parents[1]


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with zygote().fork(LIMITS) as one:
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
        "import importlib, twophase.theory.kv_cache as m; importlib.reload(m).max_batch()",
        "from twophase.theory.catalog import HARDWARE; HARDWARE['h100']",
        "from twophase.theory.catalog import HARDWARE; [h for h in HARDWARE]",
        "from twophase.models.transformer import Transformer\nclass Mine(Transformer): pass",
        "from twophase import models; models.load('gqa')",
        "from twophase.theory.architecture import Architecture; isinstance(3, Architecture)",
        "from twophase.theory.kv_cache import BYTES; 2 * BYTES",
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


def test_the_error_is_one_sentence_that_says_why(session: Session) -> None:
    ran = session.run_cell(
        "from twophase.theory.kv_cache import max_batch; max_batch(1, 1, 1, 1)", 20.0
    )
    assert (
        ran.error
        == "Withheld: twophase.theory.kv_cache.max_batch is not available here: where an answer is"
        " graded there is nothing of the course's library; write that part yourself."
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


def names_of_the_library() -> list[tuple[str, str]]:
    """Module and name of all that the package defines at the top of a module, private names too."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        if parts[1] not in ("lab", "protocol", "checks", "grading", "cli", "__main__"):
            module = ".".join(parts).removesuffix(".__init__")
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                is_one = isinstance(node, ast.FunctionDef | ast.ClassDef)
                if is_one and not node.name.startswith("__"):
                    found.append((module, node.name))
    return found


def test_every_name_of_the_library_says_that_it_is_not_there(session: Session) -> None:
    names = names_of_the_library()
    assert len(names) > 1_500
    source = (
        "import importlib\n"
        "there = []\n"
        f"for module, name in {names!r}:\n"
        "    try:\n"
        "        getattr(importlib.import_module(module), name)()\n"
        "    except ImportError as e:\n"
        "        if f'{module}.{name} is not available here' not in str(e): there.append(name)\n"
        "    else:\n"
        "        there.append(name)\n"
        "print(there)"
    )
    assert output(session, source) == "[]"


def test_to_import_a_name_or_to_write_it_in_an_annotation_is_no_error(session: Session) -> None:
    source = (
        "from twophase.models.transformer import Config, Transformer\n"
        "from twophase import models, kernels\n"
        "import twophase.theory.kv_cache as kv\n"
        "def f(x: Config | None, y: 'Transformer', z: list[Config] | None = None) -> kv.Budget:\n"
        "    return 3\n"
        "print(f(1, 2))"
    )
    assert output(session, source) == "3"


def test_a_computation_of_ones_own_works(session: Session) -> None:
    source = "import torch; print(torch.ones(2, 2).matmul(torch.ones(2, 2)).sum().item())"
    assert output(session, source) == "8.0"


def test_what_the_notebook_imports_for_practice_does_nothing(session: Session) -> None:
    source = (
        "from twophase.lab import NotYet, check, hint, solution, progress\nprint(check('x'),"
        " hint('x'), solution('x'), progress())"
    )
    assert output(session, source) == (
        "Right. 1 of 1 point, if the grader agrees Not shown: this notebook is being graded"
        " # Not shown where a notebook is graded.\n Not shown: this notebook is being graded"
    )
    assert output(session, "print(f\"{check('x') + check('x'):.1f}\")") == "2.0"


@pytest.mark.parametrize(
    "forgets",
    [
        "for m in [m for m in sys.modules if m.startswith('twophase.lab')]: del sys.modules[m]",
        "import importlib, twophase.lab; importlib.reload(twophase.lab)",
        "import twophase.lab; twophase.lab.CALLED = {}",
    ],
)
def test_a_notebook_may_forget_the_lab_and_import_it_again(forgets: str) -> None:
    with zygote().fork(LIMITS) as one:
        source = f"import sys\n{forgets}\nfrom twophase.lab import NotYet, check, timed"
        assert one.run_cell(source, 60.0).error == ""
        ran = one.run_cell("print(check('x') + 1)", 60.0)
        assert (ran.error, ran.output) == ("", "2.0\n")


def test_nothing_is_in_the_workers_memory_but_what_runs_it() -> None:
    source = """
import gc
gc.unfreeze()
things = gc.get_objects()
modules = {str(type(o).__module__) for o in things}
modules |= {str(vars(o).get('__module__')) for o in things if isinstance(o, type)}
modules |= {str(o.__module__) for o in things if type(o).__name__ == 'function'}
print(*sorted({'.'.join(m.split('.')[:3]) for m in modules if m.startswith('twophase.')}))
"""
    with zygote().fork(LIMITS) as one:
        rooms = output(one, source).splitlines()[-1].split()  # behind warnings
    kept = ("twophase.lab", "twophase.protocol", "twophase.grading.sandbox")
    others = [r for r in rooms if not r.startswith(kept)]
    assert set(others) <= {"twophase.grading.files", "twophase.grading.errors"}, others


def test_the_worker_has_no_descriptor_but_its_own_and_no_secret_in_its_environment() -> None:
    os.environ["SECRET_TOKEN"] = "hunter2"
    try:
        with zygote().fork(LIMITS) as one:
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


@needs_landlock
@pytest.mark.parametrize(
    "source",
    [
        f"open({str(PACKAGE / 'checks/kv_cache/max_batch.py')!r})",
        f"open({str(PACKAGE / 'theory/kv_cache.py')!r})",
        "import sys; sys.meta_path[:] = [f for f in sys.meta_path if type(f).__name__ != 'Finder'];"
        " import twophase.checks.registry",
        "import sys; sys.meta_path[:] = [f for f in sys.meta_path if type(f).__name__ != 'Finder'];"
        " import twophase.theory.kv_cache",
        f"import os; os.listdir({str(PACKAGE.parents[1] / 'solutions')!r})",
        "import os; os.listdir('/tmp')",
        "open('/tmp/left_behind', 'w')",
        "open('../left_behind', 'w').close(); open('/usr/left_behind', 'w')",
        "import os; os.open('/', os.O_TMPFILE | os.O_RDWR)",
        "import os; print(open(f'/proc/{os.getppid()}/environ').read())",
    ],
)
def test_no_file_can_be_reached_that_is_none_of_a_submissions_business(source: str) -> None:
    with zygote().fork(LIMITS) as one:
        ran = one.run_cell(source, 20.0)
    # An import finds nothing where it may not look, if it has not looked there before.
    assert {"OSError", "ModuleNotFoundError"} & set(ran.types), ran


@pytest.mark.skipif(landlock.abi() < 6, reason="this kernel cannot close signals and TCP")
def test_no_signal_and_no_connection_leaves_the_worker() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, zygote().fork(LIMITS) as one:
        assert "PermissionError" in one.run_cell("import os; os.kill(os.getppid(), 0)", 20.0).types
        connect = (
            f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 5)"
        )
        assert "PermissionError" in one.run_cell(connect, 20.0).types


def test_a_submission_may_use_its_libraries_and_write_into_memory() -> None:
    with zygote().fork(LIMITS) as session:
        assert output(session, "import wave, sympy; print(sympy.Integer(2) ** 3)") == "8"
        save = (
            "import io, torch; f = io.BytesIO(); torch.save(torch.ones(2), f); f.seek(0);"
            " print(torch.load(f).sum().item())"
        )
        assert output(session, save) == "2.0"


def test_limits_hold_in_the_worker() -> None:
    with zygote().fork(LIMITS) as one:
        assert "MemoryError" in one.run_cell("x = bytearray(2 * 10**9)", 20.0).types
        assert "OSError" in one.run_cell("open('big', 'wb').write(bytes(2 * 2**20))", 20.0).types
        assert (
            "OSError" in one.run_cell("files = [open('/dev/null') for _ in range(300)]", 20.0).types
        )
