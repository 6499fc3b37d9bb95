"""Why a step that was not finite in training may be finite op by op."""

from __future__ import annotations

from tb_nanwatch.record.retrospect import Retrospect


def why(looking: Retrospect | None, under_xla: bool, replica: int) -> str:
    """Why a step may be finite op by op that was not finite in training; nobody looks at steps that draw anew."""
    if looking is None:
        return ": it draws random numbers from a state inside TensorFlow's kernels, which cannot be put back"
    if looking.repeated is False:
        return ": its steps do not repeat, so something random or outside of TensorFlow has a part in it"
    if replica >= 0 and looking.repeated:
        return ", as each replica's part was alone: only what they add up to is bad, or only compiled kernels fail"
    if looking.repeated:
        alone = ", and so were its ops under XLA, each alone" if under_xla else ""
        return f"{alone}; as it was compiled it fails again: only kernels of the compiled step make the bad value"
    return ": it draws random numbers anew, or only a compiled kernel fails"
