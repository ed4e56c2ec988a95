"""Runs play.js while the book is built: the script alone writes and draws what a box shows."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

import dukpy
from book_play_formula import javascript
from book_play_spec import Play

SCRIPT = Path(__file__).resolve().parent.parent / "_static" / "play.js"


def without_formulas(part: Any) -> Any:
    """A part of a box as JSON has it: formulas go to the page as functions."""
    if isinstance(part, Mapping):
        kept = {k: v for k, v in part.items() if k not in ("expr", "caption", "title")}
        return {key: without_formulas(value) for key, value in kept.items()}
    if isinstance(part, list | tuple):
        return [without_formulas(value) for value in part]
    return part


def formulas(play: Play) -> str:
    """The formulas as a JavaScript object of functions of the state ``v``; marks are called mark0,
    mark1, …"""
    marks = play.plot.marks if play.plot else ()
    pairs = [(output.name, output.expr) for output in play.outputs]
    pairs += [(f"mark{index}", mark.expr) for index, mark in enumerate(marks)]
    named = (f"{json.dumps(name)}: (v) => {javascript(expr)}" for name, expr in pairs)
    return "{" + ", ".join(named) + "}"


class Script:
    """play.js with one box's data and formulas, as the page has them."""

    def __init__(self, play: Play) -> None:
        self.spec = json.dumps(without_formulas(asdict(play)), ensure_ascii=False)
        self.formulas = formulas(play)

    @cached_property
    def _engine(self) -> Any:
        engine = dukpy.JSInterpreter()
        engine.evaljs(f"{SCRIPT.read_text('utf8')}\n0")
        engine.evaljs(f"var play = twophasePlay, spec = {self.spec}, formulas = {self.formulas}; 0")
        return engine

    def ask(self, expression: str, **values: Any) -> Any:
        """What an expression is of `play`, `spec`, `formulas` and the values, which it finds in
        `dukpy`; null for what is no number."""
        return self._engine.evaljs(expression, **values)

    def start(self) -> dict[str, float]:
        """The first state: every name the formulas need, with its number."""
        state: dict[str, float] = self.ask("play.start(spec)")
        return state

    def shown(self, state: Mapping[str, float]) -> dict[str, Any]:
        """All that the box shows in a state: outputs, room, drawing, words, rows."""
        found: dict[str, Any] = self.ask("play.shown(spec, formulas, dukpy.v)", v=dict(state))
        return found

    def numbers(self, state: Mapping[str, float]) -> dict[str, float | None]:
        """The number of every formula in a state; None for what is infinite or none."""
        asked = "Object.fromEntries(Object.entries(formulas).map(([k, f]) => [k, f(dukpy.v)]))"
        found: dict[str, float | None] = self.ask(asked, v=dict(state))
        return found
