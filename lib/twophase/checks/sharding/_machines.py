"""The models and machines of sharding-choose."""

from __future__ import annotations

LLAMA = {"L": 80, "D": 8192, "F": 28672, "N": 64, "K": 8, "H": 128, "bytes": 2}
SMALL = {"L": 24, "D": 1024, "F": 4096, "N": 16, "K": 8, "H": 64, "bytes": 2}
WORKED = {"L": 64, "D": 4096, "F": 16384, "N": 32, "K": 8, "H": 256, "bytes": 2}
H100 = {
    "memory_bytes": 8e10,
    "flops_per_s": 9.89e14,
    "bytes_per_s": 3.35e12,
    "link_bytes_per_s": 4.5e11,
    "hop_s": 6e-7,
}
V5E = {
    "memory_bytes": 1.6e10,
    "flops_per_s": 1.97e14,
    "bytes_per_s": 8.1e11,
    "link_bytes_per_s": 9e10,
    "hop_s": 1e-6,
}
ETHERNET = {**H100, "link_bytes_per_s": 1.25e10, "hop_s": 2.5e-5}
