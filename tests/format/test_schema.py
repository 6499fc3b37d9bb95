"""The committed module is what the committed schema says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tb_nanwatch.format import nanwatch_pb2

SCHEMA = Path(nanwatch_pb2.__file__).with_name("nanwatch.proto")
FIELD = re.compile(r"(repeated |map<(\w+), (\w+)> )?(?:([\w.]+) )?(\w+) = (\d+)(?: \[packed = true\])?;")

Field = tuple[str, str, int, bool, str]


def in_schema() -> Iterator[Field]:
    """(message, field, number, repeated, type) of every field in the text of the schema."""
    text = re.sub(r"//.*", "", SCHEMA.read_text(encoding="utf-8"))
    message = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("message "):
            message = line.split()[1]
        elif match := FIELD.fullmatch(line):
            many, _, value, kind, name, number = match.groups()
            yield message, name, int(number), bool(many), f"map of {value}" if value else kind


def in_module() -> Iterator[Field]:
    for message in nanwatch_pb2.DESCRIPTOR.message_types_by_name.values():
        for field in message.fields:
            entry: Any = field.message_type
            is_map = entry is not None and entry.GetOptions().map_entry
            # Descriptors changed how they say "repeated" between protobuf 3.20 and 7; the default value did not.
            repeated = is_map or isinstance(field.default_value, list)
            kind = f"map of {_kind(entry.fields_by_name['value'])}" if is_map else _kind(field)
            yield message.name, field.name, field.number, repeated, kind


def _kind(field: Any) -> str:
    names = {field.TYPE_UINT32: "uint32", field.TYPE_INT64: "int64", field.TYPE_INT32: "int32"}
    names |= {field.TYPE_UINT64: "uint64", field.TYPE_DOUBLE: "double", field.TYPE_BOOL: "bool"}
    names |= {field.TYPE_STRING: "string", field.TYPE_BYTES: "bytes"}
    return names[field.type] if field.type in names else str(field.message_type.name)


def test_module_equals_schema() -> None:
    schema = list(in_schema())
    assert len(schema) > 100
    assert sorted(schema) == sorted(in_module())


def test_every_field_is_on_a_line_of_its_own() -> None:
    """What the comparison above reads: no field may hide from it."""
    text = re.sub(r"//.*", "", SCHEMA.read_text(encoding="utf-8"))
    assert text.count(" = ") == len(list(in_schema())) + text.count("packed = true") + text.count("syntax = ")


def test_module_checks_no_runtime_version() -> None:
    """Modules of newer compilers refuse older protobuf runtimes, which TensorFlow 2.16 pins."""
    assert "runtime_version" not in Path(nanwatch_pb2.__file__).read_text(encoding="utf-8")
