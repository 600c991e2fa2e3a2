"""What ``transformWithState`` keeps: variables and timers, and beside them the rows that Spark finds by time.

All are in one store, in families of rows with names of their own. Beside a list is the number of its
elements; beside values that expire (TTL) is when they do, of a list when the first one does; a timer is there
twice, by key and by time. These other rows are made from what users see, and compared with Spark's first.
Spark: ``StateStoreColumnFamilySchemaUtils``, ``ListStateImpl``, ``OneToOneTTLState``, ``OneToManyTTLState``,
``TimerStateImpl``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from airflow_flinkstyle.state.rewriter import encoded_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame

    from airflow_flinkstyle.state.query_copy import QueryCopy

Place = tuple[str, str]
"""A store of an operator, and a family of its rows; ``default`` where it has one."""
DEFAULT: Final = "default"
RAW: Final = "_readAllColumnFamilies"
TIMERS: Final = "timers"
"""Name of the registered timers among the states of an operator."""
NO_TIME: Final = "NoTime"
_TIMERS_BY_MODE: Final = {"ProcessingTime": "$procTimers", "EventTime": "$eventTimers"}
_VALUES: Final = {"ValueState": "value", "ListState": "list_element", "MapState": "user_map_value"}
"""The column of Spark's reader with the values of a kind of variable."""
_TIMES: Final = "TimerState"
_READ_TIMERS: Final = {"readRegisteredTimers": "true"}
_EXPIRES: Final = "expiration_timestamp_ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variables:
    """The variables of ``transformWithState``, and its timers."""

    operator: int
    kinds: Mapping[str, str]
    """Name -> Spark's name of its kind."""
    expiring: frozenset[str]
    """Those whose values expire."""
    timers: str
    """How the names of the timers' families begin; empty where there are none."""

    @classmethod
    def of(cls, operator: int, variables: Sequence[Mapping[str, object]], time_mode: str) -> Variables:
        """Take them from Spark's metadata of the operator."""
        kinds = {str(one["stateName"]): str(one["stateVariableType"]) for one in variables}
        timers = _TIMERS_BY_MODE.get(time_mode, "")
        return cls(
            operator=operator,
            kinds={**kinds, TIMERS: _TIMES} if timers and TIMERS not in kinds else kinds,
            expiring=frozenset(str(one["stateName"]) for one in variables if one["ttlEnabled"]),
            timers=timers,
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The variables, and the timers."""
        return tuple(self.kinds)

    def unknown_kinds(self) -> list[str]:
        """Return the kinds that cannot be written."""
        if self.timers and self.kinds[TIMERS] != _TIMES:
            return [f"a variable called {TIMERS} beside timers"]
        return sorted(set(self.kinds.values()) - {*_VALUES, _TIMES})

    def differing_family(self, copied: QueryCopy) -> str | None:
        """Return a family by time whose rows Spark keeps in another form than is written here; else None."""
        for name in self.names:
            if name in self.expiring or self.kinds[name] == _TIMES:
                for place, rows in self.rows(name, self.read(copied, name)).items():
                    if not is_kept(copied, self.operator, place, rows):
                        return place[1]
        return None

    def read(self, copied: QueryCopy, name: str) -> DataFrame:
        """Return a variable's state: a row for each value, element of a list, entry of a map, or timer."""
        from pyspark.sql import functions as F

        if self.kinds[name] == _TIMES:
            timers = copied.load(self.operator, _READ_TIMERS)
            return timers.select("key", F.struct(_EXPIRES).alias("value"))
        return copied.load(self.operator, {"stateVarName": name}).drop("partition_id")

    def settled(self, name: str, state: DataFrame) -> DataFrame:
        """Return it as it is."""
        return state

    def rows(self, name: str, state: DataFrame) -> dict[Place, DataFrame]:
        """Return its rows, and those that Spark keeps beside them."""
        from pyspark.sql import functions as F

        kind, key = self.kinds[name], F.col("key")
        if kind == _TIMES:
            return self._timers(state)
        kept = F.col(_VALUES[kind])
        element = F.struct(key.alias("key"), F.col("user_map_key").alias("userKey"))
        if kind != "MapState":
            element = key
        found = {name: state.select(element.alias("key"), kept.alias("value"))}
        expires = kept.getField("ttlExpirationMs") if name in self.expiring else None
        if kind == "ListState":
            found.update(_beside_lists(name, state, expires))
        elif expires is not None:
            found[f"$ttl_{name}"] = _by_time(
                state, expires.alias("expirationMs"), element.alias("elementKey")
            )
        return {(DEFAULT, family): rows for family, rows in found.items()}

    def _timers(self, state: DataFrame) -> dict[Place, DataFrame]:
        from pyspark.sql import functions as F

        at, key = F.col("value").getField(_EXPIRES).alias("expiryTimestampMs"), F.col("key").alias("key")
        by_key = state.select(F.struct(key, at).alias("key"), _nothing().alias("value"))
        by_time = _by_time(state, at, key)
        return {
            (DEFAULT, f"{self.timers}_keyToTimestamp"): by_key,
            (DEFAULT, f"{self.timers}_timestampToKey"): by_time,
        }

    def unique(self, name: str) -> tuple[str, ...]:
        """Return the columns that identify a row; none for a list, which may hold an element twice."""
        by = {"ValueState": ("key",), "MapState": ("key", "user_map_key"), _TIMES: ("key", "value")}
        return by.get(self.kinds[name], ())


def is_kept(copied: QueryCopy, operator: int, place: Place, rows: DataFrame) -> bool:
    """Return whether a family has exactly these rows, byte for byte."""
    raw = copied.load(operator, {"storeName": place[0], RAW: "true"})
    found = raw.where(raw.column_family_name == place[1]).select("key_bytes", "value_bytes")
    expected = encoded_rows(rows)
    return found.exceptAll(expected).isEmpty() and expected.exceptAll(found).isEmpty()


def _beside_lists(name: str, state: DataFrame, expires: Column | None) -> dict[str, DataFrame]:
    """Return how many elements each key's list has, and when the first of them expires."""
    from pyspark.sql import functions as F

    count = F.struct(F.count("*").alias("count")).alias("value")
    if expires is None:
        return {f"$rowCounter_{name}": state.groupBy("key").agg(count)}
    first = state.groupBy("key").agg(F.min(expires).alias("at"))
    at = F.col("at").alias("expirationMs")
    return {
        f"$count_{name}": state.groupBy("key").agg(count),
        f"$min_{name}": first.select("key", F.struct(at).alias("value")),
        f"$ttl_{name}": _by_time(first, at, F.col("key").alias("elementKey")),
    }


def _by_time(state: DataFrame, at: Column, what: Column) -> DataFrame:
    """Return rows by time; Spark partitions them by ``place``."""
    from pyspark.sql import functions as F

    return state.select(
        F.col("key").alias("place"), F.struct(at, what).alias("key"), _nothing().alias("value")
    )


def _nothing() -> Column:
    """Return the value of a row that has only a key."""
    from pyspark.sql import functions as F

    return F.struct(F.lit(None).alias("nothing"))
