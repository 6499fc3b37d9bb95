from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Record(_message.Message):
    __slots__ = ("header", "tensors", "steps", "full", "incident", "counts", "note", "closed", "batches")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    FULL_FIELD_NUMBER: _ClassVar[int]
    INCIDENT_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    CLOSED_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    header: RunHeader
    tensors: TensorTable
    steps: StepBlock
    full: FullBlock
    incident: Incident
    counts: CountsRow
    note: Note
    closed: Closed
    batches: FirstBatches
    def __init__(self, header: _Optional[_Union[RunHeader, _Mapping]] = ..., tensors: _Optional[_Union[TensorTable, _Mapping]] = ..., steps: _Optional[_Union[StepBlock, _Mapping]] = ..., full: _Optional[_Union[FullBlock, _Mapping]] = ..., incident: _Optional[_Union[Incident, _Mapping]] = ..., counts: _Optional[_Union[CountsRow, _Mapping]] = ..., note: _Optional[_Union[Note, _Mapping]] = ..., closed: _Optional[_Union[Closed, _Mapping]] = ..., batches: _Optional[_Union[FirstBatches, _Mapping]] = ...) -> None: ...

class RunHeader(_message.Message):
    __slots__ = ("format_version", "writer_id", "segment", "attempt", "first_step", "wall_time", "host", "pid", "entry_point", "every", "versions", "options", "worker", "error_policy")
    class VersionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class OptionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    FORMAT_VERSION_FIELD_NUMBER: _ClassVar[int]
    WRITER_ID_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    FIRST_STEP_FIELD_NUMBER: _ClassVar[int]
    WALL_TIME_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    ENTRY_POINT_FIELD_NUMBER: _ClassVar[int]
    EVERY_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    ERROR_POLICY_FIELD_NUMBER: _ClassVar[int]
    format_version: int
    writer_id: str
    segment: int
    attempt: int
    first_step: int
    wall_time: float
    host: str
    pid: int
    entry_point: str
    every: int
    versions: _containers.ScalarMap[str, str]
    options: _containers.ScalarMap[str, str]
    worker: int
    error_policy: str
    def __init__(self, format_version: _Optional[int] = ..., writer_id: _Optional[str] = ..., segment: _Optional[int] = ..., attempt: _Optional[int] = ..., first_step: _Optional[int] = ..., wall_time: _Optional[float] = ..., host: _Optional[str] = ..., pid: _Optional[int] = ..., entry_point: _Optional[str] = ..., every: _Optional[int] = ..., versions: _Optional[_Mapping[str, str]] = ..., options: _Optional[_Mapping[str, str]] = ..., worker: _Optional[int] = ..., error_policy: _Optional[str] = ...) -> None: ...

class TensorTable(_message.Message):
    __slots__ = ("tensors",)
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    tensors: _containers.RepeatedCompositeFieldContainer[TensorInfo]
    def __init__(self, tensors: _Optional[_Iterable[_Union[TensorInfo, _Mapping]]] = ...) -> None: ...

class TensorInfo(_message.Message):
    __slots__ = ("id", "kind", "name", "layer", "layer_class", "dtype", "shape", "unknown_rank", "order", "trainable", "activation")
    ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    LAYER_FIELD_NUMBER: _ClassVar[int]
    LAYER_CLASS_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_RANK_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    TRAINABLE_FIELD_NUMBER: _ClassVar[int]
    ACTIVATION_FIELD_NUMBER: _ClassVar[int]
    id: int
    kind: str
    name: str
    layer: str
    layer_class: str
    dtype: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    unknown_rank: bool
    order: int
    trainable: bool
    activation: str
    def __init__(self, id: _Optional[int] = ..., kind: _Optional[str] = ..., name: _Optional[str] = ..., layer: _Optional[str] = ..., layer_class: _Optional[str] = ..., dtype: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ..., unknown_rank: bool = ..., order: _Optional[int] = ..., trainable: bool = ..., activation: _Optional[str] = ...) -> None: ...

class StepBlock(_message.Message):
    __slots__ = ("step_deltas", "wall_times", "iterations", "norm_ids", "norms", "norm_low", "norm_high", "norm_state", "scalar_ids", "scalars", "stride", "steps")
    STEP_DELTAS_FIELD_NUMBER: _ClassVar[int]
    WALL_TIMES_FIELD_NUMBER: _ClassVar[int]
    ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    NORM_IDS_FIELD_NUMBER: _ClassVar[int]
    NORMS_FIELD_NUMBER: _ClassVar[int]
    NORM_LOW_FIELD_NUMBER: _ClassVar[int]
    NORM_HIGH_FIELD_NUMBER: _ClassVar[int]
    NORM_STATE_FIELD_NUMBER: _ClassVar[int]
    SCALAR_IDS_FIELD_NUMBER: _ClassVar[int]
    SCALARS_FIELD_NUMBER: _ClassVar[int]
    STRIDE_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    step_deltas: bytes
    wall_times: bytes
    iterations: bytes
    norm_ids: _containers.RepeatedScalarFieldContainer[int]
    norms: bytes
    norm_low: bytes
    norm_high: bytes
    norm_state: bytes
    scalar_ids: _containers.RepeatedScalarFieldContainer[int]
    scalars: bytes
    stride: int
    steps: int
    def __init__(self, step_deltas: _Optional[bytes] = ..., wall_times: _Optional[bytes] = ..., iterations: _Optional[bytes] = ..., norm_ids: _Optional[_Iterable[int]] = ..., norms: _Optional[bytes] = ..., norm_low: _Optional[bytes] = ..., norm_high: _Optional[bytes] = ..., norm_state: _Optional[bytes] = ..., scalar_ids: _Optional[_Iterable[int]] = ..., scalars: _Optional[bytes] = ..., stride: _Optional[int] = ..., steps: _Optional[int] = ...) -> None: ...

class FullBlock(_message.Message):
    __slots__ = ("step_deltas", "steps", "ids", "max_abs", "mean", "zero_share", "subnormal_share")
    STEP_DELTAS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    MAX_ABS_FIELD_NUMBER: _ClassVar[int]
    MEAN_FIELD_NUMBER: _ClassVar[int]
    ZERO_SHARE_FIELD_NUMBER: _ClassVar[int]
    SUBNORMAL_SHARE_FIELD_NUMBER: _ClassVar[int]
    step_deltas: bytes
    steps: int
    ids: _containers.RepeatedScalarFieldContainer[int]
    max_abs: bytes
    mean: bytes
    zero_share: bytes
    subnormal_share: bytes
    def __init__(self, step_deltas: _Optional[bytes] = ..., steps: _Optional[int] = ..., ids: _Optional[_Iterable[int]] = ..., max_abs: _Optional[bytes] = ..., mean: _Optional[bytes] = ..., zero_share: _Optional[bytes] = ..., subnormal_share: _Optional[bytes] = ...) -> None: ...

class CountsRow(_message.Message):
    __slots__ = ("step", "ids", "nan", "pos_inf", "neg_inf", "size")
    STEP_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    NAN_FIELD_NUMBER: _ClassVar[int]
    POS_INF_FIELD_NUMBER: _ClassVar[int]
    NEG_INF_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    step: int
    ids: _containers.RepeatedScalarFieldContainer[int]
    nan: _containers.RepeatedScalarFieldContainer[int]
    pos_inf: _containers.RepeatedScalarFieldContainer[int]
    neg_inf: _containers.RepeatedScalarFieldContainer[int]
    size: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, step: _Optional[int] = ..., ids: _Optional[_Iterable[int]] = ..., nan: _Optional[_Iterable[int]] = ..., pos_inf: _Optional[_Iterable[int]] = ..., neg_inf: _Optional[_Iterable[int]] = ..., size: _Optional[_Iterable[int]] = ...) -> None: ...

class Incident(_message.Message):
    __slots__ = ("id", "first_step", "last_step", "detected_step", "recovered", "origin", "spread", "capsule", "last_finite_step", "wall_time", "action", "bad_steps", "replay_json")
    ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_STEP_FIELD_NUMBER: _ClassVar[int]
    LAST_STEP_FIELD_NUMBER: _ClassVar[int]
    DETECTED_STEP_FIELD_NUMBER: _ClassVar[int]
    RECOVERED_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    SPREAD_FIELD_NUMBER: _ClassVar[int]
    CAPSULE_FIELD_NUMBER: _ClassVar[int]
    LAST_FINITE_STEP_FIELD_NUMBER: _ClassVar[int]
    WALL_TIME_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    BAD_STEPS_FIELD_NUMBER: _ClassVar[int]
    REPLAY_JSON_FIELD_NUMBER: _ClassVar[int]
    id: int
    first_step: int
    last_step: int
    detected_step: int
    recovered: bool
    origin: Origin
    spread: _containers.RepeatedCompositeFieldContainer[Spread]
    capsule: str
    last_finite_step: int
    wall_time: float
    action: str
    bad_steps: int
    replay_json: str
    def __init__(self, id: _Optional[int] = ..., first_step: _Optional[int] = ..., last_step: _Optional[int] = ..., detected_step: _Optional[int] = ..., recovered: bool = ..., origin: _Optional[_Union[Origin, _Mapping]] = ..., spread: _Optional[_Iterable[_Union[Spread, _Mapping]]] = ..., capsule: _Optional[str] = ..., last_finite_step: _Optional[int] = ..., wall_time: _Optional[float] = ..., action: _Optional[str] = ..., bad_steps: _Optional[int] = ..., replay_json: _Optional[str] = ...) -> None: ...

class Origin(_message.Message):
    __slots__ = ("phase", "layer", "tensor", "tensor_kind", "op_type", "op_name", "source", "replica", "samples", "precision", "inputs", "output", "layer_class")
    PHASE_FIELD_NUMBER: _ClassVar[int]
    LAYER_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    TENSOR_KIND_FIELD_NUMBER: _ClassVar[int]
    OP_TYPE_FIELD_NUMBER: _ClassVar[int]
    OP_NAME_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    LAYER_CLASS_FIELD_NUMBER: _ClassVar[int]
    phase: str
    layer: str
    tensor: str
    tensor_kind: str
    op_type: str
    op_name: str
    source: Source
    replica: int
    samples: _containers.RepeatedScalarFieldContainer[int]
    precision: str
    inputs: _containers.RepeatedCompositeFieldContainer[OperandStats]
    output: Counts
    layer_class: str
    def __init__(self, phase: _Optional[str] = ..., layer: _Optional[str] = ..., tensor: _Optional[str] = ..., tensor_kind: _Optional[str] = ..., op_type: _Optional[str] = ..., op_name: _Optional[str] = ..., source: _Optional[_Union[Source, _Mapping]] = ..., replica: _Optional[int] = ..., samples: _Optional[_Iterable[int]] = ..., precision: _Optional[str] = ..., inputs: _Optional[_Iterable[_Union[OperandStats, _Mapping]]] = ..., output: _Optional[_Union[Counts, _Mapping]] = ..., layer_class: _Optional[str] = ...) -> None: ...

class Source(_message.Message):
    __slots__ = ("file", "line", "function", "code")
    FILE_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    FUNCTION_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    file: str
    line: int
    function: str
    code: str
    def __init__(self, file: _Optional[str] = ..., line: _Optional[int] = ..., function: _Optional[str] = ..., code: _Optional[str] = ...) -> None: ...

class OperandStats(_message.Message):
    __slots__ = ("name", "dtype", "shape", "min", "max", "nan", "inf", "zero", "negative")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    MIN_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    NAN_FIELD_NUMBER: _ClassVar[int]
    INF_FIELD_NUMBER: _ClassVar[int]
    ZERO_FIELD_NUMBER: _ClassVar[int]
    NEGATIVE_FIELD_NUMBER: _ClassVar[int]
    name: str
    dtype: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    min: float
    max: float
    nan: int
    inf: int
    zero: int
    negative: int
    def __init__(self, name: _Optional[str] = ..., dtype: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ..., min: _Optional[float] = ..., max: _Optional[float] = ..., nan: _Optional[int] = ..., inf: _Optional[int] = ..., zero: _Optional[int] = ..., negative: _Optional[int] = ...) -> None: ...

class Counts(_message.Message):
    __slots__ = ("nan", "pos_inf", "neg_inf", "size")
    NAN_FIELD_NUMBER: _ClassVar[int]
    POS_INF_FIELD_NUMBER: _ClassVar[int]
    NEG_INF_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    nan: int
    pos_inf: int
    neg_inf: int
    size: int
    def __init__(self, nan: _Optional[int] = ..., pos_inf: _Optional[int] = ..., neg_inf: _Optional[int] = ..., size: _Optional[int] = ...) -> None: ...

class Spread(_message.Message):
    __slots__ = ("order", "step", "phase", "tensor", "kind", "counts", "layer")
    ORDER_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    LAYER_FIELD_NUMBER: _ClassVar[int]
    order: int
    step: int
    phase: str
    tensor: str
    kind: str
    counts: Counts
    layer: str
    def __init__(self, order: _Optional[int] = ..., step: _Optional[int] = ..., phase: _Optional[str] = ..., tensor: _Optional[str] = ..., kind: _Optional[str] = ..., counts: _Optional[_Union[Counts, _Mapping]] = ..., layer: _Optional[str] = ...) -> None: ...

class Note(_message.Message):
    __slots__ = ("step", "kind", "text")
    STEP_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    step: int
    kind: str
    text: str
    def __init__(self, step: _Optional[int] = ..., kind: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class Closed(_message.Message):
    __slots__ = ("steps", "dropped")
    STEPS_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    steps: int
    dropped: int
    def __init__(self, steps: _Optional[int] = ..., dropped: _Optional[int] = ...) -> None: ...

class FirstBatches(_message.Message):
    __slots__ = ("step", "batches", "parts", "mapping")
    STEP_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    MAPPING_FIELD_NUMBER: _ClassVar[int]
    step: int
    batches: int
    parts: _containers.RepeatedCompositeFieldContainer[BatchPart]
    mapping: bool
    def __init__(self, step: _Optional[int] = ..., batches: _Optional[int] = ..., parts: _Optional[_Iterable[_Union[BatchPart, _Mapping]]] = ..., mapping: bool = ...) -> None: ...

class BatchPart(_message.Message):
    __slots__ = ("name", "dtype", "shape", "unknown_rank", "rows", "columns", "typical", "extreme", "constant", "extreme_count", "constant_count")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_RANK_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    TYPICAL_FIELD_NUMBER: _ClassVar[int]
    EXTREME_FIELD_NUMBER: _ClassVar[int]
    CONSTANT_FIELD_NUMBER: _ClassVar[int]
    EXTREME_COUNT_FIELD_NUMBER: _ClassVar[int]
    CONSTANT_COUNT_FIELD_NUMBER: _ClassVar[int]
    name: str
    dtype: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    unknown_rank: bool
    rows: int
    columns: int
    typical: float
    extreme: _containers.RepeatedCompositeFieldContainer[Column]
    constant: _containers.RepeatedCompositeFieldContainer[Column]
    extreme_count: int
    constant_count: int
    def __init__(self, name: _Optional[str] = ..., dtype: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ..., unknown_rank: bool = ..., rows: _Optional[int] = ..., columns: _Optional[int] = ..., typical: _Optional[float] = ..., extreme: _Optional[_Iterable[_Union[Column, _Mapping]]] = ..., constant: _Optional[_Iterable[_Union[Column, _Mapping]]] = ..., extreme_count: _Optional[int] = ..., constant_count: _Optional[int] = ...) -> None: ...

class Column(_message.Message):
    __slots__ = ("index", "min", "max", "mean", "std")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    MIN_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    MEAN_FIELD_NUMBER: _ClassVar[int]
    STD_FIELD_NUMBER: _ClassVar[int]
    index: int
    min: float
    max: float
    mean: float
    std: float
    def __init__(self, index: _Optional[int] = ..., min: _Optional[float] = ..., max: _Optional[float] = ..., mean: _Optional[float] = ..., std: _Optional[float] = ...) -> None: ...
