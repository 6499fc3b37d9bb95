"""The records as Python sees them: frozen dataclasses over numpy columns. `codec` turns them into bytes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

FORMAT_VERSION: Final = 1

#: Kinds of tensors, in the order in which a step touches them.
KINDS: Final = ("input", "activation", "loss", "gradient", "applied", "update", "weight", "metric", "scalar")
#: Kinds that are stored as values; all others as norms.
SCALAR_KINDS: Final = ("loss", "metric", "scalar")
#: Phases of a step, in order.
PHASES: Final = ("input", "forward", "loss", "backward", "update", "weights", "metric")


@dataclass(frozen=True)
class RunHeader:
    """First record of every file. Times in seconds since the epoch."""

    writer_id: str
    format_version: int = FORMAT_VERSION
    segment: int = 0
    attempt: int = 0
    first_step: int = 0
    wall_time: float = 0.0
    host: str = ""
    pid: int = 0
    entry_point: str = ""
    every: int = 10
    versions: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    worker: int = 0
    error_policy: str = "record"


@dataclass(frozen=True)
class TensorInfo:
    """What is known of a tensor once. `tag` is unique in the run: "weight/dense_1/kernel"."""

    id: int
    kind: str
    name: str
    layer: str = ""
    layer_class: str = ""
    dtype: str = "float32"
    shape: tuple[int, ...] | None = None
    order: int = 0
    trainable: bool = False
    activation: str = ""  # of an output: the function that its layer ends with, such as "relu"; empty where not known

    @property
    def tag(self) -> str:
        """Name that is unique in the run, such as "gradient/dense_1/kernel"."""
        return f"{self.kind}/{self.name}"


@dataclass(frozen=True)
class StepBlock:
    """Steps of many tensors.

    steps, iterations int64[n]; wall_times float64[n]; norm_ids int64[m]; norms uint16[n, m] (magnitude codes);
    scalar_ids int64[k]; scalars float32[n, k], NaN also where a scalar was not measured.
    """

    steps: NDArray[np.int64]
    wall_times: NDArray[np.float64]
    iterations: NDArray[np.int64]
    norm_ids: NDArray[np.int64]
    norms: NDArray[np.uint16]
    scalar_ids: NDArray[np.int64]
    scalars: NDArray[np.float32]
    stride: int = 1


@dataclass(frozen=True)
class BlockSummary:
    """What a StepBlock says before its planes are unpacked: enough for one column of a zoomed-out heatmap.

    low, high uint16[m]: smallest and largest finite code, 0 where there is none (a zero magnitude is code 1);
    state uint8[m]: all state bits seen (NAN 1, POS_INF 2, NEG_INF 4, UNKNOWN 8). Scalars are few: they come whole,
    float32[n, k] as in StepBlock.
    """

    steps: NDArray[np.int64]
    wall_times: NDArray[np.float64]
    iterations: NDArray[np.int64]
    norm_ids: NDArray[np.int64]
    low: NDArray[np.uint16]
    high: NDArray[np.uint16]
    state: NDArray[np.uint8]
    scalar_ids: NDArray[np.int64]
    scalars: NDArray[np.float32]
    stride: int = 1


@dataclass(frozen=True)
class FullBlock:
    """Statistics of full steps. steps int64[n]; ids int64[m]; all planes [n, m], NaN where not measured.

    max_abs and mean over the finite elements; shares between 0 and 1.
    """

    steps: NDArray[np.int64]
    ids: NDArray[np.int64]
    max_abs: NDArray[np.float64]
    mean: NDArray[np.float32]
    zero_share: NDArray[np.float32]
    subnormal_share: NDArray[np.float32]


@dataclass(frozen=True)
class FullSummary:
    """What a FullBlock says before its planes are unpacked. steps int64[n]; ids int64[m]."""

    steps: NDArray[np.int64]
    ids: NDArray[np.int64]


@dataclass(frozen=True)
class Counts:
    """Counts of non-finite elements in one tensor, and its size; all in elements."""

    nan: int = 0
    pos_inf: int = 0
    neg_inf: int = 0
    size: int = 0

    @property
    def bad(self) -> int:
        """Elements that are not finite."""
        return self.nan + self.pos_inf + self.neg_inf


@dataclass(frozen=True)
class CountsRow:
    """Exact counts of tensors at one step in trouble."""

    step: int
    counts: Mapping[int, Counts]


@dataclass(frozen=True)
class Source:
    """A line of the user's program; line 0 where it is not known."""

    file: str = ""
    line: int = 0
    function: str = ""
    code: str = ""


@dataclass(frozen=True)
class OperandStats:
    """What went into an operation. min and max over the finite elements; counts in elements."""

    name: str = ""
    dtype: str = ""
    shape: tuple[int, ...] = ()
    min: float = 0.0
    max: float = 0.0
    nan: int = 0
    inf: int = 0
    zero: int = 0
    negative: int = 0

    @property
    def has_range(self) -> bool:
        """Whether any element is finite, so that there are a min and a max."""
        return self.nan + self.inf < math.prod(self.shape)


@dataclass(frozen=True)
class Origin:
    """Where the first bad value of an incident was made. Empty strings and -1 where that is not known."""

    phase: str
    layer: str = ""
    tensor: str = ""
    tensor_kind: str = ""
    layer_class: str = ""
    op_type: str = ""
    op_name: str = ""
    source: Source | None = None
    replica: int = -1
    samples: tuple[int, ...] = ()
    precision: str = "layer"
    inputs: tuple[OperandStats, ...] = ()
    output: Counts = Counts()


@dataclass(frozen=True)
class Spread:
    """One tensor that the damage reached, in the order in which it did."""

    order: int
    step: int
    phase: str
    tensor: str
    kind: str
    counts: Counts
    layer: str = ""


@dataclass(frozen=True)
class Incident:
    """An incident as known when it was written; a later record with the same id replaces it."""

    id: int
    first_step: int
    detected_step: int
    origin: Origin
    last_step: int | None = None
    recovered: bool = False
    spread: tuple[Spread, ...] = ()
    capsule: str = ""
    last_finite_step: int | None = None
    wall_time: float = 0.0
    action: str = "record"
    bad_steps: int = 1
    replay_json: str = ""


@dataclass(frozen=True)
class Note:
    """Something that a reader of the run should know, such as a restart."""

    step: int
    kind: str
    text: str


@dataclass(frozen=True)
class Closed:
    """The recorder ended in an orderly way, after `steps` steps; `dropped` rows did not fit its queue."""

    steps: int
    dropped: int = 0


@dataclass(frozen=True)
class Column:
    """One column of a part of the batch, over its finite elements."""

    index: int
    min: float
    max: float
    mean: float = 0.0
    std: float = 0.0

    @property
    def reach(self) -> float:
        """Largest magnitude."""
        return max(abs(self.min), abs(self.max))


@dataclass(frozen=True)
class BatchPart:
    """One tensor of a batch; `name` is that of the tensor of kind input, which only a floating one is.

    rows: looked at, all but the last dimension counted together over the batches, 0 where nobody looked at `columns`.
    typical: median over the columns of their largest magnitude, zero columns left out. extreme: columns far beyond
    that, the largest first. constant: columns that are the same in every row, where that is nothing ordinary. Of
    either the first few; the counts are of all.
    """

    name: str
    dtype: str
    shape: tuple[int, ...] | None = None
    rows: int = 0
    columns: int = 0
    typical: float = 0.0
    extreme: tuple[Column, ...] = ()
    constant: tuple[Column, ...] = ()
    extreme_count: int = 0
    constant_count: int = 0


@dataclass(frozen=True)
class FirstBatches:
    """What a training is given: the parts of a batch, and what is odd about their columns over the first few batches.

    step: of the newest batch looked at; batches: how many were. mapping: the batch is a dict, whose keys lead the names
    of the parts.
    """

    step: int
    batches: int
    parts: tuple[BatchPart, ...]
    mapping: bool = False


Record = (
    RunHeader | tuple[TensorInfo, ...] | StepBlock | FullBlock | CountsRow | Incident | Note | Closed | FirstBatches
)
