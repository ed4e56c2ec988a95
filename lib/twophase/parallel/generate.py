"""Continue a prompt with a model that several processes run together:

    torchrun --nproc-per-node 4 -m twophase.parallel.generate --layout tensor \\
        --checkpoint gqa --prompt "def read_lines(path):"

`--checkpoint` is one of the course or a Hugging Face directory, of which each rank reads its boxes
only. On several machines torchrun is started on each, with its own `--nnodes` and
`--rdzv-endpoint`. `--ranks 4` in the place of torchrun starts four processes of this machine. With
`--backend nccl` each rank has the GPU of its number on its machine; that was run with one rank,
with more it is written by torch's documentation.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from twophase.kernels.collectives import CollectiveError, Comm, RankError
from twophase.measure.collectives import Tracer, meetings, sent_bytes, waited_s
from twophase.measure.events import Event, EventLog
from twophase.measure.tables import si
from twophase.models import hugging_face
from twophase.models.generate import Generation, complete_batch, decode, encode
from twophase.parallel.comm import join, leave
from twophase.parallel.layouts import LAYOUTS, build
from twophase.parallel.run import run_ranks
from twophase.parallel.weights import source_of

DTYPES = {"auto": None, "bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
BACKENDS = ("gloo", "nccl")


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, join, generate; rank 0 prints. Returns the exit status: 2 for bad input."""
    options = _parser().parse_args(arguments)
    try:
        _check(options)
        if options.ranks is not None:
            run = run_ranks(options.ranks, generate, options, patience_s=options.patience)
            _print(options, run[0], run.log)
            return 0
        return _as_rank(options)
    except (ValueError, CollectiveError, RankError) as error:
        if int(os.environ.get("RANK", 0)) == 0 or not isinstance(error, ValueError):
            says = str(error)
            if isinstance(error, RankError) and error.says.startswith("ValueError: "):
                says = error.says.removeprefix("ValueError: ")
            print(f"twophase.parallel.generate: {says}", file=sys.stderr)
        return 2


def _as_rank(options: argparse.Namespace) -> int:
    """One of torchrun's processes."""
    if "WORLD_SIZE" not in os.environ:
        raise ValueError(
            "this is a program for several processes: start it with torchrun --nproc-per-node N -m"
            " twophase.parallel.generate ..., or say --ranks N."
        )
    if options.backend == "nccl":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    comm = join(options.backend, options.patience)
    try:
        comm.barrier()  # all logs start now: waits are right to how far ranks leave it apart
        tracer = Tracer(comm)
        records = generate(tracer, options)
        own = _bytes(tracer.log).to(_device(options))
        lines = [_text(part) for part in comm.all_to_all([own] * comm.size)]
        if comm.rank == 0:
            _print(options, records, EventLog.merged(map(EventLog.from_lines, lines)))
    finally:
        leave()
    return 0


def generate(comm: Comm, options: argparse.Namespace) -> list[Generation]:
    """What one rank does: build its part, continue the prompts."""
    source = source_of(options.checkpoint)
    model = build(options.layout, source, comm, DTYPES[options.dtype], _device(options))
    prompts, stop = _tokens(options, source.config.V)
    generators = [torch.Generator().manual_seed(options.seed + b) for b in range(len(prompts))]
    return complete_batch(
        model,
        prompts,
        options.tokens,
        temperature=options.temperature,
        generators=generators,
        stop=stop,
    )


def _device(options: argparse.Namespace) -> torch.device:
    """Where this rank computes: NCCL speaks of what is on its GPU only."""
    if options.backend == "nccl":
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def _tokens(options: argparse.Namespace, V: int) -> tuple[list[list[int]], list[list[int]]]:
    """The prompts as tokens, and what ends a text."""
    folder = Path(options.checkpoint)
    if options.token_ids:
        try:
            prompts = [[int(word) for word in text.split()] for text in options.prompt]
        except ValueError:
            raise ValueError(
                f'with --token-ids a prompt is whole numbers, as in "1 15043"; got {options.prompt}'
            ) from None
        return prompts, []
    if not folder.is_dir():
        return [encode(text) for text in options.prompt], []
    tokenizer = hugging_face.Tokenizer(folder, V)
    ends = [[token] for token in hugging_face.stop_tokens(folder)]
    return [tokenizer.encode(text) for text in options.prompt], ends


def _print(options: argparse.Namespace, records: Sequence[Generation], log: EventLog) -> None:
    """The texts, what was sent, who was waited for."""
    folder = Path(options.checkpoint)
    for text, record in zip(options.prompt, records, strict=True):
        if options.token_ids:
            print(text, *record.tokens)
        elif folder.is_dir():
            print(
                text + "".join(hugging_face.Tokenizer(folder).stream(record.prompt, record.tokens))
            )
        else:
            print(text + decode(record.tokens))
    print(report(log), file=sys.stderr)
    if options.trace:
        Path(options.trace).write_text(log.to_lines(), encoding="utf-8")


def report(log: EventLog) -> str:
    """What the ranks of a log sent, by phase and collective, how long each waited in which for the
    others, and who was waited for most."""
    calls: defaultdict[tuple[str, str], list[Event]] = defaultdict(list)
    for event in log.select("collective"):
        calls[event["phase"] or "before", event["op"]].append(event)
    lines = [
        f"{phase}: {op} {len(events)} times, {si(sent_bytes(events), 'B')} sent by all ranks"
        for (phase, op), events in calls.items()
    ]
    ranks = sorted({event["rank"] for event in log.select("collective")})
    waited: defaultdict[str, dict[int, float]] = defaultdict(lambda: dict.fromkeys(ranks, 0.0))
    caused = dict.fromkeys(ranks, 0.0)
    for met in meetings(log):
        last = max(met, key=lambda event: float(event["start_s"]))
        for event, seconds in waited_s(met):
            waited[event["op"]][event["rank"]] += seconds
            caused[last["rank"]] += seconds
    if len(ranks) > 1 and waited:
        for op, by_rank in waited.items():
            each = ", ".join(f"rank {rank} {si(s, 's')}" for rank, s in by_rank.items())
            lines.append(f"waited for others in {op}: {each}")
        slow = max(ranks, key=lambda rank: caused[rank])
        lines.append(f"rank {slow} was waited for most: {si(caused[slow], 's')} of all ranks")
    return "\n".join(lines)


def _bytes(log: EventLog) -> torch.Tensor:
    return torch.tensor(list(log.to_lines().encode()), dtype=torch.uint8)


def _text(numbers: torch.Tensor) -> str:
    return bytes(numbers.tolist()).decode()


def _check(options: argparse.Namespace) -> None:
    """ValueError, in one sentence, for what cannot be."""
    if not all(options.prompt):
        raise ValueError("the prompt is empty: give the model some text to continue.")
    if options.tokens < 1:
        raise ValueError(f"--tokens needs at least 1 new token; got {options.tokens}.")
    if options.ranks is not None and options.backend != "gloo":
        raise ValueError("--ranks starts processes without GPUs: for nccl use torchrun.")
    if options.backend == "nccl" and not torch.cuda.is_available():
        raise ValueError("--backend nccl: torch finds no CUDA device here; use gloo.")
    if options.trace and not Path(options.trace).absolute().parent.is_dir():
        raise ValueError(f"--trace: there is no folder {Path(options.trace).absolute().parent}.")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "twophase.parallel.generate", description="Continue a prompt on several ranks together."
    )
    add: Any = parser.add_argument
    add("--layout", default="tensor", choices=LAYOUTS, help="how the model is cut")
    add("--checkpoint", default="gqa", help="of the course, or a Hugging Face directory")
    add("--prompt", required=True, nargs="+", help="the text to continue, or several of them")
    add("--tokens", type=int, default=40, help="new tokens at most")
    add("--temperature", type=float, default=0.0, help="0 takes the likeliest token each time")
    add("--seed", type=int, default=0, help="of the first prompt's draws")
    add("--dtype", default="auto", choices=DTYPES, help="auto: as the checkpoint is stored")
    add("--token-ids", action="store_true", help="prompts are tokens, as numbers; so is the result")
    add("--backend", default="gloo", choices=BACKENDS, help="nccl: a GPU for each rank")
    add("--ranks", type=int, help="start so many processes here, without torchrun")
    add("--patience", type=float, default=60.0, help="seconds that a rank waits for the others")
    add("--trace", help="write the events of all ranks to this file")
    return parser


if __name__ == "__main__":
    sys.exit(main())
