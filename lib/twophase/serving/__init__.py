"""Many requests on one model: a block manager, a scheduler, a model runner and the loop that joins
them (`Engine`). `LLM` is the short way in.

A request's life, in eight steps: it arrives (`Engine.add`) and is checked; it waits in the
scheduler's queue; it is admitted when a seat and blocks are free, and finds how much of its
prompt others have left (`BlockManager.find`); its prompt is read in chunks (prefill); each
further step appends one token, and a block now and then; when blocks run out it may be
preempted and come back; it forks where several answers are wanted; it finishes, and its
blocks are free again.
"""

from twophase.serving.beam_search import Hypothesis, beam_search
from twophase.serving.block_manager import BlockManager, NoFreeBlocks
from twophase.serving.config import EngineConfig
from twophase.serving.engine import Engine
from twophase.serving.llm import LLM
from twophase.serving.policy import (
    ContinuousBatching,
    DynamicBatching,
    Policy,
    ShortestFirst,
    StaticBatching,
)
from twophase.serving.request import Request, SamplingParams, Status
from twophase.serving.scheduler import Scheduler

__all__ = [
    "LLM",
    "BlockManager",
    "ContinuousBatching",
    "DynamicBatching",
    "Engine",
    "EngineConfig",
    "Hypothesis",
    "NoFreeBlocks",
    "Policy",
    "Request",
    "SamplingParams",
    "Scheduler",
    "ShortestFirst",
    "StaticBatching",
    "Status",
    "beam_search",
]
