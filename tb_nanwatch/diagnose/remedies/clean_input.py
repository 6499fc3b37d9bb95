"""Data without what the network cannot digest."""

from __future__ import annotations

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.operation import SOFTMAXES
from tb_nanwatch.diagnose.remedies.remedy import GRAPH, Advice, Patient, number


def clean_input(patient: Patient) -> Advice:
    """Filtered, scaled or with valid labels, by what is wrong with it."""
    if patient.cause == "label_invalid":
        return _labels(patient)
    if patient.cause in (
        "input_extreme_scale",
        "saturated_activation",
        "exp_overflow",
        "growth_overflow",
        "float16_overflow",
        "bad_learning_rate",
    ):
        return _scaled(patient)
    if patient.cause in ("masked_or_empty_reduction", "division_by_zero"):
        return _empty(patient)
    if patient.cause in ("log_of_nonpositive", "nan_gradient_through_where", "domain_error"):
        return _legal(patient)
    return _finite(patient)


def _legal(patient: Patient) -> Advice:
    held = f" At step {patient.step:,} it is {words.samples(patient.samples)}." if patient.samples else ""
    why = f"The values that the function is not defined for come with the data: correct or drop them.{held}"
    if patient.style == GRAPH:
        return Advice(why, "good = (x > 0).all(axis=-1)\nx, y = x[good], y[good]  # before feed_dict")
    return Advice(why, f"dataset = dataset.unbatch().filter(lambda x, y: tf.reduce_all(x > 0)).batch({_size(patient)})")


def _finite(patient: Patient) -> Advice:
    which = words.samples(patient.samples)
    name = words.printable(patient.bad_input) or "the batch"
    held = f" At step {patient.step:,} it is {which} in {name}." if which else ""
    why = f"A value that is not finite reaches every weight through the gradient; it has to go before the step.{held}"
    field = "y" if patient.bad_input.startswith("y") else "x"
    if patient.style == GRAPH:
        rows = f"np.isfinite({field}.reshape(len({field}), -1)).all(axis=1)"
        return Advice(why, f"good = {rows}\nx, y = x[good], y[good]  # before feed_dict")
    keep = f"tf.reduce_all(tf.math.is_finite({field}))"
    return Advice(why, f"dataset = dataset.unbatch().filter(lambda x, y: {keep}).batch({_size(patient)})")


def _scaled(patient: Patient) -> Advice:
    features = [batch for batch in patient.batch if not batch.label] or patient.batch
    widest = max(features, key=lambda batch: batch.largest, default=None)
    largest = widest.largest if widest is not None else _recorded(patient)
    name = words.printable(widest.name) if widest is not None else "x"
    reach = f" Here {name} reached {words.magnitude(largest)}." if largest else ""
    why = f"Networks are initialized for inputs of about 1; larger ones make every number behind them larger.{reach}"
    typical = widest.typical if widest is not None else 0.0
    if widest is not None and widest.jump is not None and widest.jump >= 10 and typical:
        bound = number(float(f"{2 * typical:.1g}"))
        line = f"lambda x, y: (tf.clip_by_value(x, -{bound}, {bound}), y)"
        return Advice(why, f"dataset = dataset.map({line})  # before, nothing was above {words.magnitude(typical)}")
    divisor = "255." if 200 < largest <= 256.5 else number(largest) if largest else "scale"
    if patient.style == GRAPH:
        return Advice(why, f"x = x / {divisor}  # before feed_dict")
    return Advice(why, f"dataset = dataset.map(lambda x, y: (x / {divisor}, y))")


def _recorded(patient: Patient) -> float:
    sizes = [patient.run.series(info.tag, "max_abs", 0, patient.step + 1).values for info in patient.run.kind("input")]
    return max((float(values.max(initial=0.0)) for values in sizes), default=0.0)


def _labels(patient: Patient) -> Advice:
    logits, matrix = patient.op.operand(0), patient.last_layer
    shape = logits.shape if logits is not None else matrix.shape if matrix is not None else None
    classes = shape[-1] if shape else None
    why = "A label that does not exist gives NaN on accelerators and under XLA, an error elsewhere: correct or drop it."
    if patient.op.name not in ("", "SparseSoftmaxCrossEntropyWithLogits"):  # "": known from an error, which it raises
        return Advice(why, "dataset = dataset.map(lambda x, y: (x, tf.clip_by_value(y, 1e-7, 1.0)))")
    valid = f"(y >= 0) & (y < {classes or 'num_classes'})"
    if patient.style == GRAPH:
        return Advice(why, f"good = {valid}\nx, y = x[good], y[good]  # before feed_dict")
    return Advice(why, f"dataset = dataset.unbatch().filter(lambda x, y: {valid}).batch({_size(patient)})")


def _empty(patient: Patient) -> Advice:
    which = words.samples(patient.samples)
    held = f": at step {patient.step:,} {which} of the batch" if which else ""
    what = "masked throughout" if patient.op.name in SOFTMAXES else "empty or all zero"
    why = f"What is {what} carries nothing to learn from{held}; without it the division by zero does not come about."
    return Advice(
        why, "dataset = dataset.unbatch().filter(lambda x, y: tf.reduce_any(x != 0)).batch(" + _size(patient) + ")"
    )


def _size(patient: Patient) -> str:
    shape = next((info.shape for info in patient.run.kind("input") if info.shape), ())
    return str(shape[0]) if shape and shape[0] > 0 else "batch_size"
