"""A scheduler's decision as events of the log."""

from twophase.measure.events import EventLog
from twophase.serving.block_manager import BlockManager
from twophase.serving.request import Request
from twophase.serving.scheduled import CopyBlock, Scheduled
from twophase.serving.scheduler import Scheduler


def note_schedule(log: EventLog, made: Scheduled, scheduler: Scheduler) -> None:
    """Write down who gives way, who joins, which blocks are copied, and who reads what."""
    for request in made.preempted:
        log.write("preempt", request=request.id, how=scheduler.config.preemption)
    for request in made.admitted:
        log.write("admit", request=request.id, shared=request.n_shared)
    for move in made.moves:
        if isinstance(move, CopyBlock):
            log.write("copy_block", source=move.source, target=move.target)
    if made.n_new:
        note_pass(log, made.n_new, scheduler.blocks, len(scheduler.waiting))


def note_pass(log: EventLog, n_new: dict[Request, int], blocks: BlockManager, waiting: int) -> None:
    """Write down who reads how many tokens now, and in which blocks."""
    log.write(
        "pass",
        requests=[request.id for request in n_new],
        starts=[request.n_computed for request in n_new],
        n_new=list(n_new.values()),
        tables=[list(blocks.tables[request.id]) for request in n_new],
        waiting=waiting,
        free_blocks=blocks.n_free,
    )
