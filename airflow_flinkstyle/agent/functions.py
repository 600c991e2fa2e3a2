"""What a function of the script is and holds, so that two starts with "the same" one can be compared.

A loop makes a new function each time round. Two are the same if they run the same code over the same values:
those that they close over, their defaults, and the globals that they use. Values that cannot change are
compared as such; any other object is the same only if it is that very object.
"""

from __future__ import annotations

import datetime
import dis
import functools
import types
from pathlib import PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_flinkstyle.agent.untyped import PySpark

_VALUES = (str, int, float, bool, bytes, complex, types.NoneType, PurePath, datetime.date, datetime.timedelta)


class _Itself:
    """An object that only it is equal to; held, so that its place in memory stays its own."""

    __slots__ = ("held",)

    def __init__(self, held: object) -> None:
        self.held = held

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and other.held is self.held

    __hash__ = None  # type: ignore[assignment]


def captured(found: PySpark) -> PySpark:
    """Return what compares equal for equal functions and values, as they are now."""
    return _captured(found, {})


def _captured(found: PySpark, seen: dict[int, int]) -> PySpark:
    if isinstance(found, _VALUES):
        return type(found), found
    if id(found) in seen:
        return "seen before", seen[id(found)]
    if type(found) is not tuple:
        seen[id(found)] = len(seen)
    match found:
        case types.FunctionType():
            return _function(found, seen)
        case functools.partial():
            return [_captured(part, seen) for part in (found.func, found.args, found.keywords)]
        case types.MethodType():
            return [_captured(found.__func__, seen), _Itself(found.__self__)]
        case list() | tuple():
            return [type(found), *(_captured(item, seen) for item in found)]
        case dict():
            return [
                type(found),
                *((_captured(name, seen), _captured(item, seen)) for name, item in found.items()),
            ]
        case _:
            return _Itself(found)


def _function(function: types.FunctionType, seen: dict[int, int]) -> list[PySpark]:
    cells = [_content(cell) for cell in function.__closure__ or ()]
    used, outer = _globals_used(function.__code__), function.__globals__
    held = [
        function.__defaults__,
        function.__kwdefaults__,
        *cells,
        *(outer.get(name) for name in sorted(used)),
    ]
    return [function.__code__, *(_captured(part, seen) for part in held)]


def _content(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


def _globals_used(code: types.CodeType) -> set[str]:
    """Return the globals that code and functions inside it read; not those that it counts up itself."""
    steps = list(dis.get_instructions(code))
    read = {str(step.argval) for step in steps if step.opname == "LOAD_GLOBAL"}
    own = {str(step.argval) for step in steps if step.opname == "STORE_GLOBAL"}
    inner = (constant for constant in code.co_consts if isinstance(constant, types.CodeType))
    return (read - own).union(*map(_globals_used, inner))
