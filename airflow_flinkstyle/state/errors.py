"""What can go wrong when a savepoint's state is opened."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from airflow_flinkstyle.errors import FlinkstyleError

if TYPE_CHECKING:
    from collections.abc import Collection

    from typing_extensions import Self

_ERROR: Final = re.compile(r"[A-Za-z_.]*(?:Error|Exception)\b: ")
_UNTOUCHED: Final = "The savepoint and the job are as they were."


class StateReadError(FlinkstyleError):
    """A savepoint's state cannot be shown as asked."""

    code = "STATE_READ"

    @classmethod
    def spark_too_old(cls, version: str) -> Self:
        """Name the version that was found."""
        return cls(
            f"Reading state needs Spark 4.0 or newer, which brought the state reader, found {version}.",
            state_after=_UNTOUCHED,
            remedy="Open the savepoint with PySpark 4.0 or newer; it reads the state of Spark 3.5 too.",
        )

    @classmethod
    def scratch_needed(cls, master: str) -> Self:
        """Name the cluster whose executors cannot read this machine's disk."""
        return cls(
            f"Spark runs on {master}, whose executors do not read this machine's temporary folder, where the "
            "state would be copied to.",
            state_after=_UNTOUCHED,
            remedy="Read it with spark.master=local[*]; or, in Python, pass scratch= with a location that "
            "driver and executors reach, such as s3a://bucket/tmp.",
        )

    @classmethod
    def query_unknown(cls, query: str | None, known: Collection[str], savepoint_id: str) -> Self:
        """Name the queries to choose from."""
        found = "no query" if query is None else f"query {query!r}"
        return cls(
            f"Expected the name of one of the queries of savepoint {savepoint_id}, "
            f"{', '.join(sorted(known))}, found {found}.",
            state_after=_UNTOUCHED,
            remedy="Pass query= with one of these names.",
        )

    @classmethod
    def stateless(cls, query: str, savepoint_id: str) -> Self:
        """Say that there is nothing to show."""
        return cls(
            f"Query {query} of savepoint {savepoint_id} has no stateful operator.",
            state_after=_UNTOUCHED,
            remedy="Choose a query that aggregates, joins, deduplicates or keeps state of its own.",
        )

    @classmethod
    def operator_unknown(cls, operator: int, query: str, known: Collection[str]) -> Self:
        """Name the operators to choose from."""
        return cls(
            f"Expected an operator of query {query}, {', '.join(known)}, found {operator}.",
            state_after=_UNTOUCHED,
            remedy="Pass operator= with one of these numbers.",
        )

    @classmethod
    def side_needed(cls, query: str, operator: int, stores: Collection[str]) -> Self:
        """Say that a join keeps the rows of its two inputs apart."""
        return cls(
            f"Operator {operator} of query {query} is a join of two streams, which keeps the rows of each "
            "side apart; found neither join_side nor store.",
            state_after=_UNTOUCHED,
            remedy=f"Pass join_side='left' or 'right', or store= with one of {', '.join(stores)}.",
        )

    @classmethod
    def variable_needed(cls, query: str, operator: int, given: str | None, known: Collection[str]) -> Self:
        """Name the state variables to choose from."""
        found = "none" if given is None else repr(given)
        return cls(
            f"Operator {operator} of query {query} keeps state variables, {', '.join(known)}; expected one "
            f"of them, found {found}.",
            state_after=_UNTOUCHED,
            remedy="Pass variable= with one of these names, or timers=True.",
        )

    @classmethod
    def bad_condition(cls, where: str, why: str, schema: str) -> Self:
        """Say what Spark says of it, and which columns there are."""
        return cls(
            f"Expected a condition in SQL over {schema}, found {where!r}: {why.splitlines()[0]}",
            state_after=_UNTOUCHED,
            remedy="Correct the condition, for example \"key.customer = 'c1'\".",
        )

    @classmethod
    def not_comparable(cls, before: str, after: str) -> Self:
        """Name both schemas."""
        return cls(
            f"Expected two states with the same key, found {before} and {after}.",
            state_after=_UNTOUCHED,
            remedy="Compare states of the same operator; one whose key has changed has no keys in common.",
        )


class RepartitionError(FlinkstyleError):
    """A savepoint's state cannot be spread over another number of partitions."""

    code = "REPARTITION"

    @classmethod
    def spark_too_old(cls, version: str) -> Self:
        """Name the version that was found."""
        return cls(
            f"Repartitioning needs Spark 4.2 or newer, which brought it, found {version}.",
            state_after=_UNTOUCHED,
            remedy="Run it with PySpark 4.2 or newer.",
        )

    @classmethod
    def bad_number(cls, partitions: int) -> Self:
        """Name the number that was given."""
        return cls(
            f"Expected a number of partitions from 1 on, found {partitions}.",
            state_after=_UNTOUCHED,
            remedy="Pass the number of shuffle partitions that the job is to have.",
        )

    @classmethod
    def nothing_to_do(cls, savepoint_id: str, partitions: int) -> Self:
        """Say that no query would change."""
        return cls(
            f"Expected savepoint {savepoint_id} to have state in another number of partitions than "
            f"{partitions}, found none.",
            state_after=_UNTOUCHED,
            remedy="Start from the savepoint as it is.",
        )

    @classmethod
    def provider(cls, query: str, provider: str) -> Self:
        """Name the state store that Spark does not repartition."""
        return cls(
            f"Spark repartitions state in RocksDB only; query {query} keeps its in {provider}.",
            state_after=_UNTOUCHED,
            remedy="Move it to RocksDB first: convert_savepoint, or `flinkstyle savepoint convert`.",
        )

    @classmethod
    def numbered(cls, query: str, what: str) -> Self:
        """Say why the sink would refuse what comes after."""
        return cls(
            f"Query {query} writes with a transactional sink, which counts batches. Repartitioning is a "
            f"batch of its own that the sink does not see, and this state cannot be renumbered: {what}",
            state_after=_UNTOUCHED,
            remedy="Keep the number of partitions, or drain the job and begin a new lineage.",
        )

    @classmethod
    def planned(cls, query: str, batch: int) -> Self:
        """Name the batch whose number the repartition has taken."""
        return cls(
            f"Query {query} was expected to have completed its batches, found that batch {batch} was planned "
            "already: all or a part of it may be in the output. Repartitioning this state takes that number, "
            "and the same records would be written again under the next one.",
            state_after=_UNTOUCHED,
            remedy="Let the job run until it has completed that batch and stop it with a savepoint; then "
            "change the number of partitions.",
        )

    @classmethod
    def not_told(cls, query: str, operators: Collection[int]) -> Self:
        """Name the operators that nobody could compare."""
        return cls(
            f"Expected Spark to list every operator of query {query} that has state, found nothing of "
            f"{', '.join(map(str, operators))}: a Spark before 4.0 wrote it, and it cannot be compared.",
            state_after="The repartitioned copy was thrown away; the savepoint and the job are as they were.",
            remedy="Run the job on Spark 4 for a batch, which makes the list, and take a savepoint; if Spark "
            "still does not list them, keep the number of partitions.",
        )

    @classmethod
    def by_spark(cls, query: str, why: str) -> Self:
        """Repeat what Spark said."""
        return cls(
            f"Spark would not repartition the state of query {query}: {why}",
            state_after=_UNTOUCHED,
            remedy="See what Spark asks for; a job that cannot be repartitioned keeps its partitions.",
        )

    @classmethod
    def differs(cls, query: str, operator: int, which: str, key: str) -> Self:
        """Name a key whose state is not what it was."""
        return cls(
            f"Expected operator {operator} ({which}) of query {query} to have the same keys and values after "
            f"repartitioning, found a difference, first at key {key}.",
            state_after="The repartitioned copy was thrown away; the savepoint and the job are as they were.",
            remedy="Keep the number of partitions, and report this.",
        )


class RowError(FlinkstyleError):
    """Rows of state cannot be read or written."""

    code = "STATE_ROW"

    @classmethod
    def unknown_type(cls, kind: str) -> Self:
        """Name a type that Spark keeps in no row."""
        return cls(
            f"Expected a type that Spark keeps in state, found {kind}.",
            state_after=_UNTOUCHED,
            remedy="Cast the column to the type that it has in the state's schema.",
        )

    @classmethod
    def too_large(cls, size_bytes: int) -> Self:
        """Say how much was given at once."""
        return cls(
            f"Expected at most 2 GiB of rows at once, found {size_bytes} bytes.",
            state_after=_UNTOUCHED,
            remedy="Give fewer rows at once, for example by spark.sql.execution.arrow.maxRecordsPerBatch.",
        )

    @classmethod
    def damaged(cls, what: str) -> Self:
        """Say what no row of this schema can have."""
        return cls(
            f"Expected rows of this schema, found {what}.",
            state_after=_UNTOUCHED,
            remedy="See whether the schema is the one that the rows were written with.",
        )


class TransformError(FlinkstyleError):
    """A savepoint's state cannot be changed as asked."""

    code = "STATE_TRANSFORM"

    @classmethod
    def spark_too_old(cls, version: str) -> Self:
        """Name the version that was found."""
        return cls(
            f"Changing state needs Spark 4.2 or newer, which brought the writer, found {version}.",
            state_after=_UNTOUCHED,
            remedy="Run it with PySpark 4.2 or newer.",
        )

    @classmethod
    def provider(cls, query: str, provider: str) -> Self:
        """Name the state store that Spark's writer does not know."""
        return cls(
            f"Spark writes state in RocksDB only; query {query} keeps its in {provider}.",
            state_after=_UNTOUCHED,
            remedy="Move it to RocksDB first: convert_savepoint, or `flinkstyle savepoint convert`.",
        )

    @classmethod
    def not_converted(cls, query: str, provider: str) -> Self:
        """Name the state store that is not left."""
        return cls(
            f"Expected query {query} to keep its state in Spark's default provider, "
            f"HDFSBackedStateStoreProvider, found {provider}.",
            state_after=_UNTOUCHED,
            remedy="Start from the savepoint as it is: only a move from the default provider to RocksDB is "
            "possible, since Spark's writer knows RocksDB only.",
        )

    @classmethod
    def several_stores(cls, query: str, operator: int, name: str) -> Self:
        """Name an operator whose state is in several parts that belong together."""
        return cls(
            f"Expected an operator with one store of keys and values, found operator {operator} of query "
            f"{query}, {name}, which keeps several that belong together.",
            state_after=_UNTOUCHED,
            remedy="Aggregations, deduplications, sessions and applyInPandasWithState can be changed; joins "
            "and transformWithState cannot yet.",
        )

    @classmethod
    def placed_otherwise(cls, key: str) -> Self:
        """Name the key whose place Spark chooses in a way that is not known."""
        return cls(
            f"Expected keys that Spark spreads by themselves or by their first fields, found {key}.",
            state_after=_UNTOUCHED,
            remedy="This operator's state cannot be changed yet; report it.",
        )

    @classmethod
    def schema(cls, query: str, operator: int, expected: str, found: str) -> Self:
        """Name both schemas."""
        return cls(
            f"The function for operator {operator} of query {query} was expected to return {expected}, "
            f"found {found}.",
            state_after=_UNTOUCHED,
            remedy="Return a DataFrame with the columns key and value, of the types that were given.",
        )

    @classmethod
    def failed(cls, query: str, operator: int, why: str) -> Self:
        """Repeat the function's own error, which stands in the last lines of what Spark says."""
        lines = [line.strip() for line in why.splitlines() if line.strip()]
        said = next(
            (line for line in reversed(lines) if _ERROR.match(line)), lines[0] if lines else "nothing"
        )
        return cls(
            f"The function for operator {operator} of query {query} failed: {said}",
            state_after=_UNTOUCHED,
            remedy="Correct the function; try it on savepoint_state(...) first.",
        )

    @classmethod
    def no_changes(cls, script: str) -> Self:
        """Name the script."""
        return cls(
            f"Expected {script} to define changes, a dict of functions by number of the operator, found "
            "none.",
            state_after=_UNTOUCHED,
            remedy="Write, for example, changes = {0: lambda state: state.where('key.k <> 2')}.",
        )

    @classmethod
    def no_change(cls, operator: int, known: Collection[int]) -> Self:
        """Name the operators that the script changes."""
        return cls(
            f"Expected an operator that the script changes, {', '.join(map(str, sorted(known)))}, found "
            f"{operator}.",
            state_after=_UNTOUCHED,
            remedy="Pass --operator with one of these numbers.",
        )

    @classmethod
    def no_field(cls, name: str, known: Collection[str]) -> Self:
        """Name the fields that a value has."""
        return cls(
            f"Expected a field of the values, {', '.join(known)}, found {name!r}.",
            state_after=_UNTOUCHED,
            remedy="Name one of these fields.",
        )

    @classmethod
    def null(cls, query: str, operator: int, field: str, key: str) -> Self:
        """Name a field that must not be null."""
        return cls(
            f"The function for operator {operator} of query {query} was expected to return no null in "
            f"{field}, found one, first at {key}.",
            state_after=_UNTOUCHED,
            remedy="Give it a value, or leave the key out.",
        )

    @classmethod
    def twice(cls, query: str, operator: int, key: str, count: int) -> Self:
        """Name a key that was returned more than once."""
        return cls(
            f"The function for operator {operator} of query {query} was expected to return each key once, "
            f"found {key} {count} times.",
            state_after=_UNTOUCHED,
            remedy="Combine the rows of a key into one.",
        )

    @classmethod
    def by_spark(cls, why: str) -> Self:
        """Repeat what Spark said."""
        return cls(
            f"Spark would not write the new state: {why}",
            state_after="The copy was thrown away; the savepoint and the job are as they were.",
            remedy="See what Spark asks for; if it is nothing of the function's, report it.",
        )

    @classmethod
    def differs(cls, query: str, operator: int, key: str) -> Self:
        """Name a key that was not read back as it was written."""
        return cls(
            f"Expected to read the state of operator {operator} of query {query} as the function returned "
            f"it, found a difference, first at key {key}.",
            state_after="The copy was thrown away; the savepoint and the job are as they were.",
            remedy="Report this, with the types of key and value.",
        )
