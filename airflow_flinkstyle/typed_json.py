"""JSON from a store as frozen dataclasses, decoded by their annotations. Pure.

The one way in which records, manifests and plans are read. Nothing is guessed: a field that the class does
not have, one that is missing (also if it has a default), a value of another type and one that its ``Check``
does not allow are refused, with their place. A text is never taken for a number, a bool never for an int.

An annotation is one of: ``str``, ``int``, ``float``, ``bool``, ``Any``, a ``Literal`` of texts, a ``NewType``
(of an int: 0 or more, as all numbers of ``types`` are), ``tuple[X, ...]``, ``tuple[X, Y]``, ``Mapping[K, V]``
with texts or numbers as keys, a class marked with ``stored``, a union of such classes that have a ``kind``,
a class marked with ``stored_as``, ``Annotated`` with a ``Check``, and each of these ``| None``.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from math import isfinite
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

T = TypeVar("T")
Reader = Callable[[Any], Any]
_NUMBER: Final = re.compile("0|[1-9][0-9]{0,18}")
_KIND: Final = "kind"
_FORM: Final = "__stored_form__"
_MOST: Final = 1 << 63
"""Whole numbers beyond it are no floats."""
_LEAVES: Final = frozenset({str, int, float, bool})


def stored(cls: type[T]) -> type[T]:
    """Mark a dataclass that is stored, every field of it; its annotations are imported, to be read."""
    cls.__is_stored__ = True  # type: ignore[attr-defined]
    return cls


def stored_as(form: Any) -> Callable[[type[T]], type[T]]:
    """Mark a class that is not stored as its fields, but as what the annotation ``form`` reads.

    Its ``from_stored`` makes one of that, and its ``to_stored`` is the inverse.
    """

    def mark(cls: type[T]) -> type[T]:
        cls.__stored_form__ = form  # type: ignore[attr-defined]
        return cls

    return mark


@dataclass(frozen=True, slots=True)
class Check:
    """What a value must be beyond its type; part of an ``Annotated``."""

    expected: str
    """For the error."""
    allows: Callable[[Any], bool]


class MismatchError(ValueError):
    """A document does not fit its class."""

    def __init__(self, where: str, expected: str, found: object) -> None:
        super().__init__(where, expected, found)
        self.where, self.expected, self.found = where, expected, found

    def below(self, place: str) -> MismatchError:
        """Return the error with one more step of the way to its value."""
        return MismatchError(f"{place}, {self.where}" if self.where else place, self.expected, self.found)

    def __str__(self) -> str:
        where = f"{self.where}: " if self.where else ""
        return f"{where}expected {self.expected}, found {self.found!r:.80}"


def decode(cls: type[T], document: object) -> T:
    """Return the dataclass that a parsed JSON document represents.

    Raises:
        MismatchError: If it is none; names the place, what was expected there and what was found.
    """
    kind: Any = cls
    found: T = _reader(kind)(document)
    return found


def encode(value: Any) -> Any:
    """Return what ``json.dumps`` can render, and ``decode`` turns back."""
    if value is None or type(value) in _LEAVES:
        return value
    if hasattr(value, _FORM):
        return encode(value.to_stored())
    if isinstance(value, Mapping):
        return {key: encode(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [encode(one) for one in value]
    return {name: encode(getattr(value, name)) for name in _shown(value.__class__)}


@cache
def _shown(cls: Any) -> tuple[str, ...]:
    """Return the fields of a class, its kind before them."""
    return (*((_KIND,) if hasattr(cls, _KIND) else ()), *(item.name for item in fields(cls)))


@cache
def _reader(annotation: Any) -> Reader:
    """Return the function that reads a value of this type; made once per type."""
    if isinstance(annotation, NewType):
        return _checked(_reader(annotation.__supertype__), _from_zero(annotation))
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _checked(_reader(arguments[0]), next(one for one in arguments if isinstance(one, Check)))
    if origin in {Union, types.UnionType}:
        return _one_of(arguments)
    if origin is Literal:
        return _literal(arguments)
    if origin is tuple:
        return _list(arguments[0]) if arguments[-1] is Ellipsis else _row(arguments)
    if origin is Mapping:
        return _mapping(*arguments)
    if (form := getattr(annotation, _FORM, None)) is not None:
        return _formed(annotation, _reader(form))
    if getattr(annotation, "__is_stored__", False):
        return _object(annotation)
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    raise TypeError(
        f"{annotation} cannot be read from JSON: mark the class with stored, or add its form here"
    )


def _exactly(kind: type, expected: str) -> Reader:
    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise MismatchError("", expected, value)
        return value

    return read


def _read_float(value: Any) -> float:
    is_number = isfinite(value) if type(value) is float else type(value) is int and -_MOST < value < _MOST
    if not is_number:
        raise MismatchError("", "a number", value)
    return value  # type: ignore[no-any-return]


_PLAIN: Final[Mapping[Any, Reader]] = {
    str: _exactly(str, "a text"),
    int: _exactly(int, "a whole number"),
    bool: _exactly(bool, "true or false"),
    type(None): _exactly(type(None), "null"),
    float: _read_float,
    Any: lambda value: value,
}


def _from_zero(annotation: Any) -> Check:
    if annotation.__supertype__ is not int:
        return Check("a value", lambda _: True)
    return Check(f"a {annotation.__name__}, 0 or more", lambda number: number >= 0)


def _checked(read_plain: Reader, check: Check) -> Reader:
    allows = check.allows

    def read(value: Any) -> Any:
        found = read_plain(value)
        if not allows(found):
            raise MismatchError("", check.expected, value)
        return found

    return read


def _formed(cls: Any, read_form: Reader) -> Reader:
    return lambda value: cls.from_stored(read_form(value))


def _literal(allowed: tuple[Any, ...]) -> Reader:
    def read(value: Any) -> Any:
        if not isinstance(value, str) or value not in allowed:
            raise MismatchError("", f"one of {', '.join(sorted(allowed))}", value)
        return value

    return read


def _one_of(members: tuple[Any, ...]) -> Reader:
    """Read what may be null, and classes told apart by their ``kind``."""
    others = [member for member in members if member is not type(None)]
    read_other = _reader(others[0]) if len(others) == 1 else _kinds(others)
    if len(others) == len(members):
        return read_other
    return lambda value: None if value is None else read_other(value)


def _kinds(classes: list[Any]) -> Reader:
    readers = {cls.kind: _reader(cls) for cls in classes}

    def read(value: Any) -> Any:
        kind = value.get(_KIND) if isinstance(value, dict) else None
        if not isinstance(kind, str) or kind not in readers:
            raise MismatchError("", f"an object whose kind is one of {', '.join(readers)}", value)
        return readers[kind](value)

    return read


def _list(item: Any) -> Reader:
    read_item = _reader(item)

    def read(value: Any) -> tuple[Any, ...]:
        found: list[Any] = []
        try:
            for one in _PLAIN_LIST(value):
                found.append(read_item(one))
        except MismatchError as error:
            raise (error.below(f"[{len(found)}]") if type(value) is list else error) from None
        return tuple(found)

    return read


_PLAIN_LIST: Final = _exactly(list, "a list")


def _row(items: tuple[Any, ...]) -> Reader:
    readers = [_reader(item) for item in items]

    def read(value: Any) -> tuple[Any, ...]:
        if type(value) is not list or len(value) != len(readers):
            raise MismatchError("", f"a list of {len(readers)}", value)
        return tuple(read_item(one) for read_item, one in zip(readers, value, strict=True))

    return read


def _mapping(key_type: Any, value_type: Any) -> Reader:
    read_key, read_value = _key_reader(key_type), _reader(value_type)

    def read(value: Any) -> dict[Any, Any]:
        found = {}
        name = ""
        try:
            for name, one in _read_object(value).items():
                found[read_key(name)] = read_value(one)
        except MismatchError as error:
            raise (error.below(name) if type(value) is dict else error) from None
        return found

    return read


_read_object: Final = _exactly(dict, "an object")


def _key_reader(key_type: Any) -> Reader:
    """JSON's keys are texts: a number is written in one way only, so that no two keys are the same one."""
    if key_type is not int and getattr(key_type, "__supertype__", None) is not int:
        return _reader(key_type)

    def read(text: str) -> int:
        if not _NUMBER.fullmatch(text):
            raise MismatchError("", "a number as key", text)
        return int(text)

    return read


def _object(cls: Any) -> Reader:
    hints = get_type_hints(cls, include_extras=True)
    readers = {item.name: _reader(hints[item.name]) for item in fields(cls)}
    known = {*readers, _KIND} if hasattr(cls, _KIND) else readers.keys()

    def read(value: Any) -> Any:
        given = _read_object(value)
        if missing := readers.keys() - given.keys():
            raise MismatchError("", f"a field {min(missing)!r}", sorted(given))
        if unknown := given.keys() - known:
            raise MismatchError("", "no further fields", sorted(unknown))
        found, name = {}, ""
        try:
            for name, read_field in readers.items():
                found[name] = read_field(given[name])
        except MismatchError as error:
            raise error.below(name) from None
        return cls(**found)

    return read
