"""The batch already held NaN or Inf: nothing in the network made it."""

from __future__ import annotations

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.causes.cause import Case, Cause


def input_nonfinite(case: Case) -> Cause | None:
    """Certain when the recorder saw the bad values in the batch itself."""
    origin = case.incident.origin
    if origin.phase != "input":
        return None
    what = words.bad_elements(origin.output)
    seen = f"{words.place('input', origin.tensor)} held non-finite values before the step ran"
    evidence = [f"{seen}: {what}" if what else seen]
    if origin.samples:
        evidence.append(f"they are in {words.samples(origin.samples)} of the batch")
    return Cause("input_nonfinite", 1.0, tuple(evidence), ("clean_input",))
