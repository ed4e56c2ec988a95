"""The report on near-identical answers as plain data: what `similar.json` holds."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from twophase.grading.similar.groups import SimilarGroup
from twophase.grading.similar.pairs import Compared
from twophase.grading.similar.report import CAVEAT, SCHEMA, Report


def as_json(found: Report) -> dict[str, Any]:
    """The same as plain data; grading/README.md lists the fields."""
    return {
        "schema": SCHEMA,
        "caveat": CAVEAT,
        "least": found.least,
        "notebooks": len(found.papers),
        "unreadable": [{"file": f, "message": m} for f, m in found.unreadable],
        "groups": [_group_json(g) for g in found.groups],
        "groups_left_out": found.groups_left_out,
        "exercises": [_exercise_json(c) for c in found.exercises if c.answers],
    }


def _group_json(g: SimilarGroup) -> dict[str, Any]:
    return {
        "topic": g.topic,
        "students": [list(p) for p in g.parties],
        "files": list(g.files),
        "exercises": [
            {
                "id": a.exercise.id,
                "pairs_in_all": a.n_pairs,
                "pairs": [
                    {
                        "files": [p.a.file, p.b.file],
                        "same": p.same,
                        "rarer": p.rarer,
                        "share": round(p.share, 4),
                        "others": n,
                    }
                    for p, n in zip(a.pairs, a.others, strict=True)
                ],
            }
            for a in g.agreements
        ],
        "traces": [asdict(t.mark) | {"files": list(t.files)} for t in g.traces],
    }


def _exercise_json(c: Compared) -> dict[str, Any]:
    return {
        "id": c.id,
        "topic": c.topic,
        "answers": c.answers,
        "not_written": list(c.empty),
        "too_short": list(c.short),
        "follows_published": list(c.follows),
        "common": [list(w.files) for w in c.common],
        "not_python": list(c.unparsed),
        "cut": list(c.cut),
        "pairs": len(c.pairs),
        "comparisons": c.comparisons,
    }
