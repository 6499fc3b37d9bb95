"""Data without what the network cannot digest."""

from __future__ import annotations

from typing import Final

from tb_nanwatch.diagnose import columns, words
from tb_nanwatch.diagnose.batch import Batch
from tb_nanwatch.diagnose.operation import SOFTMAXES
from tb_nanwatch.diagnose.remedies import dataset
from tb_nanwatch.diagnose.remedies.remedy import Advice, Patient, number
from tb_nanwatch.format.records import BatchPart

SCALED: Final = (
    "input_extreme_scale", "saturated_activation", "exp_overflow", "growth_overflow", "float16_overflow",
    "bad_learning_rate", "loss_scale",
)  # fmt: skip


def clean_input(patient: Patient) -> Advice:
    """Filtered, scaled or with valid labels, by what is wrong with it."""
    if patient.cause == "label_invalid":
        return _labels(patient)
    if patient.setting.startswith("scale") or patient.cause in SCALED:
        return _scaled(patient)
    if patient.cause == "input_nonfinite":
        return _finite(patient)
    return _odd(patient)


# ---------------------------------------------------------------- what is not finite


def _finite(patient: Patient) -> Advice:
    name = words.printable(patient.bad_input) or "the batch"
    why = "A value that is not finite reaches every weight through the gradient; it has to go before the step."
    part = dataset.part(patient, patient.bad_input, label=patient.bad_input.startswith("y"))
    if patient.whole_batch:
        features = words.listing([str(f) for f in patient.features])
        where = f" at {'feature' if len(patient.features) == 1 else 'features'} {features}" if features else ""
        all_of_it = f"All {len(patient.samples)} samples of step {patient.step:,} hold it in {name}{where}"
        why = f"{why} {all_of_it}: drop none, but repair it."
        x = dataset.variable(patient, part)
        column = f"{x}[..., {patient.features[0]}]" if len(patient.features) == 1 else x
        return Advice(
            why,
            f"# {column} is not finite throughout: a column divided by its own deviation of 0, for example\n"
            + dataset.mapped(patient, part, lambda x: f"tf.where(tf.math.is_finite({x}), {x}, tf.zeros_like({x}))"),
        )
    which = words.samples(patient.samples)
    why = f"{why} At step {patient.step:,} it is {which} in {name}." if which else why
    return Advice(why, dataset.kept(patient, part, lambda x: f"tf.math.is_finite({x})"))


# ---------------------------------------------------------------- what is too large


def _scaled(patient: Patient) -> Advice:
    batch = _widest(patient)
    largest = batch.largest if batch is not None else _recorded(patient)
    name = words.printable(batch.name) if batch is not None else "x"
    reach = f" Here {name} reached {words.magnitude(largest)}." if largest else ""
    why = f"Networks are initialized for numbers of about 1; larger ones make every number behind them larger.{reach}"
    if batch is not None and batch.jump is not None and batch.jump >= 10 and batch.typical:
        return _bounded(patient, why, batch)
    odd = columns.odd(patient.run)
    if odd and patient.value is None:  # else the report has what a trial proved
        return _by_column(patient, why, odd[0])
    part = dataset.part(patient, batch.name if batch is not None else "", label=batch is not None and batch.label)
    largest = patient.value or largest
    divisor = "255." if 200 < largest <= 256.5 or not largest else number(largest)
    remark = "" if largest else "  # the largest value of your data"
    line = dataset.mapped(patient, part, lambda x: f"{_floating(patient, part, x)} / {divisor}")
    return Advice(why, f"{line}{remark}")


def _by_column(patient: Patient, why: str, part: BatchPart) -> Advice:
    """Only the columns that are so large, each by its own size, so that the others keep theirs."""
    size = f"{part.columns}, np.{part.dtype if part.dtype in ('float16', 'float64') else 'float32'}"
    places = columns.indices(part.extreme)
    reach = [number(column.reach) for column in part.extreme]
    values = reach[0] if len(reach) == 1 else f"[{', '.join(reach)}]"
    lines = (
        f"scale = np.ones({size})",
        f"scale[{places}] = {values}  # the largest value of each column that is so large",
        dataset.mapped(patient, part.name, lambda x: f"{_floating(patient, part.name, x)} / scale"),
    )
    return Advice(f"{why} {columns.of_them(part)}.", "\n".join(lines))


def _floating(patient: Patient, name: str, x: str) -> str:
    """`x`, cast where it holds whole numbers, as pictures do, which TensorFlow divides by none but their like."""
    dtype = next((part.dtype for part in columns.parts_of(patient.run) if part.name == name), "float32")
    if "float" in dtype:
        return x
    return f"np.asarray({x}, np.float32)" if dataset.fed(patient) else f"tf.cast({x}, tf.float32)"


def _widest(patient: Patient) -> Batch | None:
    """The part of the batch that was scaled when that was tried; else the one with the largest features."""
    asked = patient.setting.removeprefix("scale ").removeprefix("columns of ")
    named = [batch for batch in patient.batch if batch.name.partition("/")[0] == asked]
    features = named or [batch for batch in patient.batch if not batch.label] or list(patient.batch)
    return max(features, key=lambda batch: batch.largest, default=None)


def _bounded(patient: Patient, why: str, batch: Batch) -> Advice:
    bound = number(float(f"{2 * batch.typical:.1g}"))
    part = dataset.part(patient, batch.name, batch.label)
    said = f"{why} Before, nothing was above {words.magnitude(batch.typical)}."
    return Advice(said, dataset.mapped(patient, part, lambda x: f"tf.clip_by_value({x}, -{bound}, {bound})"))


def _recorded(patient: Patient) -> float:
    sizes = [patient.run.series(info.tag, "max_abs", 0, patient.step + 1).values for info in patient.run.kind("input")]
    return max((float(values.max(initial=0.0)) for values in sizes), default=0.0)


# ---------------------------------------------------------------- what a function is not defined for


def _odd(patient: Patient) -> Advice:
    """By what is unlike other batches: values outside of the function's domain, a jump, zeros; else where to look."""
    which = words.samples(patient.samples)
    held = f" At step {patient.step:,} it is {which}." if which and not patient.whole_batch else ""
    operand = patient.op.operand(0)
    divides = patient.cause in ("masked_or_empty_reduction", "division_by_zero")
    given = next((batch for batch in patient.batch if operand is not None and batch.name == operand.name), None)
    if given is not None and not divides:
        why = f"The values that the function is not defined for come with the data: correct or drop them.{held}"
        part = dataset.part(patient, given.name, given.label)
        return Advice(why, dataset.kept(patient, part, lambda x: f"{x} > 0"))
    jumped = max(
        (b for b in patient.batch if (b.jump or 0) >= 10 and b.typical), key=lambda b: b.jump or 0, default=None
    )
    if jumped is not None:
        why = f"{words.printable(jumped.name)} of this batch is far larger than any before.{held}"
        return _bounded(patient, why, jumped)
    zeros = next((batch for batch in patient.batch if batch.new_zeros and not batch.label), None)
    if zeros is not None or divides:
        what = "masked throughout" if patient.op.name in SOFTMAXES else "empty or all zero"
        why = (
            f"What is {what} carries nothing to learn from; without it the division by zero does not come about.{held}"
        )
        part = dataset.part(patient, zeros.name if zeros is not None else next(iter(patient.feeds), ""))
        return Advice(why, dataset.kept(patient, part, lambda x: f"{x} != 0", some=True))
    why = f"Something in this batch leads there, and its size does not say what: look at it.{held}"
    return Advice(why, dataset.shown(patient, patient.samples[0] if patient.samples else 0))


# ---------------------------------------------------------------- labels


def _labels(patient: Patient) -> Advice:
    logits, matrix = patient.op.operand(0), patient.last_layer
    shape = logits.shape if logits is not None else matrix.shape if matrix is not None else None
    classes = shape[-1] if shape else 0
    why = "A label that does not exist gives NaN on accelerators and under XLA, an error elsewhere: correct or drop it."
    part = dataset.part(patient, label=True)
    if patient.op.name not in ("", "SparseSoftmaxCrossEntropyWithLogits"):  # "": known from an error, which it raises
        return Advice(why, dataset.mapped(patient, part, lambda y: f"tf.clip_by_value({y}, 1e-7, 1.0)"))
    if classes <= 0:
        return Advice(why, dataset.valid(patient, part, lambda y: f"{y} >= 0"))
    return Advice(why, dataset.valid(patient, part, lambda y: f"({y} >= 0) & ({y} < {classes})"))
