"""How `card.py` times and writes down: each case is caught by itself, so that one that fails says
why and loses no other. On a card a case can be captured in a CUDA graph, whose replay launches all
kernels at once: what is left is the time of the kernels, and of one launch and one wait a sample.
"""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import torch

from twophase.measure.card_runs import Card, Fact, Recorded, Run, write_card
from twophase.measure.stopwatch import stopwatch
from twophase.measure.system import device_name, memory_bytes

Call = Callable[[], object]
Make = Callable[[], tuple[Call, dict[str, Fact]]]  # what to time, and what else was seen
ATTENTION = ("flash", "fmha", "cudnn", "sdpa", "attention")


def say(text: str) -> None:
    """Progress."""
    print(text, file=sys.stderr, flush=True)


class Bench:
    """Where the cases run and are written down. `small`: tiny sizes, to try the script."""

    def __init__(self, device: str, small: bool, out: Path, recorded: Recorded) -> None:
        self.device, self.small, self.out, self.recorded = device, small, out, recorded
        self.start = time.perf_counter()

    @property
    def on_card(self) -> bool:
        """Whether there are graphs and kernels to count."""
        return self.device == "cuda"

    def write(self, run: Run) -> None:
        """Add a run to the file, now."""
        self.recorded = self.recorded.with_run(run)
        write_card(self.recorded, self.out)
        took = run.error or (f"{run.median_s:.3e} s" if run.median_s else "")
        sizes = " ".join(f"{k}={n}" for k, n in run.sizes.items())
        say(f"{time.perf_counter() - self.start:6.1f} s  {run.what}, {run.way} {sizes}: {took}")

    def run(
        self,
        part: str,
        what: str,
        way: str,
        make: Make,
        *,
        calls: int = 1,
        seconds: float = 0.3,
        n_bytes: float | None = None,
        flops: float | None = None,
        **sizes: int,
    ) -> bool:
        """Time what `make` returns, which calls the thing `calls` times; write it down and say
        whether it went well. `make` also says what else it saw."""
        run = Run(part, what, way, sizes, n_bytes=n_bytes, flops=flops)
        try:
            run = replace(run, **self._timed(make, calls, seconds))
        except Exception as error:
            run = replace(run, error=sentence(error))
        self.write(run)
        self.free()
        return run.error is None

    def _timed(self, make: Make, calls: int, seconds: float) -> dict[str, Any]:
        """What a run says of its times. Nothing that was made outlives this function."""
        call, facts = make()
        t = stopwatch(call, budget_s=seconds, min_rounds=3 if self.small else 10)
        low, high = t.quartiles_s
        return {
            "median_s": t.median_s / calls,
            "low_s": low / calls,
            "high_s": high / calls,
            "count": t.count,
            "facts": facts,
        }

    def is_well(self) -> bool:
        """Whether the device still draws and multiplies numbers, as after a failed capture it may
        not."""
        try:
            drawn = torch.empty(64, 64, device=self.device).normal_()
            return bool(torch.isfinite((drawn @ drawn).sum()))
        except RuntimeError as error:
            say(sentence(error))
            return False

    def free(self) -> None:
        """Give back what nobody holds."""
        gc.collect()
        if self.on_card:
            try:
                torch.cuda.synchronize()
                torch.cuda.empty_cache()
            except RuntimeError as error:
                say(sentence(error))


def sentence(error: BaseException) -> str:
    """The first line of what an error says, with its kind."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:300] if lines else 'no reason given'}"


def captured(call: Call) -> Call:
    """The kernels of a call in a CUDA graph: a function that replays them, and returns what the
    call returned, in the same memory each time."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # libraries choose and prepare their kernels, uncaptured
        for _ in range(2):
            call()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = call()

    def replay() -> object:
        graph.replay()
        return made

    return replay


def kernels(call: Call) -> dict[str, Fact]:
    """How many kernels a call runs on the card, how many copies and fills, and the commonest one
    that computes attention; or why nobody could count them."""
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    try:
        call()
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            call()
            torch.cuda.synchronize()
        names = [event.name for event in seen.events() if event.device_type == DeviceType.CUDA]
        copies = sum(name.startswith(("Memcpy", "Memset")) for name in names)
        attends = [name for name in names if any(word in name.lower() for word in ATTENTION)]
        facts: dict[str, Fact] = {"kernels": len(names) - copies, "copies": copies}
        if attends:
            facts["attention_kernel"] = max(attends, key=attends.count)[:160]
            facts["attention_kernels"] = len(attends)
        facts["softmax_kernels"] = sum("softmax" in n.lower() for n in names if n not in attends)
        return facts
    except Exception as error:
        return {"kernels_error": sentence(error)}


def graph_nodes(call: Call) -> dict[str, Fact]:
    """How many nodes a graph of the call has: kernels, copies and fills, as the driver counts."""
    try:
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        with torch.cuda.graph(graph):
            made = call()
        count = ctypes.c_size_t()
        driver = ctypes.CDLL("libcuda.so.1")
        raw = ctypes.c_void_p(graph.raw_cuda_graph())
        failed = driver.cuGraphGetNodes(raw, None, ctypes.byref(count))
        del made
        return {"graph_nodes_error": f"code {failed}"} if failed else {"graph_nodes": count.value}
    except Exception as error:
        return {"graph_nodes_error": sentence(error)}


def driver_says(what: str) -> str | None:
    """What nvidia-smi answers; None where there is none."""
    command = ["nvidia-smi", f"--query-gpu={what}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip().splitlines()[0] if done.returncode == 0 and done.stdout else None


def this_card(device: str) -> Card:
    """The device as it names itself, today."""
    today = date.today().isoformat()
    if device != "cuda":
        name, cores = device_name(device), os.cpu_count()
        return Card(name, today, memory_bytes(), cores, None, torch.__version__, None, None)
    p = torch.cuda.get_device_properties(0)
    asked = "clocks.max.sm,clocks.max.mem,power.limit"
    said = driver_says(asked)
    return Card(
        name=p.name,
        day=today,
        memory_bytes=int(p.total_memory),
        multiprocessors=int(p.multi_processor_count),
        l2_bytes=getattr(p, "L2_cache_size", None),
        torch=torch.__version__,
        cuda=torch.version.cuda,
        clock=None if said is None else f"{asked}: {said}",
    )


@contextmanager
def precision_of_fp32(name: str) -> Iterator[None]:
    """torch's "highest" (fp32) or "high" (TF32 on a card), meanwhile."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(name)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
