"""The rows that two runs of a query have given to its sink.

Our columns begin with two underscores, so that they never clash with a script's.

Each batch is kept as Parquet, in a folder of its own: ``foreachBatch`` is the one sink that takes every
output mode. Both sides then are counted in one aggregation of whole rows, old ones as 1 and new ones as -1,
so that only rows that differ are compared further.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from airflow_flinkstyle.protocol.comparison_records import ORDER, ComparedQuery, ShownRow

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from airflow_flinkstyle.agent.core.spark import RunOfQuery, RunsToCompare
    from airflow_flinkstyle.protocol.comparison_records import Compare, Kind

_BATCH: Final = "__batch"
_COUNT: Final = "__count"
_PLACE: Final = "__place"
_OLD: Final = "__old"
_NEW: Final = "__new"
_NUMBER: Final = re.compile(rf"/{_BATCH}=(\d+)/")
_WITHOUT_PARQUET: Final = ("NullType", "CalendarIntervalType", "VariantType")
_SHOWN_CHARACTERS: Final = 1000


def kept_rows(location: str) -> Callable[[DataFrame, int], None]:
    """Return a function for ``foreachBatch`` that keeps each batch's rows below a location."""

    def keep(batch: DataFrame, number: int) -> None:
        # Overwrites what a killed driver wrote of it.
        # Not through PySpark's writer, which is refused to the script.
        writer = _storable(batch)._jdf.write()  # noqa: SLF001
        writer.mode("overwrite").parquet(f"{location}/{_BATCH}={number}")

    return keep


def _storable(batch: DataFrame) -> DataFrame:
    """Return rows that Parquet takes: each column under another name, what it has no type for as text."""
    from pyspark.sql import functions as F

    names: list[str] = []
    for name in batch.columns:
        names.append(name if name not in names else f"{name} ({names.count(name) + 1})")
    renamed = batch.toDF(*names)
    texts = {f.name for f in renamed.schema.fields if type(f.dataType).__name__ in _WITHOUT_PARQUET}
    return renamed.select(*[_cast_text(F.col(_quoted(n)), n) if n in texts else _quoted(n) for n in names])


def _cast_text(column: Column, name: str) -> Column:
    return column.cast("string").alias(name)


def compare_rows(spark: SparkSession, runs: RunsToCompare) -> ComparedQuery:
    """Compare the results of two runs; with a third one also find what is not deterministic."""
    asked = runs.asked
    keys = asked.keys.get(runs.query.name, ())
    tables = {
        part: _result(spark, run, "append" if asked.by_batch else runs.output_mode, keys)
        for part, run in (("old", runs.old), ("new", runs.new), ("again", runs.again))
        if run is not None
    }
    old, new, again = tables["old"], tables["new"], tables.get("again")
    found = ComparedQuery(output_mode=runs.output_mode)
    if old is None or new is None:
        why = "No batch of either is found." if old is new else "Only one of them has run a batch."
        return replace(found, not_comparable=why)
    if missing := [key for key in keys if key not in old.columns or key not in new.columns]:
        why = f"Its rows have no column {', '.join(missing)}, which was given as a key."
        return replace(found, not_comparable=why)
    unstable: tuple[str, ...] = ()
    if again is not None:
        unstable, why = _not_deterministic(old, again, keys, asked)
        if why:
            return replace(found, not_comparable=why)
    compared = _Tables(old, new, keys, asked, without=unstable).compared()
    absent = [name for name in _ignored(asked) if name not in old.columns and name not in new.columns]
    untested = tuple(f"No column {name}, which was to be ignored." for name in absent)
    return replace(compared, output_mode=runs.output_mode, not_deterministic=unstable, untested=untested)


def _result(spark: SparkSession, run: RunOfQuery, mode: str, keys: Sequence[str]) -> DataFrame | None:
    """Return the rows that a sink would have at the end, with their batch; None without any batch."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    try:
        rows = spark.read.parquet(run.rows)
    except AnalysisException:  # there is no such folder
        return None
    if mode == "complete":  # the last batch may have no rows, but it has a file
        newest = max(int(number) for file in rows.inputFiles() for number in _NUMBER.findall(file))
        return rows.where(F.col(_BATCH) == newest)
    if mode == "update" and keys and set(keys) <= set(rows.columns):
        of_key = Window.partitionBy(*map(_quoted, keys)).orderBy(F.col(_BATCH).desc())
        return rows.withColumn(_PLACE, F.rank().over(of_key)).where(F.col(_PLACE) == 1).drop(_PLACE)
    return rows


def _not_deterministic(
    old: DataFrame, again: DataFrame, keys: Sequence[str], asked: Compare
) -> tuple[tuple[str, ...], str]:
    """Return the columns in which two runs of one version differ, and why columns cannot show it."""
    tables = _Tables(old, again, keys, asked)
    found = tables.compared()
    if found.verdict == "same":
        return (), ""
    unstable = tuple(sorted(found.changed_columns)) or tables.columns_of_other_content()
    rest = _Tables(old, again, keys, asked, without=unstable).compared()
    if rest.verdict == "same":
        return unstable, ""
    rows = rest.only_old + rest.only_new + rest.changed
    return (), (
        f"Two runs of the old version differ in {rows:,} rows, in more than columns that could be left out. "
        "Name keys, or columns to ignore."
    )


@dataclass(frozen=True)
class _Tables:
    """Two results, to be compared."""

    old: DataFrame
    new: DataFrame
    keys: Sequence[str]
    asked: Compare
    without: tuple[str, ...] = ()
    """Columns that are not compared."""

    @property
    def types(self) -> Mapping[str, DataType]:
        """The columns that are compared, with their types."""
        theirs = {field.name: field.dataType for field in self.new.schema.fields}
        ignored = {_BATCH, *self.without, *_ignored(self.asked)}
        return {
            field.name: field.dataType
            for field in self.old.schema.fields
            if field.name not in ignored and theirs.get(field.name) == field.dataType
        }

    def compared(self) -> ComparedQuery:
        from pyspark import StorageLevel
        from pyspark.sql import functions as F

        differing = self._differing().persist(StorageLevel.DISK_ONLY)
        try:
            counts = differing.agg(
                F.sum(F.greatest(_COUNT, F.lit(0))), F.sum(F.greatest(-F.col(_COUNT), F.lit(0)))
            ).first()
            only_old, only_new = ((counts[0] or 0), (counts[1] or 0)) if counts is not None else (0, 0)
            rows = self.old.count()
            found = ComparedQuery(
                old_rows=rows,
                new_rows=rows - only_old + only_new,
                equal=rows - only_old,
                columns=self._shape(),
            )
            return self._explained(found, differing) if only_old or only_new else found
        finally:
            differing.unpersist()

    def columns_of_other_content(self) -> tuple[str, ...]:
        """Return the columns whose values differ, whichever rows they are in: by sums of hashes."""
        from pyspark.sql import functions as F

        names = list(self.types)

        def sums(rows: DataFrame) -> Mapping[str, object]:
            hashes = [F.sum(F.xxhash64(_quoted(name)).cast("decimal(38,0)")).alias(name) for name in names]
            found = self._comparable(rows).agg(*hashes).first()
            return found.asDict() if found is not None else {}

        mine, theirs = sums(self.old), sums(self.new)
        return tuple(name for name in names if name not in self.keys and mine[name] != theirs[name])

    def _shape(self) -> tuple[str, ...]:
        """Return what became of the columns."""
        ignored = set(_ignored(self.asked))
        old, new = (
            {f.name: f.dataType for f in table.schema.fields if f.name not in {_BATCH, *ignored}}
            for table in (self.old, self.new)
        )
        return (
            *(f"column {name} dropped" for name in old if name not in new),
            *(f"column {name} added" for name in new if name not in old),
            *(
                f"column {name} changed from {old[name].simpleString()} to {new[name].simpleString()}"
                for name in old
                if name in new and old[name] != new[name]
            ),
        )

    def _comparable(self, rows: DataFrame) -> DataFrame:
        """Return the compared columns, in forms that can be grouped by."""
        from pyspark.sql import functions as F

        any_order = {name.removesuffix(ORDER) for name in self.asked.ignore if name.endswith(ORDER)}
        columns = []
        for name, kind in self.types.items():
            column = _groupable(F.col(_quoted(name)), kind)
            columns.append((F.array_sort(column) if name in any_order else column).alias(name))
        return rows.select(*columns, _BATCH)

    def _differing(self) -> DataFrame:
        """Return each row of which the sides have not equally many, with how many more the old one has."""
        from pyspark.sql import functions as F

        sides = [
            self._comparable(table).withColumn(_COUNT, F.lit(number).cast("long"))
            for table, number in ((self.old, 1), (self.new, -1))
        ]
        names = list(map(_quoted, self.types))
        more = F.sum(_COUNT).alias(_COUNT)
        of_batches = (
            sides[0].unionByName(sides[1]).groupBy(*names, _BATCH).agg(more).where(F.col(_COUNT) != 0)
        )
        if self.asked.by_batch:
            return of_batches
        return of_batches.groupBy(*names).agg(more, F.min(_BATCH).alias(_BATCH)).where(F.col(_COUNT) != 0)

    # --- what differs, as pairs of rows where there is something to pair them by ------------------

    def _explained(self, found: ComparedQuery, differing: DataFrame) -> ComparedQuery:
        pairs = self._pairs(differing)
        values = [name for name in self.types if name not in self._pair_by()]
        both = "__old IS NOT NULL AND __new IS NOT NULL"
        pairs = pairs.where(f"NOT ({both} AND within)")
        summed = pairs.selectExpr(
            f"sum(CASE WHEN {both} THEN 1 ELSE 0 END) AS changed",
            "sum(CASE WHEN __new IS NULL THEN 1 ELSE 0 END) AS only_old",
            "sum(CASE WHEN __old IS NULL THEN 1 ELSE 0 END) AS only_new",
            f"min({_BATCH}) AS first_batch",
            *[
                f"sum(CASE WHEN {both} AND NOT (__old.{_quoted(name)} <=> __new.{_quoted(name)}) "
                f"THEN 1 ELSE 0 END) AS {_quoted('column ' + name)}"
                for name in values
            ],
        ).first()
        sums = summed.asDict() if summed is not None else {}
        changed, only_old, only_new = (sums[name] or 0 for name in ("changed", "only_old", "only_new"))
        return replace(
            found,
            equal=found.old_rows - only_old - changed,
            changed=changed,
            only_old=only_old,
            only_new=only_new,
            first_batch=sums["first_batch"],
            changed_columns={name: sums[f"column {name}"] for name in values if sums[f"column {name}"]},
            samples=self._samples(pairs) if changed + only_old + only_new else (),
        )

    def _pair_by(self) -> list[str]:
        """Return the columns that identify a row: keys; without keys, all that have no tolerance."""
        if self.keys:
            return list(self.keys)
        tolerant = [name for name in self.types if name in self.asked.tolerance]
        return [name for name in self.types if name not in tolerant] if tolerant else []

    def _pairs(self, differing: DataFrame) -> DataFrame:
        """Return rows of the old side beside those of the new one; without keys each row is alone."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        by, names = self._pair_by(), list(map(_quoted, self.types))
        copies = F.explode(F.sequence(F.lit(1).cast("long"), F.abs(_COUNT)))
        one_each = differing.withColumn("__copy", copies)
        sides = {}
        for side, wanted in ((_OLD, F.col(_COUNT) > 0), (_NEW, F.col(_COUNT) < 0)):
            rows = one_each.where(wanted).withColumn(side, F.struct(*names))
            rows = rows.withColumn(f"{side}_batch", F.col(_BATCH))
            if by:
                place = [*map(_quoted, by), *([_BATCH] if self.asked.by_batch else [])]
                of_key = Window.partitionBy(*place).orderBy(*names)
                rows = rows.withColumn(f"{side}_place", F.row_number().over(of_key))
            sides[side] = rows.drop(*self.types, _COUNT, "__copy", _BATCH)
        old, new = sides[_OLD], sides[_NEW]
        if not by:
            none = [F.lit(None).cast(new.schema[_NEW].dataType).alias(_NEW)]
            alone = old.select(_OLD, *none, F.col(f"{_OLD}_batch").alias(_BATCH))
            others = new.select(none[0].alias(_OLD), _NEW, F.col(f"{_NEW}_batch").alias(_BATCH))
            return alone.unionByName(others).withColumn("within", F.lit(False))
        on = [F.col(f"{_OLD}.{_quoted(name)}").eqNullSafe(F.col(f"{_NEW}.{_quoted(name)}")) for name in by]
        on.append(F.col(f"{_OLD}_place") == F.col(f"{_NEW}_place"))
        if self.asked.by_batch:
            on.append(F.col(f"{_OLD}_batch") == F.col(f"{_NEW}_batch"))
        joined = old.join(new, on=on, how="full")
        return joined.select(
            *(_OLD, _NEW),
            F.least(f"{_OLD}_batch", f"{_NEW}_batch").alias(_BATCH),
            self._within().alias("within"),
        )

    def _within(self) -> Column:
        """Return whether two rows differ by no more than they may."""
        from pyspark.sql import functions as F

        within = F.lit(True)
        for name in self.types:
            one, other = F.col(f"{_OLD}.{_quoted(name)}"), F.col(f"{_NEW}.{_quoted(name)}")
            same = one.eqNullSafe(other)
            if name in self.asked.tolerance:
                same = same | F.coalesce(
                    F.abs(one - other) <= F.lit(self.asked.tolerance[name]), F.lit(False)
                )
            within = within & same
        return within

    def _samples(self, pairs: DataFrame) -> tuple[ShownRow, ...]:
        """Return some of each kind, those of the earliest batches: Spark keeps so many and sorts no more."""
        from pyspark.sql import functions as F

        conditions: tuple[tuple[Kind, str], ...] = (
            ("changed", "__old IS NOT NULL AND __new IS NOT NULL"),
            ("only in old", "__new IS NULL"),
            ("only in new", "__old IS NULL"),
        )
        texts = [
            F.when(F.col(side).isNotNull(), F.to_json(side, {"ignoreNullFields": "false"})).alias(side)
            for side in (_OLD, _NEW)
        ]
        earliest = pairs.orderBy(_BATCH)
        return tuple(
            ShownRow(kind=kind, old=_short(row[_OLD]), new=_short(row[_NEW]))
            for kind, condition in conditions
            for row in earliest.where(condition).select(*texts).limit(self.asked.samples).collect()
        )


def _ignored(asked: Compare) -> list[str]:
    return [name for name in asked.ignore if not name.endswith(ORDER)]


def _groupable(column: Column, kind: DataType) -> Column:
    """Return a column whose maps are sorted arrays: Spark neither groups by maps nor orders them."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, MapType, StructType

    if "map<" not in kind.simpleString():
        return column
    match kind:
        case MapType():
            entries = F.map_entries(column)
            value = kind.valueType
            if "map<" in value.simpleString():
                entries = F.transform(
                    entries,
                    lambda e: F.struct(e["key"].alias("key"), _groupable(e["value"], value).alias("value")),
                )
            return F.array_sort(entries)
        case ArrayType():
            return F.transform(column, lambda element: _groupable(element, kind.elementType))
        case StructType():
            fields = [_groupable(column[f.name], f.dataType).alias(f.name) for f in kind.fields]
            return F.when(column.isNotNull(), F.struct(*fields))
        case _:
            return column


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _short(text: str | None) -> str | None:
    return text if text is None or len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]} ..."
