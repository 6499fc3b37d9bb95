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
    places = (_place(place) for place in case.replay.get("features", ()) if isinstance(place, list))
    features = [place for place in places if place]
    if features:
        evidence.append(f"at {'feature' if len(features) == 1 else 'features'} {words.listing(features)} of the sample")
    return Cause("input_nonfinite", 1.0, tuple(evidence), ("clean_input",))


def _place(indices: list[object]) -> str:
    """Where in a sample: "3", "(0, 12)"."""
    numbers = [str(index) for index in indices if isinstance(index, int)]
    return numbers[0] if len(numbers) == 1 else f"({', '.join(numbers)})" if numbers else ""
