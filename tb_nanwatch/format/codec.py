"""Records to protobuf and back; the only importer of the generated module.

`decode` raises CorruptData for bytes that no recorder writes, and returns None for kinds of record that this
version does not know. Blocks come back as a BlockSummary or a FullSummary unless the planes are asked for, since
most readers need them of a few blocks only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from tb_nanwatch.errors import CorruptData, NewerFormat
from tb_nanwatch.format import magnitude, nanwatch_pb2, planes
from tb_nanwatch.format.records import (
    FORMAT_VERSION,
    BatchPart,
    BlockSummary,
    Closed,
    Column,
    Counts,
    CountsRow,
    FirstBatches,
    FullBlock,
    FullSummary,
    Incident,
    Note,
    OperandStats,
    Origin,
    Record,
    RunHeader,
    Source,
    Spread,
    StepBlock,
    TensorInfo,
)

pb: Any = nanwatch_pb2


def encode(record: Record) -> bytes:
    """Serialized Record message of any record."""
    message = pb.Record()
    if isinstance(record, RunHeader):
        message.header.CopyFrom(pb.RunHeader(**_plain(record)))
    elif isinstance(record, tuple):
        message.tensors.tensors.extend(_tensor(info) for info in record)
    elif isinstance(record, StepBlock):
        message.steps.CopyFrom(_step_block(record))
    elif isinstance(record, FullBlock):
        message.full.CopyFrom(_full_block(record))
    elif isinstance(record, CountsRow):
        message.counts.CopyFrom(_counts_row(record))
    elif isinstance(record, Incident):
        message.incident.CopyFrom(_incident(record))
    elif isinstance(record, Note):
        message.note.CopyFrom(pb.Note(**_plain(record)))
    elif isinstance(record, FirstBatches):
        message.batches.CopyFrom(_batches(record))
    else:
        message.closed.CopyFrom(pb.Closed(**_plain(record)))
    return bytes(message.SerializeToString())


def _plain(record: Any) -> dict[str, Any]:
    """Fields of a record. Text that UTF-8 cannot hold, as in the names of odd files, gets question marks."""
    return {name: _sound(value) for name, value in vars(record).items()}


def _sound(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {_sound(key): _sound(item) for key, item in value.items()}
    return value


def decode(data: bytes, unpack_steps: bool = False) -> Record | BlockSummary | FullSummary | None:
    """The record in `data`; None if its kind is unknown. Raises CorruptData."""
    message = pb.Record()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise CorruptData(f"a record is not a nanwatch record: {error}") from error
    kind = message.WhichOneof("kind")
    if kind == "header":
        return _read_header(message.header)
    if kind == "tensors":
        return tuple(_read_tensor(info) for info in message.tensors.tensors)
    if kind == "steps":
        return _read_step_block(message.steps) if unpack_steps else _read_summary(message.steps)
    if kind == "full":
        return _read_full_block(message.full) if unpack_steps else _read_full_summary(message.full)
    if kind == "counts":
        return _read_counts_row(message.counts)
    if kind == "incident":
        return _read_incident(message.incident)
    if kind == "note":
        return Note(message.note.step, message.note.kind, message.note.text)
    if kind == "closed":
        return Closed(message.closed.steps, message.closed.dropped)
    if kind == "batches":
        return _read_batches(message.batches)
    return None


# ---------------------------------------------------------------- headers and tensors


def _read_header(message: Any) -> RunHeader:
    if message.format_version > FORMAT_VERSION:
        raise NewerFormat(
            f"written in format {message.format_version}, this version reads up to {FORMAT_VERSION}: "
            "upgrade tb_nanwatch to read it"
        )
    return RunHeader(
        **{
            f.name: getattr(message, f.name) for f in message.DESCRIPTOR.fields if f.name not in ("versions", "options")
        },
        versions=dict(message.versions),
        options=dict(message.options),
    )


def _tensor(info: TensorInfo) -> Any:
    fields = {k: v for k, v in _plain(info).items() if k != "shape"}
    return pb.TensorInfo(**fields, shape=info.shape or (), unknown_rank=info.shape is None)


def _read_tensor(message: Any) -> TensorInfo:
    return TensorInfo(
        id=message.id,
        kind=message.kind,
        name=message.name,
        layer=message.layer,
        layer_class=message.layer_class,
        dtype=message.dtype,
        shape=None if message.unknown_rank else tuple(message.shape),
        order=message.order,
        trainable=message.trainable,
        activation=message.activation,
    )


# ---------------------------------------------------------------- blocks


def summarize(block: StepBlock) -> tuple[NDArray[np.uint16], NDArray[np.uint16], NDArray[np.uint8]]:
    """low, high and state of a block, as in BlockSummary."""
    codes = block.norms
    finite = magnitude.is_finite(codes)
    low = np.where(finite, codes, magnitude.LAST).min(axis=0, initial=magnitude.LAST)
    high = np.where(finite, codes, 0).max(axis=0, initial=0)
    return (
        np.where(high > 0, low, 0).astype(np.uint16),
        high.astype(np.uint16),
        np.bitwise_or.reduce(magnitude.to_bits(codes), axis=0),
    )


def _step_block(block: StepBlock) -> Any:
    low, high, state = summarize(block)
    return pb.StepBlock(
        steps=len(block.steps),
        step_deltas=planes.pack_integers(block.steps),
        wall_times=planes.deflate(np.asarray(block.wall_times, "<f8")),
        iterations=planes.pack_integers(block.iterations),
        norm_ids=block.norm_ids.tolist(),
        norms=planes.pack(block.norms) if block.norms.size else b"",
        norm_low=planes.deflate(low.astype("<u2")),
        norm_high=planes.deflate(high.astype("<u2")),
        norm_state=planes.deflate(state),
        scalar_ids=block.scalar_ids.tolist(),
        scalars=planes.pack_floats(block.scalars) if block.scalars.size else b"",
        stride=block.stride,
    )


def _ids(values: Any) -> NDArray[np.int64]:
    return np.fromiter(values, np.int64, len(values))


def _read_summary(message: Any) -> BlockSummary:
    count, tensors = message.steps, len(message.norm_ids)
    return BlockSummary(
        steps=planes.unpack_integers(message.step_deltas, count),
        wall_times=np.frombuffer(planes.inflate(message.wall_times, 8 * count), "<f8"),
        iterations=planes.unpack_integers(message.iterations, count),
        norm_ids=_ids(message.norm_ids),
        low=np.frombuffer(planes.inflate(message.norm_low, 2 * tensors), "<u2"),
        high=np.frombuffer(planes.inflate(message.norm_high, 2 * tensors), "<u2"),
        state=np.frombuffer(planes.inflate(message.norm_state, tensors), np.uint8),
        scalar_ids=_ids(message.scalar_ids),
        scalars=_read_scalars(message),
        stride=max(1, message.stride),
    )


def _read_scalars(message: Any) -> NDArray[np.float32]:
    count, scalars = message.steps, len(message.scalar_ids)
    if not count * scalars:
        return np.zeros((count, scalars), np.float32)
    return planes.unpack_floats(message.scalars, count, scalars)


def _read_step_block(message: Any) -> StepBlock:
    count, norms = message.steps, len(message.norm_ids)
    return StepBlock(
        steps=planes.unpack_integers(message.step_deltas, count),
        wall_times=np.frombuffer(planes.inflate(message.wall_times, 8 * count), "<f8"),
        iterations=planes.unpack_integers(message.iterations, count),
        norm_ids=_ids(message.norm_ids),
        norms=planes.unpack(message.norms, count, norms) if count * norms else np.zeros((count, norms), np.uint16),
        scalar_ids=_ids(message.scalar_ids),
        scalars=_read_scalars(message),
        stride=max(1, message.stride),
    )


def _full_block(block: FullBlock) -> Any:
    return pb.FullBlock(
        steps=len(block.steps),
        step_deltas=planes.pack_integers(block.steps),
        ids=block.ids.tolist(),
        max_abs=planes.pack(np.where(np.isnan(block.max_abs), 0, magnitude.encode(block.max_abs)).astype(np.uint16)),
        mean=planes.pack(planes.to_bfloat16(block.mean)),
        zero_share=planes.pack(planes.to_share(block.zero_share)),
        subnormal_share=planes.pack(planes.to_share(block.subnormal_share)),
    )


def _read_full_block(message: Any) -> FullBlock:
    count, tensors = message.steps, len(message.ids)

    def plane(data: bytes) -> NDArray[np.uint16]:
        return planes.unpack(data, count, tensors)

    max_abs = magnitude.decode(plane(message.max_abs))
    missing = np.isnan(max_abs)
    return FullBlock(
        steps=planes.unpack_integers(message.step_deltas, count),
        ids=_ids(message.ids),
        max_abs=max_abs,
        mean=planes.from_bfloat16(plane(message.mean)),
        zero_share=np.where(missing, np.float32(np.nan), planes.from_share(plane(message.zero_share))),
        subnormal_share=np.where(missing, np.float32(np.nan), planes.from_share(plane(message.subnormal_share))),
    )


def _read_full_summary(message: Any) -> FullSummary:
    return FullSummary(planes.unpack_integers(message.step_deltas, message.steps), _ids(message.ids))


def _counts_row(row: CountsRow) -> Any:
    values = row.counts.values()
    return pb.CountsRow(
        step=row.step,
        ids=row.counts.keys(),
        nan=[c.nan for c in values],
        pos_inf=[c.pos_inf for c in values],
        neg_inf=[c.neg_inf for c in values],
        size=[c.size for c in values],
    )


def _read_counts_row(message: Any) -> CountsRow:
    columns = (message.nan, message.pos_inf, message.neg_inf, message.size)
    if any(len(column) != len(message.ids) for column in columns):
        raise CorruptData("a row of counts has columns of different lengths")
    return CountsRow(
        message.step, {i: Counts(*c) for i, c in zip(message.ids, zip(*columns, strict=True), strict=True)}
    )


# ---------------------------------------------------------------- incidents


def _origin(origin: Origin) -> Any:
    message = pb.Origin(
        **{k: v for k, v in _plain(origin).items() if k not in ("source", "inputs", "output")},
        inputs=[pb.OperandStats(**_plain(operand)) for operand in origin.inputs],
        output=pb.Counts(**_plain(origin.output)),
    )
    if origin.source is not None:
        message.source.CopyFrom(pb.Source(**_plain(origin.source)))
    return message


def _fields(message: Any, *without: str) -> dict[str, Any]:
    return {f.name: getattr(message, f.name) for f in message.DESCRIPTOR.fields if f.name not in without}


def _read_origin(message: Any) -> Origin:
    return Origin(
        **_fields(message, "source", "inputs", "output", "samples"),
        source=Source(**_fields(message.source)) if message.HasField("source") else None,
        samples=tuple(message.samples),
        inputs=tuple(OperandStats(**_fields(o, "shape"), shape=tuple(o.shape)) for o in message.inputs),
        output=Counts(**_fields(message.output)),
    )


def _incident(incident: Incident) -> Any:
    fields = {
        k: v for k, v in _plain(incident).items() if k not in ("origin", "spread", "last_step", "last_finite_step")
    }
    return pb.Incident(
        **fields,
        origin=_origin(incident.origin),
        last_step=-1 if incident.last_step is None else incident.last_step,
        last_finite_step=-1 if incident.last_finite_step is None else incident.last_finite_step,
        spread=[
            pb.Spread(**{k: v for k, v in _plain(s).items() if k != "counts"}, counts=pb.Counts(**_plain(s.counts)))
            for s in incident.spread
        ],
    )


def _read_incident(message: Any) -> Incident:
    return Incident(
        **_fields(message, "origin", "spread", "last_step", "last_finite_step"),
        origin=_read_origin(message.origin),
        last_step=None if message.last_step < 0 else message.last_step,
        last_finite_step=None if message.last_finite_step < 0 else message.last_finite_step,
        spread=tuple(Spread(**_fields(s, "counts"), counts=Counts(**_fields(s.counts))) for s in message.spread),
    )


# ---------------------------------------------------------------- batches


def _batches(batches: FirstBatches) -> Any:
    fields = {k: v for k, v in _plain(batches).items() if k != "parts"}
    return pb.FirstBatches(**fields, parts=[_part(part) for part in batches.parts])


def _part(part: BatchPart) -> Any:
    fields = {k: v for k, v in _plain(part).items() if k not in ("shape", "extreme", "constant")}
    return pb.BatchPart(
        **fields,
        shape=part.shape or (),
        unknown_rank=part.shape is None,
        extreme=[pb.Column(**_plain(c)) for c in part.extreme],
        constant=[pb.Column(**_plain(c)) for c in part.constant],
    )


def _read_batches(message: Any) -> FirstBatches:
    return FirstBatches(**_fields(message, "parts"), parts=tuple(_read_part(part) for part in message.parts))


def _read_part(message: Any) -> BatchPart:
    return BatchPart(
        **_fields(message, "shape", "unknown_rank", "extreme", "constant"),
        shape=None if message.unknown_rank else tuple(message.shape),
        extreme=tuple(Column(**_fields(c)) for c in message.extreme),
        constant=tuple(Column(**_fields(c)) for c in message.constant),
    )
