"""Texts of rows. Spark's may be of any bytes: `cast("string")` does not look at them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # -- it has no types


def listed(column: pa.Array) -> list[Any]:
    r"""A column as Python's values; bytes of a text that are not UTF-8 are written as `\xff`."""
    try:
        found: list[Any] = column.to_pylist()
    except UnicodeDecodeError:
        rows = column.cast(_as_bytes(column.type)).to_pylist()
        found = [_with_texts(each, column.type) for each in rows]
    return found


def _as_bytes(kind: pa.DataType) -> pa.DataType:
    """The same type, with bytes in the place of texts."""
    import pyarrow as pa

    if pa.types.is_list(kind):
        return pa.list_(_as_bytes(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(each.name, _as_bytes(each.type)) for each in kind])
    return pa.binary() if pa.types.is_string(kind) else kind


def _with_texts(value: Any, kind: pa.DataType) -> Any:
    """And back."""
    import pyarrow as pa

    if value is None:
        return None
    if pa.types.is_list(kind):
        return [_with_texts(each, kind.value_type) for each in value]
    if pa.types.is_struct(kind):
        return {each.name: _with_texts(value[each.name], each.type) for each in kind}
    return value.decode(errors="backslashreplace") if pa.types.is_string(kind) else value
