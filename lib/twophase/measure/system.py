"""What can be asked of this machine without running anything: its name, memory, caches, threads."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import torch

DEFAULT_CACHE_BYTES = 32 * 2**20
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def cpu_name() -> str:
    """The processor's name as its vendor writes it."""
    if sys.platform == "darwin":
        return _sysctl("machdep.cpu.brand_string") or platform.machine()
    found = re.search(
        r"^(?:model name|Model)\s*:\s*(.+)$", _read(Path("/proc/cpuinfo")), re.MULTILINE
    )
    return found.group(1).strip() if found else platform.processor() or platform.machine()


def memory_bytes() -> int:
    """Main memory that this process may use: the machine's, or its container's limit."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _read(_CGROUP_LIMIT).strip()
    return min(total, int(limit)) if limit.isdigit() else total


def available_bytes() -> int:
    """Memory that is free now, or can be made free; half of all memory where the system does not
    say."""
    found = re.search(r"^MemAvailable:\s*(\d+) kB", _read(Path("/proc/meminfo")), re.MULTILINE)
    return min(int(found.group(1)) * 1024, memory_bytes()) if found else memory_bytes() // 2


def last_level_cache_bytes() -> int:
    """The largest cache the system reports; 32 MiB where it reports none. Virtual machines often
    show the host's."""
    if sys.platform == "darwin":
        names = ("hw.l3cachesize", "hw.perflevel0.l2cachesize", "hw.l2cachesize")
        return max([int(_sysctl(name) or 0) for name in names]) or DEFAULT_CACHE_BYTES
    sizes = [
        _size(_read(path))
        for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    ]
    return max(sizes, default=0) or DEFAULT_CACHE_BYTES


def device_name(device: str) -> str:
    """Name of the processor, or of the CUDA device."""
    if device == "cuda":
        return torch.cuda.get_device_name()
    return f"{cpu_name()}, {torch.get_num_threads()} threads"


def _size(text: str) -> int:
    found = re.fullmatch(r"(\d+)([KMG]?)", text.strip())
    return (
        int(found.group(1)) * {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}[found.group(2)]
        if found
        else 0
    )


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _sysctl(name: str) -> str:
    try:
        return subprocess.run(
            ["sysctl", "-n", name], capture_output=True, text=True, check=False
        ).stdout.strip()
    except OSError:
        return ""
