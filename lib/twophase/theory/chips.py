"""Published figures of accelerators, each with the document it comes from. Dense FLOP/s, decimal
units.

Memory is what the driver reports where that is known (nvidia-smi, rocm-smi: `MiB` is 2^20 bytes),
else the vendor's number in GB = 10^9 bytes. A card sold as 80 GB has 80 × 2^30 bytes and shows a
little less, so that the vendor's number, read as 10^9, is too small. How much of it an engine may
use is an assumption of the planner, not a figure of the chip. NVIDIA prints most tensor-core rates
with 2:4 sparsity; those are halved here.
"""

from dataclasses import replace

from twophase.theory.hardware import Hardware

NVLINK = "NVLink, all links of one GPU, both directions"
MIB = 2**20
NVIDIA_SMI = "memory: nvidia-smi, as listed in github.com/modal-labs/modal-client/pull/2797"

CHIPS = (
    Hardware(
        name="A100 80GB SXM",
        flops_per_s={
            "bf16": 312e12,
            "fp16": 312e12,
            "tf32": 156e12,
            "fp32": 19.5e12,
            "int8": 624e12,
        },
        hbm_bytes_per_s=2.039e12,
        hbm_bytes=81_920 * MIB,
        link_bytes_per_s=600e9,
        link=NVLINK,
        source=(
            "NVIDIA A100 Tensor Core GPU data sheet, nvidia.com/en-us/data-center/a100; "
            + NVIDIA_SMI
        ),
        date="2021-06",
    ),
    Hardware(
        name="A100 40GB SXM",
        flops_per_s={
            "bf16": 312e12,
            "fp16": 312e12,
            "tf32": 156e12,
            "fp32": 19.5e12,
            "int8": 624e12,
        },
        hbm_bytes_per_s=1.555e12,
        hbm_bytes=40_960 * MIB,
        link_bytes_per_s=600e9,
        link=NVLINK,
        source=(
            "NVIDIA A100 Tensor Core GPU data sheet and architecture white paper v1.0, nvidia.com; "
            + NVIDIA_SMI
        ),
        date="2020-11",
    ),
    Hardware(
        name="H100 SXM",
        flops_per_s={
            "bf16": 989e12,
            "fp16": 989e12,
            "tf32": 494e12,
            "fp32": 67e12,
            "fp8": 1979e12,
            "int8": 1979e12,
        },
        hbm_bytes_per_s=3.35e12,
        hbm_bytes=81_559 * MIB,
        link_bytes_per_s=900e9,
        link=NVLINK,
        source=(
            "NVIDIA H100 Tensor Core GPU data sheet, nvidia.com/en-us/data-center/h100 (1,979"
            " sparse bf16, halved); " + NVIDIA_SMI
        ),
        date="2023-07",
    ),
    Hardware(
        name="H200 SXM",
        flops_per_s={
            "bf16": 989e12,
            "fp16": 989e12,
            "tf32": 494e12,
            "fp32": 67e12,
            "fp8": 1979e12,
            "int8": 1979e12,
        },
        hbm_bytes_per_s=4.8e12,
        hbm_bytes=143_771 * MIB,
        link_bytes_per_s=900e9,
        link=NVLINK,
        source=(
            "NVIDIA H200 Tensor Core GPU data sheet, nvidia.com/en-us/data-center/h200 (sparse"
            " rates, halved); memory: nvidia-smi"
        ),
        date="2024-11",
    ),
    Hardware(
        name="B200",
        flops_per_s={
            "bf16": 2.25e15,
            "fp16": 2.25e15,
            "tf32": 1.1e15,
            "fp32": 75e12,
            "fp8": 4.5e15,
            "int8": 4.5e15,
            "fp4": 9e15,
        },
        hbm_bytes_per_s=8e12,
        hbm_bytes=183_359 * MIB,
        link_bytes_per_s=1.8e12,
        link=NVLINK,
        source=(
            "NVIDIA DGX B200 data sheet (1,440 GB and 64 TB/s over 8 GPUs) and Blackwell data"
            " sheet, nvidia.com (sparse rates, halved); the later HGX B200 data sheet prints 7.7"
            " TB/s; memory: nvidia-smi, as in github.com/NVIDIA/TensorRT-LLM/issues/10278"
        ),
        date="2024-10",
    ),
    Hardware(
        name="GB200",
        flops_per_s={
            "bf16": 2.5e15,
            "fp16": 2.5e15,
            "tf32": 1.25e15,
            "fp32": 80e12,
            "fp8": 5e15,
            "int8": 5e15,
            "fp4": 10e15,
        },
        hbm_bytes_per_s=8e12,
        hbm_bytes=186e9,
        link_bytes_per_s=1.8e12,
        link=NVLINK,
        source=(
            "NVIDIA GB200 NVL72 data sheet, nvidia.com/en-us/data-center/gb200-nvl72 (13.4 TB and"
            " 576 TB/s over 72 GPUs; sparse rates, halved); memory: the vendor's"
        ),
        date="2025-03",
    ),
    Hardware(
        name="MI300X",
        flops_per_s={
            "bf16": 1307.4e12,
            "fp16": 1307.4e12,
            "tf32": 653.7e12,
            "fp32": 163.4e12,
            "fp8": 2614.9e12,
            "int8": 2614.9e12,
        },
        hbm_bytes_per_s=5.3e12,
        hbm_bytes=206_141_652_992,
        link_bytes_per_s=896e9,
        link="Infinity Fabric, seven links to other GPUs, both directions",
        source=(
            "AMD Instinct MI300X data sheet,"
            " amd.com/en/products/accelerators/instinct/mi300/mi300x.html; memory: rocm-smi, as in"
            " github.com/ROCm/legacy-rocm-build/issues/4750"
        ),
        date="2023-12",
    ),
    Hardware(
        name="MI325X",
        flops_per_s={
            "bf16": 1307.4e12,
            "fp16": 1307.4e12,
            "tf32": 653.7e12,
            "fp32": 163.4e12,
            "fp8": 2614.9e12,
            "int8": 2614.9e12,
        },
        hbm_bytes_per_s=6e12,
        hbm_bytes=256e9,
        link_bytes_per_s=896e9,
        link="Infinity Fabric, seven links to other GPUs, both directions",
        source=(
            "AMD Instinct MI325X data sheet,"
            " amd.com/en/products/accelerators/instinct/mi300/mi325x.html; memory: the vendor's"
        ),
        date="2024-10",
    ),
    Hardware(
        name="MI355X",
        flops_per_s={
            "bf16": 2.5e15,
            "fp16": 2.5e15,
            "fp32": 157.3e12,
            "fp8": 5e15,
            "int8": 5e15,
            "fp4": 10.1e15,
        },
        hbm_bytes_per_s=8e12,
        hbm_bytes=288e9,
        link_bytes_per_s=1075.2e9,
        link="Infinity Fabric, seven links to other GPUs, both directions",
        source=(
            "AMD Instinct MI355X data sheet,"
            " amd.com/en/products/accelerators/instinct/mi350/mi355x.html; memory: the vendor's"
        ),
        date="2025-06",
    ),
    Hardware(
        name="L40S",
        flops_per_s={
            "bf16": 362.05e12,
            "fp16": 362.05e12,
            "tf32": 183e12,
            "fp32": 91.6e12,
            "fp8": 733e12,
            "int8": 733e12,
        },
        hbm_bytes_per_s=864e9,
        hbm_bytes=46_068 * MIB,
        link_bytes_per_s=64e9,
        link="PCIe 4.0 x16, both directions",
        source=(
            "NVIDIA L40S data sheet, nvidia.com/en-us/data-center/l40s (the rates without"
            " sparsity); memory: nvidia-smi"
        ),
        date="2023-08",
    ),
    Hardware(
        name="RTX 4090",
        flops_per_s={
            "bf16": 165.2e12,
            "fp16": 165.2e12,
            "tf32": 82.6e12,
            "fp32": 82.6e12,
            "fp8": 330.3e12,
            "int8": 660.6e12,
        },
        hbm_bytes_per_s=1.008e12,
        hbm_bytes=24_564 * MIB,
        link_bytes_per_s=64e9,
        link="PCIe 4.0 x16, both directions",
        source=(
            "NVIDIA Ada GPU architecture white paper, appendix A (sums in fp32, without sparsity);"
            " memory: nvidia-smi"
        ),
        date="2022-10",
    ),
    Hardware(
        name="RTX 5090",
        flops_per_s={
            "bf16": 209.5e12,
            "fp16": 209.5e12,
            "tf32": 104.8e12,
            "fp32": 104.8e12,
            "fp8": 419e12,
            "int8": 838e12,
            "fp4": 1676e12,
        },
        hbm_bytes_per_s=1.792e12,
        hbm_bytes=32_607 * MIB,
        link_bytes_per_s=128e9,
        link="PCIe 5.0 x16, both directions",
        source=(
            "NVIDIA RTX Blackwell GPU architecture white paper, appendix A (sums in fp32, without"
            " sparsity); memory: nvidia-smi"
        ),
        date="2025-01",
    ),
    Hardware(
        name="TPU v5e",
        flops_per_s={"bf16": 1.97e14, "int8": 3.93e14},
        hbm_bytes_per_s=8.19e11,
        hbm_bytes=16e9,
        link_bytes_per_s=9e10,
        link="ICI, per axis, both directions; two axes",
        source=(
            "cloud.google.com/tpu/docs/v5e; ICI per axis from Austin et al., How to Scale Your"
            " Model, jax-ml.github.io/scaling-book"
        ),
        date="2025-02",
    ),
    Hardware(
        name="TPU v5p",
        flops_per_s={"bf16": 4.59e14, "int8": 9.18e14},
        hbm_bytes_per_s=2.765e12,
        hbm_bytes=95e9,
        link_bytes_per_s=1.8e11,
        link="ICI, per axis, both directions; three axes",
        source="cloud.google.com/tpu/docs/v5p; ICI per axis from jax-ml.github.io/scaling-book",
        date="2025-02",
    ),
)

# The chip of the worked problems: a TPU v5e in the round numbers of the texts that set them.
WORKED_V5E = replace(
    next(chip for chip in CHIPS if chip.name == "TPU v5e"),
    name="TPU v5e, worked",
    flops_per_s={"bf16": 1.97e14, "int8": 3.94e14},
    hbm_bytes_per_s=8.1e11,
    source=(
        "Austin et al., How to Scale Your Model, jax-ml.github.io/scaling-book: the numbers of the"
        " worked problems, where the data sheet prints 8.19e11 B/s and 3.93e14 int8"
    ),
)
