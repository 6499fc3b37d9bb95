"""The data of a program as its own lines would have it: how a batch is taken apart, and what is done to one part of it.

What a batch is made of was recorded; without that, a batch is taken to be x and y.
"""

from __future__ import annotations

import keyword
from collections.abc import Callable
from typing import Final

from tb_nanwatch.diagnose import columns, words
from tb_nanwatch.diagnose.batch import is_label
from tb_nanwatch.diagnose.remedies.remedy import GRAPH, Patient

PIPELINES: Final = ("Iterator", "Dequeue", "Batch")  # in names of what comes into a graph without feed_dict
GUESSED: Final = ("x", "y")
USUAL_BATCH: Final = 32


def fed(patient: Patient) -> bool:
    """Whether a graph is fed its batches, rather than having them from a dataset or a queue."""
    return patient.style == GRAPH and not any(word in batch.name for batch in patient.batch for word in PIPELINES)


def part(patient: Patient, name: str = "", label: bool = False) -> str:
    """The name of the part that is meant: `name` if the batch has it, else the first of its features or labels."""
    names = _names(patient)
    if name in names:
        return name
    short = name.partition("/")[0]
    known = [n for n in names if n.partition("/")[0] == short]
    return next(iter(known), next((n for n in names if is_label(n) == label), names[0]))


def variable(patient: Patient, name: str) -> str:
    """A part as a lambda over the elements of the dataset reads it: "x", "x["table"]", "batch["x"]"."""
    top, _, path = name.partition("/")
    root = f'batch["{words.quoted(top)}"]' if _mapping(patient) else _argument(top)
    return root + "".join(
        f"[{step}]" if step.isdigit() else f'["{words.quoted(step)}"]' for step in path.split("/") if step
    )


def mapped(patient: Patient, name: str, value: Callable[[str], str]) -> str:
    """A line that puts value(part) into the place of a part."""
    if fed(patient):
        whole = _argument(_short(name))
        return f"{whole} = {value(whole).replace('tf.clip_by_value', 'np.clip')}  # before feed_dict"
    top, _, path = name.partition("/")
    new = value(variable(patient, name))
    if _mapping(patient):
        return f"dataset = dataset.map(lambda batch: {_with('batch', name, new)})"
    tops = _tops(patient)
    parts = [_with(_argument(top), path, new) if t == top else _argument(t) for t in tops]
    whole = parts[0] if len(parts) == 1 else f"({', '.join(parts)})"
    return f"dataset = dataset.map(lambda {', '.join(map(_argument, tops))}: {whole})"


def kept(patient: Patient, name: str, condition: Callable[[str], str], some: bool = False) -> str:
    """Lines that keep the samples for which a condition on a part holds everywhere, or somewhere."""
    if fed(patient):
        x = _argument(_short(name))
        good = condition(x).replace("tf.math.is_finite", "np.isfinite")
        rows = f"({good}).reshape(len({x}), -1).{'any' if some else 'all'}(axis=1)"
        return f"good = {rows}\n{_chosen(patient)}  # before feed_dict"
    return _filtered(patient, f"tf.{'reduce_any' if some else 'reduce_all'}({condition(variable(patient, name))})")


def valid(patient: Patient, name: str, condition: Callable[[str], str]) -> str:
    """Lines that keep the samples whose label, a number each, fulfils a condition."""
    if fed(patient):
        return f"good = {condition(_argument(_short(name)))}\n{_chosen(patient)}  # before feed_dict"
    return _filtered(patient, condition(variable(patient, name)))


def shown(patient: Patient, sample: int) -> str:
    """A line that prints one sample of the batch of the step in question."""
    if fed(patient):
        names = [_argument(top) for top in _tops(patient)]
        return f"print({', '.join(f'{n}[{sample}]' for n in names)})  # of the batch of step {patient.step}"
    leaves = [f"{variable(patient, name)}[{sample}]" for name in _names(patient)[:4]]
    loop = f"for {_arguments(patient)} in dataset.skip({patient.step}).take(1):"
    return f"{loop}\n    print({', '.join(leaves)})"


# ----------------------------------------------------------------


def _names(patient: Patient) -> list[str]:
    """Of the parts of a batch, in order."""
    feeding = fed(patient)
    known = [p.name for p in columns.parts_of(patient.run) if not feeding or p.shape]
    if known:
        return known
    recorded = [info.name for info in patient.run.kind("input") if not any(w in info.name for w in PIPELINES)]
    labels = [n for n in recorded if is_label(n)]
    return recorded if labels and len(labels) < len(recorded) else [*(recorded or GUESSED[:1]), GUESSED[1]]


def _tops(patient: Patient) -> list[str]:
    feeding = fed(patient)
    return list(dict.fromkeys(_short(name) if feeding else name.partition("/")[0] for name in _names(patient)))


def _short(name: str) -> str:
    """A placeholder's name without its scope, as a program may call what it feeds."""
    return name.rpartition("/")[2]


def _mapping(patient: Patient) -> bool:
    return not fed(patient) and patient.run.batch is not None and patient.run.batch.mapping


def _arguments(patient: Patient) -> str:
    return "batch" if _mapping(patient) else ", ".join(map(_argument, _tops(patient)))


def _argument(name: str) -> str:
    """A name that a lambda can have for a part."""
    fit = "".join(c if c.isalnum() or c == "_" else "_" for c in words.quoted(name) if c.isascii())
    fit = fit if fit.isidentifier() and not keyword.iskeyword(fit) else f"part_{fit}"
    return fit.strip(".") or "part"


def _with(root: str, path: str, new: str) -> str:
    """Source of `root` with `new` in the place at `path`, made of keys and indices."""
    if not path:
        return new
    step, _, rest = path.partition("/")
    if step.isdigit():
        at = int(step)
        before = f"*{root}[:{at}], " if at else ""
        return f"({before}{_with(f'{root}[{at}]', rest, new)}, *{root}[{at + 1}:])"
    key = f'"{words.quoted(step)}"'
    return f"{{**{root}, {key}: {_with(f'{root}[{key}]', rest, new)}}}"


def _filtered(patient: Patient, keep: str) -> str:
    return f"dataset = dataset.unbatch().filter(lambda {_arguments(patient)}: {keep}).batch({_size(patient)})"


def _chosen(patient: Patient) -> str:
    names = [_argument(top) for top in _tops(patient)]
    return f"{', '.join(names)} = {', '.join(f'{n}[good]' for n in names)}"


def _size(patient: Patient) -> int | str:
    """Samples of a batch, as recorded; a replica's part does not say how many the whole has."""
    if patient.replica >= 0:
        return "batch_size"
    shapes = [p.shape for p in columns.parts_of(patient.run)] + [info.shape for info in patient.run.kind("input")]
    return next((shape[0] for shape in shapes if shape and shape[0] > 0), USUAL_BATCH)
