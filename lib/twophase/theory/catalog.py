"""Look up models, hardware and links by name, whatever the case and punctuation."""

import difflib
import re
from collections.abc import Iterable

from twophase.theory.architecture import Architecture
from twophase.theory.chips import CHIPS, WORKED_V5E
from twophase.theory.hardware import Hardware
from twophase.theory.links import LINKS as _LINKS
from twophase.theory.links import Link
from twophase.theory.model_list import MODELS as _MODELS

MODELS: dict[str, Architecture] = {arch.name: arch for arch in _MODELS}
HARDWARE: dict[str, Hardware] = {chip.name: chip for chip in (*CHIPS, WORKED_V5E)}
LINKS: dict[str, Link] = {link.name: link for link in _LINKS}

_ALIASES = {
    "a100": "A100 80GB SXM",
    "a10080gb": "A100 80GB SXM",
    "a10040gb": "A100 40GB SXM",
    "h100": "H100 SXM",
    "h10080gb": "H100 SXM",
    "h200": "H200 SXM",
    "v5e": "TPU v5e",
    "v5p": "TPU v5p",
    "workedv5e": "TPU v5e, worked",
    "mixtral": "mixtral-8x7b",
    "mistral": "mistral-7b",
    "gpt3175b": "gpt-3",
    "worked": "worked-18b",
    "v5eici": "TPU v5e ICI",
    "v5pici": "TPU v5p ICI",
    "nvlink": "NVLink 4",
    "pcie": "PCIe 4",
    "4090": "RTX 4090",
    "5090": "RTX 5090",
    "infiniband": "InfiniBand NDR",
    "ethernet": "Ethernet 100G",
}

USUAL_LINKS = {
    "A100 80GB SXM": "NVLink 3",
    "A100 40GB SXM": "NVLink 3",
    "B200": "NVLink 5",
    "GB200": "NVLink 5",
    "L40S": "PCIe 4",
    "RTX 4090": "PCIe 4",
    "RTX 5090": "PCIe 5",
    "H100 SXM": "NVLink 4",
    "H200 SXM": "NVLink 4",
    "TPU v5e": "TPU v5e ICI",
    "TPU v5e, worked": "TPU v5e ICI",
    "TPU v5p": "TPU v5p ICI",
}


# Joined by their usual link, where that is not what the link usually joins: NVIDIA GB200 NVL72 data
# sheet (130 TB/s of NVLink over 72 GPUs).
_USUAL_CHIPS = {"GB200": 72}


def model(name: str) -> Architecture:
    """The catalog's model of that name. ValueError lists the known ones and the closest."""
    return MODELS[_find(name, MODELS, "model")]


def hardware(name: str) -> Hardware:
    """The catalog's chip of that name, "h100" for "H100 SXM". ValueError lists the known ones and
    the closest."""
    return HARDWARE[_find(name, HARDWARE, "hardware")]


def link(name: str) -> Link:
    """The catalog's link of that name, "nvlink" for "NVLink 4". ValueError lists the known ones and
    the closest."""
    return LINKS[_find(name, LINKS, "link")]


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _find(name: str, known: Iterable[str], kind: str) -> str:
    by_plain = {_plain(k): k for k in known}
    wanted = _plain(name)
    alias = _ALIASES.get(wanted)
    if wanted in by_plain or alias in by_plain.values():
        return by_plain.get(wanted) or str(alias)
    close = difflib.get_close_matches(wanted, by_plain, n=1, cutoff=0.5)
    hint = f" Did you mean {by_plain[close[0]]}?" if close else ""
    raise ValueError(f"Unknown {kind} {name!r}.{hint} Known: {', '.join(by_plain.values())}.")


def usual_chips(chip: Hardware) -> int | None:
    """How many of these chips their usual link joins; None if the catalog does not know."""
    name = USUAL_LINKS.get(chip.name)
    return _USUAL_CHIPS.get(chip.name) or (LINKS[name].usual_chips if name is not None else None)


def usual_link(chip: Hardware) -> Link:
    """What joins these chips where nothing else is said: NVLink inside a machine of H100s, ICI in a
    TPU slice. ValueError for chips of which the catalog does not know it."""
    if chip.name not in USUAL_LINKS:
        raise ValueError(
            f"The catalog does not know what joins {chip.name}s: say it with --link, one of"
            f" {', '.join(LINKS)}."
        )
    return LINKS[USUAL_LINKS[chip.name]]
