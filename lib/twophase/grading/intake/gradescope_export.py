"""Gradescope's submission_metadata.yml: which folder of an export is whose, and when it came."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from twophase.grading.errors import Unreadable
from twophase.grading.intake import archives
from twophase.grading.intake.trees import Node

METADATA = "submission_metadata.yml"
MAX_METADATA_BYTES = 2**28  # it has the results of each student's every attempt
TOGETHER = " & "  # between those who handed in together
# text, lists and mappings only, whatever Ruby's tags say
_Loader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


def entries(metadata: Node) -> list[tuple[str, str, str]]:
    """Of every submission its folder, its student (of each submitter the SID, else the email, else
    the name), and when it came. Raises ValueError if the file cannot be read."""
    where = f"{metadata.path}: {metadata.name}" if metadata.members else f"{metadata.path}"
    try:
        data = archives.read_member(metadata.path, metadata.members, MAX_METADATA_BYTES + 1)
    except Unreadable as e:
        raise ValueError(f"{where}: {e}") from None
    if len(data) > MAX_METADATA_BYTES:
        size = f"larger than {MAX_METADATA_BYTES // 2**20} MiB"
        raise ValueError(f"{where} is {size}: it is no list of submissions")
    try:
        tree = yaml.load(data.decode("utf-8"), _Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as e:
        said = str(getattr(e, "problem", None) or type(e).__name__)
        raise ValueError(f"{where} cannot be read ({said}); download the export again") from None
    if not isinstance(tree, dict) or not all(isinstance(v, dict) for v in tree.values()):
        raise ValueError(f"{where} is no list of submissions; download the export again")
    return [(str(k), _students(v), _time(v)) for k, v in tree.items()]


def _field(mapping: dict[Any, Any], name: str) -> Any:
    """A value by its name, which Ruby writes with a colon in front."""
    return mapping.get(f":{name}", mapping.get(name))


def _students(entry: dict[Any, Any]) -> str:
    return TOGETHER.join(sorted(set(_ids(_field(entry, "submitters")))))


def _ids(submitters: Any) -> Iterator[str]:
    listed = submitters if isinstance(submitters, list) else []
    for one in (s for s in listed if isinstance(s, dict)):
        said = [_field(one, name) for name in ("sid", "email", "name")]
        texts = [s.strip() for s in said if isinstance(s, str)]
        yield from [t for t in texts if t not in ("", "~", "null")][:1]


def _time(entry: dict[Any, Any]) -> str:
    """Of newer exports a text, of older ones a Rails object with the time in UTC."""
    said = _field(entry, "created_at")
    if isinstance(said, dict):
        said = _field(said, "utc")
    return said if isinstance(said, str) else ""
