"""The tensors of a Hugging Face directory: `model.safetensors`, or an index and its shards, mapped
into memory.

Headers are read first: names, shapes and dtypes of everything are known, and checked, before a
single weight is read. A tensor then is a view of the mapped file; the kernel reads its pages when
they are used, and may drop them again.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
PICKLES = ("*.bin", "*.pt", "*.pth")
REMAP_BYTES = 256_000_000  # after so many bytes copied out of a map, it is dropped and made anew


@dataclass(frozen=True)
class Stored:
    """Where a tensor is, and what its file's header says about it."""

    file: Path
    shape: tuple[int, ...]
    dtype: str  # as safetensors writes it: "BF16"

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return torch.Size(self.shape).numel() * DTYPES[self.dtype].itemsize


def read_headers(folder: Path) -> dict[str, Stored]:
    """What every tensor of a directory is, by its name there.

    Raises ValueError, in one sentence, where a file is missing, damaged or truncated, where index
    and shards disagree, and where there are only files of another format.
    """
    if (folder / SINGLE).is_file():
        return _headers_of(folder / SINGLE)
    if not (folder / INDEX).is_file():
        raise ValueError(_no_weights(folder))
    weight_map = _weight_map(folder / INDEX)
    found: dict[str, Stored] = {}
    for name in sorted(set(weight_map.values())):
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
            found[key] = stored
    if absent := sorted(weight_map.keys() - found.keys()):
        raise ValueError(
            f"{folder / weight_map[absent[0]]} does not hold {absent[0]}, which {INDEX} says it"
            " does."
        )
    return found


def _headers_of(path: Path) -> dict[str, Stored]:
    with _open(path) as file:
        slices = {key: file.get_slice(key) for key in file.keys()}  # noqa: SIM118
        found = {
            key: Stored(path, tuple(s.get_shape()), s.get_dtype()) for key, s in slices.items()
        }
    for key, stored in found.items():
        if stored.dtype not in DTYPES:
            raise ValueError(
                f"{path}: {key} is stored as {stored.dtype}, which is not supported; supported:"
                f" {', '.join(DTYPES)}."
            )
    return found


def _open(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt")
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
        found = json.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ValueError(f"there is no {path.name} in {path.parent}.") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{path} cannot be read ({error}): download it again.") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path} must hold a JSON object, but it holds a {type(found).__name__}.")
    return found


class Reader:
    """Reads tensors by their place, through a map of the one file that it has open."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self._file: Any = None
        self._copied_bytes = 0

    def view(self, key: str, stored: Stored) -> torch.Tensor:
        """The tensor as a view of its file. It keeps the map alive; a Reader that also copies would
        keep too much."""
        return self._map(stored.file).get_tensor(key)  # type: ignore[no-any-return]

    def copy_into(
        self, target: torch.Tensor, key: str, stored: Stored, half: int | None = None
    ) -> None:
        """Copy a tensor, or one half of its second axis, into `target`, of any dtype, on any
        device.

        Pages read through a map count as memory of this process until the map is gone; hence a new
        one now and then.
        """
        if self._copied_bytes > REMAP_BYTES:
            self._path, self._file = None, None
        tensor = self._map(stored.file).get_tensor(key)
        target.copy_(tensor if half is None else tensor.chunk(2, dim=1)[half])
        self._copied_bytes += stored.nbytes

    def _map(self, path: Path) -> Any:
        if path != self._path:
            self._file, self._path, self._copied_bytes = _open(path), path, 0
        return self._file
