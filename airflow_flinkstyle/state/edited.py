"""An operator whose states were changed: what its stores must hold, and the proof that they do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_flinkstyle.state.changes import (
    Counts,
    can_be_counted,
    changes_of_any_key,
    counts_of,
    digest_of,
    keys_of,
    state_changes,
)
from airflow_flinkstyle.state.edits import as_operator_change
from airflow_flinkstyle.state.errors import STATE_TRANSFORM_DIFFERS, transform_no_state
from airflow_flinkstyle.state.kept import Kept
from airflow_flinkstyle.state.stores import Join, Operator, states_of
from airflow_flinkstyle.state.variables import is_kept

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from airflow_flinkstyle.errors import FlinkstyleError
    from airflow_flinkstyle.state.edits import Change, Given, OperatorChange
    from airflow_flinkstyle.state.query_copy import QueryCopy
    from airflow_flinkstyle.state.stores import States
    from airflow_flinkstyle.state.variables import Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Edited:
    """An operator with all its states, changed or as they were."""

    operator: Operator
    states: States
    kept: Mapping[str, Kept]
    """By the state's name."""

    @classmethod
    def of(cls, before: QueryCopy, number: int, change: OperatorChange) -> Edited:
        """Change the states of an operator: one change is for all of them.

        Raises:
            FlinkstyleError: ``STATE_READ`` if the query has no such operator with state.
            FlinkstyleError: ``STATE_TRANSFORM`` if its state cannot be written, or a function returns no
                valid state of it.
        """
        operator = Operator.of(before, number)
        states = states_of(before, operator)
        wanted = _by_state(change, states, number)
        kept = {
            name: Kept.of(before, operator, states, name, wanted.get(name, as_it_is)) for name in states.names
        }
        return cls(operator=operator, states=states, kept=kept)

    def new_schema(self) -> Mapping[str, StructType] | None:
        """Return the schemas of key and value if they have changed; only an operator with one state may."""
        return next((kept.schema for kept in self.kept.values() if kept.has_new_schema), None)

    def rows(self) -> dict[tuple[int, Place], DataFrame]:
        """Return what each store and family is to hold."""
        return {
            (self.operator.number, place): rows
            for name, kept in self.kept.items()
            for place, rows in self.states.rows(name, kept.state).items()
        }

    def counted(self, before: QueryCopy) -> dict[str, Counts]:
        """Count what changed, by the state's name, and require that no value is missing in the new states.

        Raises:
            FlinkstyleError: ``STATE_TRANSFORM`` if a value is null that may not be, or a key is there twice.
        """
        found = {}
        for name, kept in self.kept.items():
            old, new, unique = self.states.read(before, name), kept.state, self.states.unique(name)
            is_whole = False
            if all(tuple(keys_of(one)) == unique for one in (old, new)) and can_be_counted(old, new):
                found[name], is_missing = counts_of(old, new, kept.missing())
                is_whole = not is_missing  # a key that is there twice is noticed when the state is read back
            if not is_whole:
                kept.require_whole(unique, before.query.name, self.operator.number)
                found[name] = _counts(old, new)
        return found

    def prove(self, after: QueryCopy) -> None:
        """Compare what Spark reads back with what was kept.

        Raises:
            FlinkstyleError: ``STATE_TRANSFORM`` if a key differs, or was there twice.
        """
        for name, kept in self.kept.items():
            self._require_same(after, name, kept)

    def _require_same(self, after: QueryCopy, name: str, kept: Kept) -> None:
        def differs(key: str) -> FlinkstyleError:
            return STATE_TRANSFORM_DIFFERS.error(
                query=after.query.name, operator=self.operator.number, key=key
            )

        written = self.states.read(after, name)
        if digest_of(kept.state) != digest_of(written):
            kept.require_whole(self.states.unique(name), after.query.name, self.operator.number)
            found = state_changes(kept.state, written).head()
            raise differs("unknown, by the sums of the hashes" if found is None else str(found[0]))
        for place, rows in self.states.rows(name, kept.state).items():
            if place[1].startswith("$") and not is_kept(after, self.operator.number, place, rows):
                raise differs(f"unknown, in the rows that Spark keeps beside {name} ({place[1]})")
        # Spark's own reader reads as many rows per key as the count says that is written beside them.
        if isinstance(self.states, Join) and kept.state.count() != self.states.shown(after, name).count():
            raise differs(f"unknown, by the number of rows of the {name} side")


def changes_in(before: QueryCopy, number: int, given: Given) -> dict[str, DataFrame]:
    """Return what changes would do, by the state's name: rows as of ``state_changes``. Nothing is checked.

    Raises:
        FlinkstyleError: As ``Edited.of``, for the operator and the names.
    """
    operator = Operator.of(before, number)
    states, change = states_of(before, operator), as_operator_change(given)
    wanted = _by_state(change, states, number)
    found = {name: (states.read(before, name), one) for name, one in wanted.items()}
    return {name: changes_of_any_key(state, one(state)) for name, (state, one) in found.items()}


def _by_state(change: OperatorChange, states: States, number: int) -> Mapping[str, Change]:
    """Return the change of each state that has one."""
    wanted = change if isinstance(change, Mapping) else dict.fromkeys(states.names, change)
    if unknown := sorted(set(wanted) - set(states.names)):
        raise transform_no_state(unknown[0], number, states.names)
    return wanted


def as_it_is(state: DataFrame) -> DataFrame:
    """Change nothing."""
    return state


def _counts(old: DataFrame, new: DataFrame) -> Counts:
    rows = changes_of_any_key(old, new).groupBy("change").count().collect()
    number = {row["change"]: row["count"] for row in rows}
    added, changed = number.get("added", 0), number.get("changed", 0)
    keys = new.select(*keys_of(new)).distinct().count()
    return Counts(added=added, removed=number.get("removed", 0), changed=changed, kept=keys - added - changed)
