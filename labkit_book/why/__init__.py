"""Why isn't it faster? An account of a recorded job's own steps, and what each cure would bring: what lab 2.2 is about.

recorder = StragglerRecorder(model)   # from labkit.train.recorder, before DistributedDataParallel wraps the model
...                                   # the loop as it is
answer = why(recorder)                # on every rank; print it on one
"""

from __future__ import annotations

from labkit.train.recorder import StragglerRecorder
from labkit_book.why.account import account
from labkit_book.why.answer import Row, Why
from labkit_book.why.probe import probe as probed
from labkit_book.why.steps import Steps

__all__ = ["Row", "Steps", "Why", "account", "measure", "why"]


def why(recorder: StragglerRecorder, false_alarm: float = 0.01) -> Why:
    """Where the recorded steps went and what would help: ``account(measure(recorder), false_alarm)``. A collective."""
    return account(measure(recorder), false_alarm)


def measure(recorder: StragglerRecorder) -> Steps:
    """What was recorded, and what is measured now beside it, for ``account`` or ``save``. A collective.

    All ranks repeat a forward and backward pass, in turn and together, without an all-reduce (nothing of theirs changes),
    and clock all-reduces between them: some twenty steps' time. Where the model can't be asked again, as behind
    ``checkpoint(use_reentrant=True)``, computing is not told apart. Raises ValueError as ``recorder.report()`` does.
    """
    recording = recorder.report()
    return Steps.of(recording, recorder.gathered(probed(recorder, recording)))
