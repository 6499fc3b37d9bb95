"""What a user may set, checked before anything is touched."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from tb_nanwatch.errors import UsageError

POLICIES: Final = ("record", "stop", "raise", "skip")


@dataclass(frozen=True)
class Options:
    """The options that every entry point takes, with their defaults.

    every: steps between full statistics; norms come at every step.
    on_nonfinite: "record" (leave the training as it is), "stop", "raise" or "skip".
    replay, replay_megabytes: rewind and replay, and the memory it may take.
    trial_seconds: time for trying remedies on the recorded steps of an incident; 0 switches it off.
    disk_megabytes: all that the run may write, older history being thinned to keep it.
    activations: whether outputs of layers are read.
    include, exclude: name patterns as in a shell (`decoder/*`), matched with layer and tensor names.
    also_scalars: norms in TensorBoard's own Scalars tab too.
    """

    every: int = 10
    on_nonfinite: str = "record"
    replay: bool = True
    replay_megabytes: int = 1024
    trial_seconds: int = 60
    disk_megabytes: int = 1024
    activations: bool = True
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    also_scalars: bool = False

    def wants(self, name: str, layer: str) -> bool:
        """Whether a tensor is to be read, by its name and its layer's."""

        def hit(patterns: Sequence[str]) -> bool:
            return any(fnmatch.fnmatchcase(n, p) for p in patterns for n in (name, layer))

        return (not self.include or hit(self.include)) and not hit(self.exclude)

    def as_text(self) -> dict[str, str]:
        return {f.name: str(getattr(self, f.name)) for f in fields(self)}


def parse(given: dict[str, Any]) -> Options:
    """Options from keyword arguments. Raises UsageError that names the option, the value and what is allowed."""
    known = {f.name for f in fields(Options)}
    unknown = sorted(set(given) - known)
    if unknown:
        raise UsageError(f"unknown option {unknown[0]!r}; the options are {', '.join(sorted(known))}")
    checked = dict(given)
    for name in ("every", "disk_megabytes", "replay_megabytes"):
        value = checked.get(name, 1)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UsageError(f"{name} must be a whole number of at least 1, not {value!r}")
    seconds = checked.get("trial_seconds", 0)
    if isinstance(seconds, bool) or not isinstance(seconds, int) or seconds < 0:
        raise UsageError(f"trial_seconds must be a whole number of seconds, 0 for none, not {seconds!r}")
    if checked.get("on_nonfinite", "record") not in POLICIES:
        raise UsageError(f"on_nonfinite must be one of {', '.join(POLICIES)}, not {checked['on_nonfinite']!r}")
    for name in ("include", "exclude"):
        value = checked.get(name) or ()
        checked[name] = (value,) if isinstance(value, str) else tuple(value)
        if not all(isinstance(pattern, str) for pattern in checked[name]):
            raise UsageError(f"{name} takes a name pattern or a list of them, not {value!r}")
    for name in ("replay", "activations", "also_scalars"):
        if not isinstance(checked.get(name, True), bool):
            raise UsageError(f"{name} is either True or False, not {checked[name]!r}")
    return Options(**checked)
