"""Which exercises there are. A topic's package lists its exercises in teaching order: `ORDER = ("kv_bytes", "max_batch")`."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
from functools import cache

from twophase.checks.exercise import Exercise

CHAPTERS = {
    "two_phases": 1,
    "arithmetic_intensity": 2,
    "kv_cache": 3,
    "latency_throughput": 4,
    "grouped_query_attention": 5,
    "latent_attention": 6,
    "local_attention": 7,
    "cross_layer_attention": 8,
    "beyond_attention": 9,
    "sharding": 10,
    "mixture_of_experts": 11,
    "quantization": 12,
    "pruning": 13,
    "speculative_decoding": 14,
    "continuous_batching": 15,
    "paging": 16,
    "serving_engine": 17,
}


def topics() -> list[str]:
    """The topics that have exercises, in the order of the chapters."""
    return [t for t in CHAPTERS if importlib.util.find_spec(f"twophase.checks.{t}") is not None]


def stem(topic: str) -> str:
    """The file name that a topic has in every room, without its ending: `03_kv_cache`."""
    return f"{CHAPTERS[topic]:02d}_{topic}"


def ids(topic: str) -> list[str]:
    """The ids of a topic's exercises, in teaching order."""
    package = importlib.import_module(f"twophase.checks.{topic}")
    return [f"{topic}-{slug}" for slug in package.ORDER]


@cache
def load(exercise_id: str) -> Exercise:
    """The exercise of this id. Raises ValueError, with the nearest known id, if there is none."""
    topic, _, slug = exercise_id.partition("-")
    known = [i for t in topics() for i in ids(t)]
    if exercise_id not in known:
        near = difflib.get_close_matches(exercise_id, known, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"known ids: {', '.join(known)}"
        raise ValueError(f"there is no exercise {exercise_id!r}; {hint}")
    exercise: Exercise = importlib.import_module(f"twophase.checks.{topic}.{slug}").EXERCISE
    if exercise.id != exercise_id:
        raise ValueError(f"the module of {exercise_id!r} defines {exercise.id!r}; an exercise's id is <topic>-<module>")
    return exercise


def load_topic(topic: str) -> list[Exercise]:
    """A topic's exercises, in teaching order."""
    return [load(i) for i in ids(topic)]
