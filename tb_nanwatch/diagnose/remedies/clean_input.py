"""Data without what the network cannot digest."""

from __future__ import annotations

from typing import Final

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.batch import Batch
from tb_nanwatch.diagnose.operation import SOFTMAXES
from tb_nanwatch.diagnose.remedies.remedy import GRAPH, Advice, Patient, number

SCALED: Final = (
    "input_extreme_scale", "saturated_activation", "exp_overflow", "growth_overflow", "float16_overflow",
    "bad_learning_rate", "loss_scale",
)  # fmt: skip
DATASETS: Final = ("Iterator", "Dequeue", "Batch")  # in names of what comes into a graph without feed_dict


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
    field = "y" if patient.bad_input.startswith("y") else "x"
    if patient.whole_batch:
        features = words.listing([str(f) for f in patient.features])
        where = f" at {'feature' if len(patient.features) == 1 else 'features'} {features}" if features else ""
        all_of_it = f"All {len(patient.samples)} samples of step {patient.step:,} hold it in {name}{where}"
        why = f"{why} {all_of_it}: drop none, but repair it."
        column = f"{field}[..., {patient.features[0]}]" if len(patient.features) == 1 else field
        return Advice(
            why,
            f"# {column} is not finite throughout: a column divided by its own deviation of 0, for example\n"
            + _mapped(patient, f"tf.where(tf.math.is_finite({field}), {field}, tf.zeros_like({field}))", field),
        )
    which = words.samples(patient.samples)
    why = f"{why} At step {patient.step:,} it is {which} in {name}." if which else why
    return _kept(patient, why, f"tf.math.is_finite({field})", f"np.isfinite({field})", field)


# ---------------------------------------------------------------- what is too large


def _scaled(patient: Patient) -> Advice:
    batch = _widest(patient)
    largest = batch.largest if batch is not None else _recorded(patient)
    name = words.printable(batch.name) if batch is not None else "x"
    reach = f" Here {name} reached {words.magnitude(largest)}." if largest else ""
    why = f"Networks are initialized for numbers of about 1; larger ones make every number behind them larger.{reach}"
    field = "y" if batch is not None and batch.label else "x"
    if batch is not None and batch.jump is not None and batch.jump >= 10 and batch.typical:
        return _bounded(patient, why, batch)
    largest = patient.value or largest
    divisor = "255." if 200 < largest <= 256.5 else number(largest) if largest else "scale"
    return Advice(why, _mapped(patient, f"{field} / {divisor}", field))


def _widest(patient: Patient) -> Batch | None:
    """The part of the batch that was scaled when that was tried; else the one with the largest features."""
    asked = patient.setting.removeprefix("scale ")
    named = [batch for batch in patient.batch if batch.name.partition("/")[0] == asked]
    features = named or [batch for batch in patient.batch if not batch.label] or list(patient.batch)
    return max(features, key=lambda batch: batch.largest, default=None)


def _bounded(patient: Patient, why: str, batch: Batch) -> Advice:
    bound = number(float(f"{2 * batch.typical:.1g}"))
    field = "y" if batch.label else "x"
    said = f"{why} Before, nothing was above {words.magnitude(batch.typical)}."
    return Advice(said, _mapped(patient, f"tf.clip_by_value({field}, -{bound}, {bound})", field))


def _recorded(patient: Patient) -> float:
    sizes = [patient.run.series(info.tag, "max_abs", 0, patient.step + 1).values for info in patient.run.kind("input")]
    return max((float(values.max(initial=0.0)) for values in sizes), default=0.0)


# ---------------------------------------------------------------- what a function is not defined for


def _odd(patient: Patient) -> Advice:
    """By what is unlike other batches: values outside of the function's domain, a jump, zeros; else where to look."""
    which = words.samples(patient.samples)
    held = f" At step {patient.step:,} it is {which}." if which and not patient.whole_batch else ""
    operand = patient.op.operand(0)
    given = next((batch for batch in patient.batch if operand is not None and batch.name == operand.name), None)
    if given is not None:
        why = f"The values that the function is not defined for come with the data: correct or drop them.{held}"
        field = "y" if given.label else "x"
        return _kept(patient, why, f"{field} > 0", f"{field} > 0", field)
    jumped = max(
        (b for b in patient.batch if (b.jump or 0) >= 10 and b.typical), key=lambda b: b.jump or 0, default=None
    )
    if jumped is not None:
        why = f"{words.printable(jumped.name)} of this batch is far larger than any before.{held}"
        return _bounded(patient, why, jumped)
    zeros = next((batch for batch in patient.batch if batch.new_zeros and not batch.label), None)
    if zeros is not None or patient.cause in ("masked_or_empty_reduction", "division_by_zero"):
        what = "masked throughout" if patient.op.name in SOFTMAXES else "empty or all zero"
        why = (
            f"What is {what} carries nothing to learn from; without it the division by zero does not come about.{held}"
        )
        return _kept(patient, why, "x != 0", "x != 0", "x", some=True)
    why = f"Something in this batch leads there, and its size does not say what: look at it.{held}"
    sample = patient.samples[0] if patient.samples else 0
    return Advice(why, f"print(x[{sample}], y[{sample}])  # of the batch of step {patient.step}")


# ---------------------------------------------------------------- as the program reads its data


def _fed(patient: Patient) -> bool:
    """Whether a graph is fed its batches, rather than having them from a dataset or a queue."""
    return patient.style == GRAPH and not any(word in batch.name for batch in patient.batch for word in DATASETS)


def _mapped(patient: Patient, value: str, field: str) -> str:
    if _fed(patient):
        return f"{field} = {value.replace('tf.clip_by_value', 'np.clip')}  # before feed_dict"
    return (
        f"dataset = dataset.map(lambda x, y: ({value}, y))"
        if field == "x"
        else (f"dataset = dataset.map(lambda x, y: (x, {value}))")
    )


def _kept(patient: Patient, why: str, condition: str, in_numpy: str, field: str, some: bool = False) -> Advice:
    """Samples for which a condition holds everywhere, or somewhere."""
    if _fed(patient):
        rows = f"({in_numpy}).reshape(len({field}), -1).{'any' if some else 'all'}(axis=1)"
        return Advice(why, f"good = {rows}\nx, y = x[good], y[good]  # before feed_dict")
    keep = f"tf.{'reduce_any' if some else 'reduce_all'}({condition})"
    return Advice(why, f"dataset = dataset.unbatch().filter(lambda x, y: {keep}).batch({_size(patient)})")


# ---------------------------------------------------------------- labels


def _labels(patient: Patient) -> Advice:
    logits, matrix = patient.op.operand(0), patient.last_layer
    shape = logits.shape if logits is not None else matrix.shape if matrix is not None else None
    classes = shape[-1] if shape else None
    why = "A label that does not exist gives NaN on accelerators and under XLA, an error elsewhere: correct or drop it."
    if patient.op.name not in ("", "SparseSoftmaxCrossEntropyWithLogits"):  # "": known from an error, which it raises
        return Advice(why, "dataset = dataset.map(lambda x, y: (x, tf.clip_by_value(y, 1e-7, 1.0)))")
    valid = f"(y >= 0) & (y < {classes or 'num_classes'})"
    if _fed(patient):
        return Advice(why, f"good = {valid}\nx, y = x[good], y[good]  # before feed_dict")
    return Advice(why, f"dataset = dataset.unbatch().filter(lambda x, y: {valid}).batch({_size(patient)})")


def _size(patient: Patient) -> str:
    shape = next((info.shape for info in patient.run.kind("input") if info.shape), ())
    return str(shape[0]) if shape and shape[0] > 0 else "batch_size"
