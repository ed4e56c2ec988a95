"""What happens in a generation with drafts, as events: drafts, passes, what stays, verdicts."""

from collections.abc import Callable, Sequence
from typing import Any

from twophase.kernels.sampling import Choose
from twophase.measure.events import EventLog
from twophase.models.observe import observe
from twophase.models.speculative_decoding.drafts import Draft, Drafter, Text
from twophase.models.speculative_decoding.law import Law
from twophase.models.speculative_decoding.loop import Speculation, speculate_batch
from twophase.models.transformer import Transformer


def speculation_log(
    model: Transformer,
    drafter: Drafter,
    prompts: Sequence[Sequence[int]],
    n_new: int,
    **options: Any,
) -> tuple[EventLog, list[Speculation]]:
    """Run `speculate_batch` to its end, with its options, and return what happened in it and its
    records. Passes are the target's; what a draft reads is left out."""
    records = [Speculation() for _ in prompts]
    own = drafter.propose
    with observe(model) as log:

        def noted(
            texts: Sequence[Text], counts: Sequence[int], law: Law, dice: Callable[[int], Choose]
        ) -> list[Draft]:
            drafts = own(texts, counts, law, dice)
            for row, (text, draft) in enumerate(zip(texts, drafts, strict=True)):
                if text is not None:
                    log.write(
                        "draft", row=row, tokens=draft.tokens, parents=list(draft.parents or ())
                    )
            return drafts

        drafter.propose = noted  # type: ignore[method-assign]
        try:
            judged = [0] * len(records)
            steps = speculate_batch(model, drafter, prompts, n_new, records=records, **options)
            for _ in steps:
                for row, record in enumerate(records):
                    for call in record.calls[judged[row] :]:
                        log.write("verdict", row=row, kept=list(call.kept), token=call.token)
                    judged[row] = len(record.calls)
        finally:
            del drafter.propose
    return log, records
