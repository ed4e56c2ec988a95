"""Speculative decoding: a draft proposes tokens, the target reads them all in one pass and keeps
what its own law allows."""

from twophase.models.speculative_decoding.acceptance import acceptance_rate, sample_batch
from twophase.models.speculative_decoding.drafts import (
    Draft,
    Drafter,
    FeatureReader,
    LookupDrafter,
    ModelDrafter,
)
from twophase.models.speculative_decoding.features import FeatureDrafter, FeatureHead
from twophase.models.speculative_decoding.from_target import in_few_bits, without_layers
from twophase.models.speculative_decoding.law import Law
from twophase.models.speculative_decoding.log import speculation_log
from twophase.models.speculative_decoding.loop import Call, Speculation, speculate, speculate_batch
from twophase.models.speculative_decoding.medusa import MedusaDrafter, MedusaHeads
from twophase.models.speculative_decoding.trees import TreeDrafter

__all__ = [
    "Call",
    "Draft",
    "Drafter",
    "FeatureDrafter",
    "FeatureHead",
    "FeatureReader",
    "Law",
    "LookupDrafter",
    "MedusaDrafter",
    "MedusaHeads",
    "ModelDrafter",
    "Speculation",
    "TreeDrafter",
    "acceptance_rate",
    "in_few_bits",
    "sample_batch",
    "speculate",
    "speculate_batch",
    "speculation_log",
    "without_layers",
]
