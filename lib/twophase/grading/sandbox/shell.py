"""The shell that a submission's cells run in: IPython, without a kernel. A line for the system's
shell starts no program, and plain Python is not searched for magics."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

# magics that ipykernel has and IPython's shell has not: nothing that an answer needs
ONLY_IN_A_KERNEL = (
    *("autosave", "clear", "connect_info", "less", "man", "more", "qtconsole", "store"),
    "subshell",
)


def make_shell() -> Any:
    """IPython without a kernel, a history or a face."""
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    config = Config()
    config.HistoryManager.enabled = False
    config.HistoryManager.hist_file = ":memory:"
    config.InteractiveShell.colors = "NoColor"
    config.InteractiveShell.xmode = "Minimal"
    config.InteractiveShell.enable_tip = False
    # by this name notebooks know that they are one
    kind: Any = type("ZMQInteractiveShell", (InteractiveShell,), {})
    shell = kind.instance(config=config)
    shell.db = {}  # of %cd and %bookmark, in memory: there is no folder to write it to
    shell.ask_exit = lambda: None
    # %matplotlib asks for one, and must not cost its cell's answer
    shell.enable_gui = lambda gui=None: None
    # the exception is in the result; drawing it costs 50 ms
    shell.showtraceback = lambda *args, **kwargs: None
    shell.showsyntaxerror = lambda *args, **kwargs: None
    _start_no_program(shell)
    _leave_plain_python(shell)
    # what is imported and made when it is first used is there before the fork
    shell.display_formatter.format(None)
    shell.run_cell("None", store_history=False, silent=True)
    return shell


def _start_no_program(shell: Any) -> None:
    """`!ls`, `x = !ls`, `%pip install x` and `%conda install x` start nothing and say so. The cell
    goes on, as in a notebook, where a program that fails is no exception either."""
    from IPython.utils.text import SList

    def system(command: str) -> None:
        print(f"No program is started here; this was left out: {command[:200]}")

    def getoutput(command: str, split: bool = True, depth: int = 0) -> Any:
        system(command)
        return SList() if split else ""

    def installer(name: str) -> Callable[[str], None]:
        return lambda line: system(f"{name} {line}")

    shell.system, shell.getoutput = system, getoutput
    for name in ("conda", "mamba", "micromamba", "uv"):  # they look for their programs first
        shell.register_magic_function(installer(name), "line", name)
    for name in ONLY_IN_A_KERNEL:
        shell.register_magic_function(lambda line: None, "line", name)


def _leave_plain_python(shell: Any) -> None:
    """Let the shell look for magics only in what is no Python: its search is slower than most cells
    that students write. Python is parsed once."""
    transform = shell.transform_cell
    manager = shell.input_transformer_manager
    lists = (
        manager.cleanup_transforms,
        manager.line_transforms,
        manager.token_transformers,
        shell.input_transformers_post,
    )
    ours = [len(found) for found in lists]

    def transform_cell(raw: str) -> str:
        # one line alone may be `exit` or `ls`, which are Python and more
        several_lines = "\n" in raw.strip()
        if several_lines and [len(found) for found in lists] == ours:
            with contextlib.suppress(
                SyntaxError, ValueError, OverflowError, RecursionError, MemoryError
            ):
                parsed[raw] = parse(raw, "<cell>")
                return raw
        return str(transform(raw))

    def ast_parse(source: str, *args: Any, **kwargs: Any) -> Any:
        return parsed.pop(source, None) or parse(source, *args, **kwargs)

    def should_run_async(raw: str, *, transformed_cell: str | None = None, **more: Any) -> bool:
        """The shell compiles a cell to see whether it waits for something; these words tell most
        that do not. In a notebook a loop of events always runs: whoever speaks of it finds it."""
        speaks.extend(["asyncio"] * (not speaks and "asyncio" in raw))
        if speaks:
            return True
        cell = transformed_cell
        waits = cell is None or "await" in cell or "async" in cell
        return waits and bool(asks_async(raw, transformed_cell=cell, **more))

    speaks: list[str] = []  # once a cell has, all those below it do
    asks_async = shell.should_run_async
    parse, shell.compile.ast_parse = shell.compile.ast_parse, ast_parse
    parsed: dict[str, Any] = {}  # what the shell asks for next
    shell.transform_cell = transform_cell
    shell.should_run_async = should_run_async
