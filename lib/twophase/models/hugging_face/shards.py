"""The tensors of a Hugging Face directory: `model.safetensors`, or an index and its shards.

Headers are read first: names, shapes and dtypes of everything are known, and checked, before a
single weight is read (`reader.py`).
"""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
PICKLES = ("*.bin", "*.pt", "*.pth")


@dataclass(frozen=True)
class Stored:
    """Where a tensor is, and what its file's header says about it."""

    file: Path
    shape: tuple[int, ...]
    dtype: str  # as safetensors writes it: "BF16"
    offset: int  # of its first byte in the file
    stamp: tuple[int, int]  # of the file, when its header was read: see `stamp_of`

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return torch.Size(self.shape).numel() * DTYPES[self.dtype].itemsize


def read_headers(
    folder: Path, wanted: Callable[[str], bool] = lambda key: True
) -> dict[str, Stored]:
    """What every tensor of a directory is, by its name there; or only those that are wanted, and
    then shards that hold none of these are not opened, and need not be there.

    Raises ValueError, in one sentence, where a file is missing, damaged or truncated, where index
    and shards disagree, and where there are only files of another format.
    """
    if (folder / SINGLE).is_file():
        return {key: at for key, at in _headers_of(folder / SINGLE).items() if wanted(key)}
    if not (folder / INDEX).is_file():
        raise ValueError(_no_weights(folder))
    weight_map = _weight_map(folder / INDEX)
    found: dict[str, Stored] = {}
    expected = {key for key in weight_map if wanted(key)}
    for name in sorted({weight_map[key] for key in expected}):
        if not (folder / name).is_file():
            raise ValueError(
                f"{folder / INDEX} names the shard {name}, which is not there: download it again."
            )
        for key, stored in _headers_of(folder / name).items():
            if weight_map.get(key) != name:
                raise ValueError(
                    f"{folder / name} holds {key}, but {INDEX} does not say so: the files do not"
                    " belong together."
                )
            if wanted(key):
                found[key] = stored
    if absent := sorted(expected - found.keys()):
        raise ValueError(
            f"{folder / weight_map[absent[0]]} does not hold {absent[0]}, which {INDEX} says it"
            " does."
        )
    return found


def weight_files(folder: Path) -> list[Path]:
    """The files that hold a directory's weights. ValueError where one is missing, the index is
    damaged, or there are only files of another format."""
    if (folder / SINGLE).is_file():
        return [folder / SINGLE]
    if not (folder / INDEX).is_file():
        raise ValueError(_no_weights(folder))
    files = [folder / name for name in sorted(set(_weight_map(folder / INDEX).values()))]
    for file in files:
        if not file.is_file():
            raise ValueError(
                f"{folder / INDEX} names the shard {file.name}, which is not there: download it"
                " again."
            )
    return files


def stamp_of(file: Path | int) -> tuple[int, int]:
    """Size and time of the last change, ns: a file that was written to has another."""
    status = os.stat(file)
    return status.st_size, status.st_mtime_ns


def _headers_of(path: Path) -> dict[str, Stored]:
    stamp = stamp_of(path)
    _check(path)
    with path.open("rb") as file:  # 8 bytes say how long the header is, which is JSON; then data
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    found = {
        key: Stored(
            path,
            tuple(entry["shape"]),
            entry["dtype"],
            8 + length + entry["data_offsets"][0],
            stamp,
        )
        for key, entry in header.items()
    }
    for key, stored in found.items():
        if stored.dtype not in DTYPES:
            raise ValueError(
                f"{path}: {key} is stored as {stored.dtype}, which is not supported; supported:"
                f" {', '.join(DTYPES)}."
            )
    return found


def check_readable(path: Path) -> None:
    """ValueError, in a sentence, if this is a file that cannot be read, or something else than a
    file; FileNotFoundError if there is nothing."""
    try:
        if path.is_symlink() and not path.exists():
            raise ValueError(f"{path} is a link to {os.readlink(path)}, which is not there.")
        if path.exists() and not path.is_file():
            raise ValueError(f"{path} must be a file, but it is something else.")
        path.open("rb").close()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}.") from None


def _check(path: Path) -> None:
    """The library's own checks: of the header, and that the file has the bytes it speaks of."""
    check_readable(path)
    try:
        with safe_open(path, framework="pt"):
            pass
    except (SafetensorError, OSError) as error:
        raise ValueError(
            f"{path} is damaged or was cut off ({error}): download it again."
        ) from None


def _weight_map(path: Path) -> dict[str, str]:
    """The index: for each tensor the file that holds it. A file name that leaves the folder is
    refused."""
    weight_map = read_json(path).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ValueError(
            f'{path} has no "weight_map" that says which file holds which tensor: download it'
            " again."
        )
    for name in weight_map.values():
        if (
            not isinstance(name, str)
            or Path(name).name != name
            or not name.endswith(".safetensors")
        ):
            raise ValueError(f"{path} names {name!r}, which is no .safetensors file beside it.")
    return weight_map


def _no_weights(folder: Path) -> str:
    """Why a directory without weights that can be read has none."""
    if any(folder.glob("*.safetensors")):
        return (
            f"{folder} has .safetensors files, but neither {SINGLE} nor {INDEX}, which says what is"
            " in which."
        )
    if any(folder.glob("*.gguf")):
        return (
            f"{folder} holds .gguf weights, which are not supported: get the safetensors files of"
            " this model."
        )
    if any(file for pattern in PICKLES for file in folder.glob(pattern)):
        return (
            f"{folder} holds pickled weights (.bin) only, which can run any program when they are"
            " read, so they never are: get or save the model as safetensors."
        )
    return f"{folder} holds no weights: neither {SINGLE} nor {INDEX} is there."


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; ValueError if it is missing or damaged, or something else than an
    object."""
    try:
        check_readable(path)
        found = json.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ValueError(f"there is no {path.name} in {path.parent}.") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{path} cannot be read ({error}): download it again.") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path} must hold a JSON object, but it holds a {type(found).__name__}.")
    return found
