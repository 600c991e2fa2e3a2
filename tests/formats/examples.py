"""A value of every stored class, made from its annotations: each field is set to more than its default.

So a new field, or a new record, is in the golden files without a line here.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Mapping
from dataclasses import fields
from types import UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NewType,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import airflow_flinkstyle
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.protocol.record import Record
from airflow_flinkstyle.typed_json import Check

T = TypeVar("T")
_TEXTS: Final = ("a-text", f"sha256:{'ab' * 32}")
_NOT_HERE: Final = frozenset({"pyspark", "py4j", "pandas", "pyarrow"})
"""The Spark side's: no module with a record imports them when it is imported."""


def every_record() -> list[type[Record]]:
    """Return every kind of record that the package has, by name; those that are only a base are none."""
    for module in pkgutil.walk_packages(airflow_flinkstyle.__path__, f"{airflow_flinkstyle.__name__}."):
        if module.name.endswith("__main__"):
            continue
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] not in _NOT_HERE:
                raise
    return sorted(_ends_of(Record), key=lambda one: one.__name__)


def _ends_of(cls: type[Record]) -> set[type[Record]]:
    """Return the kinds that no other is made of; a dataclass with slots leaves a class of its name behind."""
    known = [one for one in cls.__subclasses__() if getattr(sys.modules[one.__module__], one.__name__) is one]
    return {end for one in known for end in _ends_of(one)} or {cls}


def an_example(cls: type[T], **changes: Any) -> T:
    """Return a value of a stored class in which every field says something."""
    hints = get_type_hints(cls, include_extras=True)
    made = {item.name: _of(hints[item.name], item.name) for item in fields(cls)}  # type: ignore[arg-type]
    return cls(**{**made, **changes})


def _of(annotation: Any, name: str) -> Any:  # noqa: ANN401 - whatever it allows
    """Return a value of an annotation, as ``typed_json`` knows them."""
    if isinstance(annotation, NewType):
        return _of(annotation.__supertype__, name)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _allowed(arguments, name)
    if origin in {Union, UnionType}:
        return _of(next(one for one in arguments if one is not type(None)), name)
    if origin is Literal:
        return arguments[-1]
    if origin is tuple:
        if arguments[-1] is not Ellipsis:
            return tuple(_of(one, name) for one in arguments)
        kinds = get_args(arguments[0]) if get_origin(arguments[0]) in {Union, UnionType} else arguments[:1]
        return tuple(_of(kind, name) for kind in kinds)
    if origin is Mapping:
        return {_of(arguments[0], "key"): _of(arguments[1], name)}
    if annotation is Offsets:
        return Offsets.of({"orders": {0: 17, 10: 4}})  # type: ignore[dict-item]
    if annotation is Any:
        return {"any": [1, "value", None]}
    leaf: Mapping[Any, Any] = {str: f"a-{name}", int: len(name), float: len(name) + 0.5, bool: True}
    return leaf[annotation] if annotation in leaf else an_example(annotation)


def _allowed(arguments: tuple[Any, ...], name: str) -> Any:  # noqa: ANN401 - whatever it allows
    check = next(one for one in arguments if isinstance(one, Check))
    plain = _of(arguments[0], name)
    return next(one for one in (plain, *_TEXTS) if check.allows(one))
