"""What a model, a cache or an engine did, as data: one event after the other, each of a known kind
with known fields.

A log is a list of flat JSON objects, one a line: `{"event": "commit", "t_s": 0.012, "cache": 0,
"kept": [1], "lengths": [18]}`. `t_s` counts from the log's start. Whoever writes new kinds adds
them to `KINDS`; readers (drawings, reports, tests) rely on nothing else.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# kind -> field -> what it is: "int", "ints" (one for each sequence), "rows" (ints for each
# sequence), "number" or "text"; "?" may be null
KINDS: dict[str, dict[str, str]] = {
    # A forward pass begins: tokens[b] come behind the starts[b] that sequence b holds in a cache;
    # cache is its number in this log, null without one.
    "call": {"call": "int", "cache": "int?", "starts": "ints", "tokens": "rows"},
    # A layer has written keys and values of the n_new[b] tokens; they are not committed yet.
    "append": {
        "call": "int",
        "cache": "int",
        "layer": "int",
        "starts": "ints",
        "n_new": "ints",
    },
    # The first kept[b] tokens of the pass stay: each sequence has lengths[b] tokens now.
    "commit": {"cache": "int", "kept": "ints", "lengths": "ints"},
    # Sequences were cut, released or copied: each has lengths[b] tokens now.
    "cut": {"cache": "int", "lengths": "ints"},
    "release": {"cache": "int", "row": "int", "lengths": "ints"},
    "fork": {"cache": "int", "source": "int", "target": "int", "lengths": "ints"},
    # A layer of latents has unfolded so many of each sequence into keys and values of all heads, or
    # has absorbed its up-projections into so many queries of each.
    "unfold": {"call": "int", "layer": "int", "latents": "int"},
    "absorb": {"call": "int", "layer": "int", "queries": "int"},
    # The generation loop drew a token for a sequence; reason is null while it goes on.
    "token": {"row": "int", "token": "int", "reason": "text?"},
    # An engine's requests, by number. One arrives, with so many answers wanted to its prompt; is
    # admitted, and finds `shared` of its tokens in blocks of others; gives its blocks back and
    # waits again ("recompute", "swap"); a second sequence parts from a first; it ends.
    "arrive": {"request": "int", "n_prompt": "int", "answers": "int"},
    "admit": {"request": "int", "shared": "int"},
    "preempt": {"request": "int", "how": "text"},
    "split": {"parent": "int", "child": "int"},
    "finish": {"request": "int", "reason": "text"},
    # A block is copied before somebody writes to it.
    "copy_block": {"source": "int", "target": "int"},
    # A pass of an engine begins: n_new[i] tokens of requests[i] come behind starts[i] that its
    # blocks, tables[i], hold; `waiting` requests do not run, and `free_blocks` are nobody's.
    "pass": {
        "requests": "ints",
        "starts": "ints",
        "n_new": "ints",
        "tables": "rows",
        "waiting": "int",
        "free_blocks": "int",
    },
    # Attention made the scores of a block of queries, from `query` on, with a block of keys, from
    # `start` on; `masked` of them are hidden.
    "block": {
        "query_block": "int",
        "query": "int",
        "queries": "int",
        "start": "int",
        "keys": "int",
        "masked": "int",
    },
    # A decode step read the keys and values of a KV head from memory.
    "fetch": {"kv_head": "int", "n_bytes": "int"},
    # A token's choice (0 is its best expert) took a place in that expert's bin, null: there was
    # none left, and the visit is dropped.
    "visit": {"token": "int", "choice": "int", "expert": "int", "place": "int?"},
    # A query head was computed with the KV head that is on the chip.
    "attend": {"head": "int", "kv_head": "int"},
    # A draft proposed tokens to a sequence: token i follows parents[i], -1 is the text itself. Then
    # the target kept some of them, numbered from 0, and said a token of its own behind these.
    "draft": {"row": "int", "tokens": "ints", "parents": "ints"},
    "verdict": {"row": "int", "kept": "ints", "token": "int"},
    # A rank's part in a collective is over: `op` is a method of Comm; `group` are its ranks, `axis`
    # what the group is called; n_bytes is the whole tensor, sent_bytes what this rank sends of it
    # in the ring; `peer` is the other rank of a send or receive. The caller says step, phase and
    # layer.
    "collective": {
        "rank": "int",
        "op": "text",
        "axis": "text",
        "group": "ints",
        "peer": "int?",
        "n_bytes": "int",
        "sent_bytes": "int",
        "step": "int",
        "phase": "text",
        "layer": "int?",
        "start_s": "number",
        "seconds": "number",
    },
}


@dataclass(frozen=True)
class Event:
    """One thing that happened. Fields are read as `event["layer"]`."""

    kind: str
    t_s: float
    fields: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"event": self.kind, "t_s": self.t_s, **self.fields}


class EventLog:
    """Events in their order. ValueError for one that breaks the schema, or goes back in time."""

    def __init__(self, started: float | None = None) -> None:
        """`started`: what `time.perf_counter()` was at 0 s, for logs that are put together."""
        self._events: list[Event] = []
        self.started = time.perf_counter() if started is None else started

    def __len__(self) -> int:
        return len(self._events)

    def __iter__(self) -> Iterator[Event]:
        return iter(self._events)

    def select(self, *kinds: str) -> list[Event]:
        """The events of these kinds."""
        if unknown := [kind for kind in kinds if kind not in KINDS]:
            raise ValueError(_unknown(unknown[0]))
        return [event for event in self if event.kind in kinds]

    def write(self, kind: str, **fields: Any) -> Event:
        """Note that something happens now."""
        return self._add(kind, time.perf_counter() - self.started, fields)

    def _add(self, kind: str, t_s: float, fields: Mapping[str, Any]) -> Event:
        check_fields(kind, fields)
        if self._events and t_s < self._events[-1].t_s:
            raise ValueError(f"an event at {t_s} s cannot follow one at {self._events[-1].t_s} s.")
        event = Event(kind, t_s, dict(fields))
        self._events.append(event)
        return event

    @classmethod
    def merged(cls, logs: Iterable[EventLog]) -> EventLog:
        """The events of several logs in the order of their times; those of equal time in the order
        of the logs."""
        merged = cls()
        for event in sorted((event for log in logs for event in log), key=lambda e: e.t_s):
            merged._add(event.kind, event.t_s, event.fields)
        return merged

    def to_lines(self) -> str:
        """JSON Lines."""
        return "".join(json.dumps(event.to_dict()) + "\n" for event in self)

    @classmethod
    def from_lines(cls, lines: Iterable[str] | str) -> EventLog:
        """A log from JSON Lines. ValueError for a line that is no event of the schema."""
        log = cls()
        for line in lines.splitlines() if isinstance(lines, str) else lines:
            found = json.loads(line)
            if not isinstance(found, dict) or not isinstance(found.get("t_s"), float | int):
                raise ValueError(f"a line of a log is an object with an event and t_s; got {line}.")
            kind, t_s = found.pop("event", ""), found.pop("t_s")
            log._add(kind, t_s, found)
        return log


def check_fields(kind: str, fields: Mapping[str, Any]) -> None:
    """ValueError unless the fields are those of the kind."""
    if kind not in KINDS:
        raise ValueError(_unknown(kind))
    if set(fields) != set(KINDS[kind]):
        raise ValueError(f"{kind!r} has the fields {list(KINDS[kind])}; got {list(fields)}.")
    for name, wanted in KINDS[kind].items():
        if not (wanted.endswith("?") and fields[name] is None) and not _is(
            fields[name], wanted.removesuffix("?")
        ):
            raise ValueError(f"{name!r} of {kind!r} is {wanted}; got {fields[name]!r}.")


def _unknown(kind: str) -> str:
    return f"there is no event {kind!r}: it is one of {', '.join(KINDS)}."


def _is(value: object, wanted: str) -> bool:
    if wanted == "text":
        return isinstance(value, str)
    if wanted == "number":
        return isinstance(value, int | float) and not isinstance(value, bool)
    if wanted == "int":
        return isinstance(value, int) and not isinstance(value, bool)
    inner = {"ints": "int", "rows": "ints"}[wanted]
    return isinstance(value, Sequence) and all(_is(item, inner) for item in value)


@dataclass(frozen=True)
class Held:
    """What a cache holds after an event: committed tokens of each sequence, and those of the pass
    that goes on, of which `written` says how many each layer has so far."""

    lengths: tuple[int, ...]
    written: Mapping[int, tuple[int, ...]]  # layer -> for each sequence


def follow(events: Iterable[Event], cache: int = 0) -> Iterator[tuple[Event, Held]]:
    """Each event with what a cache, by its number in the log, holds after it. ValueError if the
    events contradict each other."""
    held = Held((), {})
    for event in events:
        if event.fields.get("cache") != cache:
            yield event, held
            continue
        if event.kind == "call":
            held = Held(tuple(event["starts"]), {})
        elif event.kind == "append":
            if tuple(event["starts"]) != held.lengths:
                raise ValueError(f"{event} does not continue a cache of {held.lengths} tokens.")
            held = Held(held.lengths, {**held.written, event["layer"]: tuple(event["n_new"])})
        else:  # commit, cut, release, fork
            held = Held(tuple(event["lengths"]), {})
        yield event, held
