"""A label that does not exist, for which the loss raised an error and so ended the run.

No threshold: the kernel of the sparse cross-entropy says which label it refused and which classes there are. Under XLA
and on accelerators it makes NaN instead: that is an incident, with a cause of the same name.
"""

from __future__ import annotations

from collections.abc import Iterable

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.ended import error_of, line_of, refused_label, samples_with
from tb_nanwatch.diagnose.rules.finding import Finding
from tb_nanwatch.store.run import Run


def label_invalid(run: Run) -> Iterable[Finding]:
    """The label, the classes that exist, and the samples where they are known."""
    note = error_of(run)
    refused = None if note is None else refused_label(note.text)
    if note is None or refused is None:
        return
    label, low, end = refused
    given = f"the loss was given the label {label}, and the logits know the classes {low} to {end - 1} only"
    line = line_of(note.text)
    where = f" ({words.printable(line)})" if line else ""
    evidence = [f"an error{where} ended the run: {given}"]
    samples = words.samples(samples_with(note.text, low, end))
    if samples:
        evidence.append(f"in its batch it was {samples}")
    if label == end:
        evidence.append("labels that count from 1 look like this, and so does a last layer with one unit too few")
    loss = next((info.name for info in run.kind("loss")), "")
    yield Finding("label_invalid", "warning", loss, note.step, note.step, tuple(evidence), ("clean_input",), "loss")
