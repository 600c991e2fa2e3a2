"""What can go wrong when a savepoint's state is opened."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from airflow_flinkstyle.errors import ErrorKind, FlinkstyleError

if TYPE_CHECKING:
    from collections.abc import Collection


_ERROR: Final = re.compile(r"[A-Za-z_.]*(?:Error|Exception)\b: ")
_UNTOUCHED: Final = "The savepoint and the job are as they were."


STATE_READ = ErrorKind(
    code="STATE_READ",
    means="A savepoint's state cannot be shown as asked.",
    state_after=_UNTOUCHED,
)

STATE_READ_SPARK_TOO_OLD = STATE_READ.case(
    "Reading state needs Spark 4.0 or newer, which brought the state reader, found {version}.",
    "Open the savepoint with PySpark 4.0 or newer; it reads the state of Spark 3.5 too.",
)

STATE_READ_SCRATCH_NEEDED = STATE_READ.case(
    "Spark runs on {master}, whose executors do not read this machine's temporary folder, where "
    "the state would be copied to.",
    "Read it with spark.master=local[*]; or, in Python, pass scratch= with a location that "
    "driver and executors reach, such as s3a://bucket/tmp.",
)

STATE_READ_SCRATCH_UNUSABLE = STATE_READ.case(
    "Expected a location that the state can be copied to, found {location}: {why}.",
    "Pass scratch= with a folder that this account may write to.",
)

STATE_READ_STATELESS = STATE_READ.case(
    "Query {query} of savepoint {savepoint_id} has no stateful operator.",
    "Choose a query that aggregates, joins, deduplicates or keeps state of its own.",
)

STATE_READ_NOT_COMPARABLE = STATE_READ.case(
    "Expected two states with the same key, found {before} and {after}.",
    "Compare states of the same operator; one whose key has changed has no keys in common.",
)

REPARTITION = ErrorKind(
    code="REPARTITION",
    means="A savepoint's state cannot be spread over another number of partitions.",
)

REPARTITION_SPARK_TOO_OLD = REPARTITION.case(
    "Repartitioning needs Spark 4.2 or newer, which brought it, found {version}.",
    "Run it with PySpark 4.2 or newer.",
    state_after=_UNTOUCHED,
)

REPARTITION_BAD_NUMBER = REPARTITION.case(
    "Expected a number of partitions from 1 on, found {partitions}.",
    "Pass the number of shuffle partitions that the job is to have.",
    state_after=_UNTOUCHED,
)

REPARTITION_NOTHING_TO_DO = REPARTITION.case(
    "Expected savepoint {savepoint_id} to have state in another number of partitions than "
    "{partitions}, found none.",
    "Start from the savepoint as it is.",
    state_after=_UNTOUCHED,
)

REPARTITION_WITHOUT_KEYS = REPARTITION.case(
    "Operator {operator} of query {query} keeps state without keys, in partition 0 whatever their number; "
    "Spark's repartition spreads it by the hash of no fields, where no batch finds it.",
    "Keep the number of partitions; or change the state instead (`flinkstyle savepoint transform`).",
    state_after="The repartitioned copy was thrown away; the savepoint and the job are as they were.",
)

REPARTITION_PROVIDER = REPARTITION.case(
    "Spark repartitions state in RocksDB only; query {query} keeps its in {provider}.",
    "Move it to RocksDB first: convert_savepoint, or `flinkstyle savepoint convert`.",
    state_after=_UNTOUCHED,
)

REPARTITION_NUMBERED = REPARTITION.case(
    "Query {query} writes with a transactional sink, which counts batches. Repartitioning is a "
    "batch of its own that the sink does not see, and this state cannot be renumbered: {what}",
    "Keep the number of partitions, or drain the job and begin a new lineage.",
    state_after=_UNTOUCHED,
)

REPARTITION_PLANNED = REPARTITION.case(
    "Query {query} was expected to have completed its batches, found that batch {batch} was "
    "planned already: all or a part of it may be in the output. Repartitioning this state takes that "
    "number, and the same records would be written again under the next one.",
    "Let the job run until it has completed that batch and stop it with a savepoint; then change "
    "the number of partitions.",
    state_after=_UNTOUCHED,
)

REPARTITION_BY_SPARK = REPARTITION.case(
    "Spark would not repartition the state of query {query}: {why}",
    "See what Spark asks for; a job that cannot be repartitioned keeps its partitions.",
    state_after=_UNTOUCHED,
)

REPARTITION_DIFFERS = REPARTITION.case(
    "Expected operator {operator} ({which}) of query {query} to have the same keys and values "
    "after repartitioning, found a difference, first at key {key}.",
    "Keep the number of partitions, and report this.",
    state_after="The repartitioned copy was thrown away; the savepoint and the job are as they were.",
)

BOOTSTRAP = ErrorKind(
    code="BOOTSTRAP",
    means="A job that has never run cannot be given a first savepoint.",
    state_after="No savepoint was made, and nothing was written to the script's outputs.",
)

BOOTSTRAP_NOT_FIRST = BOOTSTRAP.case(
    "Expected a job that has never run, found that job {job} has {found}.",
    "Name another job; or change the state of a savepoint that it has (transform_state, `flinkstyle "
    "savepoint transform`).",
)

BOOTSTRAP_SCRIPT = BOOTSTRAP.case(
    "The script {script} was run with its queries' starts held, and failed: {why}",
    "Correct the script, or pass it the arguments that the job is to have.",
)

BOOTSTRAP_NO_QUERY = BOOTSTRAP.case(
    "Expected the script {script} to start a query, found that it started none.",
    "Pass the script of the job, with the arguments that make it start its queries.",
)

BOOTSTRAP_NAMES = BOOTSTRAP.case(
    "Expected each query of the script to have a name of its own, found a second {name}.",
    "Give every query a name with .queryName(...).",
)

BOOTSTRAP_PROVIDER = BOOTSTRAP.case(
    "State is written in RocksDB only; for query {query} the script sets {provider}.",
    "Leave spark.sql.streaming.stateStore.providerClass out: a start from the savepoint uses RocksDB.",
)

BOOTSTRAP_NO_SOURCE = BOOTSTRAP.case(
    "Expected positions of sources that the script reads, {known}, found one for {name}.",
    "Name a source by its place in the query, or by its .name(); in front of it the query, if the script has "
    "several: totals/0.",
)

BOOTSTRAP_TABLE = BOOTSTRAP.case(
    "Expected a table that Spark can read, found {sql!r}: {why}",
    "Name files by their format, such as SELECT * FROM parquet.`/data/totals`, or a table of the catalog.",
)

BOOTSTRAP_READ = BOOTSTRAP.case(
    "Expected query {query} to read nothing for its first batch, found {rows} rows.",
    "Report this, with the query's sources.",
)

STATE_ROW = ErrorKind(
    code="STATE_ROW",
    means="Rows of state cannot be read or written.",
    state_after=_UNTOUCHED,
)

STATE_ROW_UNKNOWN_TYPE = STATE_ROW.case(
    "Expected a type that Spark keeps in state, found {kind}.",
    "Cast the column to the type that it has in the state's schema.",
)

STATE_ROW_TOO_LARGE = STATE_ROW.case(
    "Expected at most 2 GiB of rows at once, found {size_bytes} bytes.",
    "Give fewer rows at once, for example by spark.sql.execution.arrow.maxRecordsPerBatch.",
)

STATE_ROW_DAMAGED = STATE_ROW.case(
    "Expected rows of this schema, found {what}.",
    "See whether the schema is the one that the rows were written with.",
)

STATE_TRANSFORM = ErrorKind(
    code="STATE_TRANSFORM",
    means="A savepoint's state cannot be changed as asked.",
)

STATE_TRANSFORM_SPARK_TOO_OLD = STATE_TRANSFORM.case(
    "Changing state needs Spark 4.2 or newer, which brought the writer, found {version}.",
    "Run it with PySpark 4.2 or newer.",
    state_after=_UNTOUCHED,
)

STATE_TRANSFORM_PROVIDER = STATE_TRANSFORM.case(
    "Spark writes state in RocksDB only; query {query} keeps its in {provider}.",
    "Move it to RocksDB first: convert_savepoint, or `flinkstyle savepoint convert`.",
    state_after=_UNTOUCHED,
)

STATE_TRANSFORM_NOT_CONVERTED = STATE_TRANSFORM.case(
    "Expected query {query} to keep its state in Spark's default provider, "
    "HDFSBackedStateStoreProvider, found {provider}.",
    "Start from the savepoint as it is: only a move from the default provider to RocksDB is "
    "possible, since Spark's writer knows RocksDB only.",
    state_after=_UNTOUCHED,
)

STATE_TRANSFORM_UNKNOWN_STORES = STATE_TRANSFORM.case(
    "Expected stores that are known here, found {found} of operator {operator} of query {query}, {name}.",
    "This operator's state cannot be changed, only left out with DropOperatorState.",
    state_after=_UNTOUCHED,
)

STATE_TRANSFORM_SCHEMA_OF_SEVERAL = STATE_TRANSFORM.case(
    "Expected the state of operator {operator} of query {query} to keep its schema, since it is one of "
    "several, found a change that may give it another.",
    "Change its values only; a side of a join and a variable of transformWithState keep their columns.",
    state_after=_UNTOUCHED,
)

STATE_TRANSFORM_PLACED_OTHERWISE = STATE_TRANSFORM.case(
    "Expected keys that Spark spreads by themselves or by their first fields, found {key}.",
    "This operator's state cannot be changed yet; report it.",
    state_after=_UNTOUCHED,
)

STATE_TRANSFORM_SCHEMA = STATE_TRANSFORM.case(
    "The function for operator {operator} of query {query} was expected to return {expected}, found {found}.",
    "Return a DataFrame with the columns key and value, of the types that were given; where the new version "
    "has other types, wrap the function in NewSchema, or use AddColumn, DropColumn, RenameColumn or "
    "WidenColumn.",
    state_after=_UNTOUCHED,
)

STATE_TRANSFORM_NO_CHANGES = STATE_TRANSFORM.case(
    "Expected {script} to define changes, a dict of functions by number of the operator, found none.",
    "Write, for example, changes = {{0: lambda state: state.where('key.k <> 2')}}.",
    state_after=_UNTOUCHED,
)

STATE_TRANSFORM_NO_STRUCTS = STATE_TRANSFORM.case(
    "The function for operator {operator} of query {query} was expected to return a DataFrame of two "
    "structs, key and value, found {found}.",
    "Return a DataFrame with the columns key and value, each a struct of the new version's fields.",
    state_after=_UNTOUCHED,
)

STATE_TRANSFORM_PREFIX = STATE_TRANSFORM.case(
    "Expected the key of operator {operator} of query {query}, {name}, to keep its fields, since Spark looks "
    "keys up by the first {prefix} of them, found {found}.",
    "Change its values only.",
    state_after=_UNTOUCHED,
)

STATE_TRANSFORM_TABLE = STATE_TRANSFORM.case(
    "Expected a table with a column for each field of the state, {expected}, found {found}.",
    "Name the columns so; or give columns key and value, structs, where both have a field of one name.",
    state_after=_UNTOUCHED,
)

STATE_TRANSFORM_FIELD_THERE = STATE_TRANSFORM.case(
    "Expected a name that no field beside it has, found {name!r}.",
    "Choose another name.",
    state_after=_UNTOUCHED,
)

STATE_TRANSFORM_NOT_WIDER = STATE_TRANSFORM.case(
    "Expected a type for {name} that holds every {old}, found {new}.",
    "Name a wider one; for a type that does not hold them all, write a function that decides what becomes "
    "of the others, and wrap it in NewSchema.",
    state_after=_UNTOUCHED,
)

STATE_TRANSFORM_DROPPED_AND_CHANGED = STATE_TRANSFORM.case(
    "Expected DropOperatorState to be the only change of its operator, found others beside it.",
    "Leave them out.",
    state_after=_UNTOUCHED,
)

STATE_TRANSFORM_NOT_READY_MADE = STATE_TRANSFORM.case(
    "Expected a ready-made change under 'does', one of {known}, with its fields; found {found}.",
    'Write, for example, {{"does": "DropKeys", "where": "key.k = 1"}}.',
    state_after=_UNTOUCHED,
)

STATE_TRANSFORM_NOT_FOUND = STATE_TRANSFORM.case(
    "Expected the driver to find changes of state, a dict by operator, under {text}, found {found}.",
    "Write module:name of a dict, or of a function that returns one, in a file beside the script or in its "
    "py_files.",
    state_after=_UNTOUCHED,
)

STATE_TRANSFORM_NOT_FOR_QUERIES = STATE_TRANSFORM.case(
    "Expected the changes of {text} by query, since the job has several, {names}, found operators.",
    "Put a dict around them: name of the query -> operator -> change.",
    state_after=_UNTOUCHED,
)

STATE_TRANSFORM_NULL = STATE_TRANSFORM.case(
    "The function for operator {operator} of query {query} was expected to return no null in "
    "{field}, found one, first at {key}.",
    "Give it a value, or leave the key out.",
    state_after=_UNTOUCHED,
)

STATE_TRANSFORM_TWICE = STATE_TRANSFORM.case(
    "The function for operator {operator} of query {query} was expected to return each key once, "
    "found {key} {count} times.",
    "Combine the rows of a key into one.",
    state_after=_UNTOUCHED,
)

STATE_TRANSFORM_BY_SPARK = STATE_TRANSFORM.case(
    "Spark would not write the new state: {why}",
    "See what Spark asks for; if the function is not the cause, report it.",
    state_after="The copy was thrown away; the savepoint and the job are as they were.",
)

STATE_TRANSFORM_DIFFERS = STATE_TRANSFORM.case(
    "Expected to read the state of operator {operator} of query {query} as the function returned "
    "it, found a difference, first at key {key}.",
    "Report this, with the types of key and value.",
    state_after="The copy was thrown away; the savepoint and the job are as they were.",
)


def state_read_query_unknown(query: str | None, known: Collection[str], savepoint_id: str) -> FlinkstyleError:
    """Name the queries to choose from."""
    found = "no query" if query is None else f"query {query!r}"
    return STATE_READ.with_text(
        f"Expected the name of one of the queries of savepoint {savepoint_id}, "
        f"{', '.join(sorted(known))}, found {found}.",
        state_after=_UNTOUCHED,
        remedy="Pass query= with one of these names.",
    )


def state_read_operator_unknown(operator: int, query: str, known: Collection[str]) -> FlinkstyleError:
    """Name the operators to choose from."""
    return STATE_READ.with_text(
        f"Expected an operator of query {query}, {', '.join(known)}, found {operator}.",
        state_after=_UNTOUCHED,
        remedy="Pass operator= with one of these numbers.",
    )


def state_read_side_needed(query: str, operator: int, stores: Collection[str]) -> FlinkstyleError:
    """Return the error for a join, which keeps the rows of its two inputs apart."""
    return STATE_READ.with_text(
        f"Operator {operator} of query {query} is a join of two streams, which keeps the rows of each "
        "side apart; found neither join_side nor store.",
        state_after=_UNTOUCHED,
        remedy=f"Pass join_side='left' or 'right', or store= with one of {', '.join(stores)}.",
    )


def state_read_variable_needed(
    query: str, operator: int, given: str | None, known: Collection[str]
) -> FlinkstyleError:
    """Name the state variables to choose from."""
    found = "none" if given is None else repr(given)
    return STATE_READ.with_text(
        f"Operator {operator} of query {query} keeps state variables, {', '.join(known)}; expected one "
        f"of them, found {found}.",
        state_after=_UNTOUCHED,
        remedy="Pass variable= with one of these names, or timers=True.",
    )


def state_read_bad_condition(where: str, why: str, schema: str) -> FlinkstyleError:
    """Give Spark's reason, and the columns to choose from."""
    return STATE_READ.with_text(
        f"Expected a condition in SQL over {schema}, found {where!r}: {why.splitlines()[0]}",
        state_after=_UNTOUCHED,
        remedy="Correct the condition, for example \"key.customer = 'c1'\".",
    )


def repartition_not_listed(query: str, operators: Collection[int]) -> FlinkstyleError:
    """Name the operators that cannot be compared."""
    return REPARTITION.with_text(
        f"Expected Spark to list every operator of query {query} that has state, found nothing of "
        f"{', '.join(map(str, operators))}: a Spark before 4.0 wrote it, and it cannot be compared.",
        state_after="The repartitioned copy was thrown away; the savepoint and the job are as they were.",
        remedy="Run the job on Spark 4 for a batch, which makes the list, and take a savepoint; if Spark "
        "still does not list them, keep the number of partitions.",
    )


def state_not_done(kind: str, text: str) -> FlinkstyleError:
    """Return what Spark, or a script that was given, has raised as an error for people."""
    said = next((line.strip() for line in text.splitlines() if line.strip()), "it says no more").rstrip(".")
    return STATE_READ.with_text(
        f"What was asked of the state was expected to be done, found {kind}: {said}.",
        remedy="Correct the script, the condition, the table or the setting that was given.",
    )


def transform_failed(query: str, operator: int, why: str) -> FlinkstyleError:
    """Repeat the function's own error, which is in the last lines of Spark's message."""
    lines = [line.strip() for line in why.splitlines() if line.strip()]
    cause = next((line for line in reversed(lines) if _ERROR.match(line)), lines[0] if lines else "nothing")
    return STATE_TRANSFORM.with_text(
        f"The function for operator {operator} of query {query} failed: {cause}",
        state_after=_UNTOUCHED,
        remedy="Correct the function; try it on savepoint_state(...) first.",
    )


def transform_no_state(name: str, operator: int, known: Collection[str]) -> FlinkstyleError:
    """Name the states that an operator has."""
    found = ", ".join(known) if any(known) else "only one, without a name"
    return STATE_TRANSFORM.with_text(
        f"Expected a state of operator {operator}, {found}, found {name!r}.",
        state_after=_UNTOUCHED,
        remedy="Give changes by side of a join, or by variable of a transformWithState.",
    )


def transform_no_field(name: str, known: Collection[str]) -> FlinkstyleError:
    """Name the fields that a value has."""
    return STATE_TRANSFORM.with_text(
        f"Expected a field of the values, {', '.join(known)}, found {name!r}.",
        state_after=_UNTOUCHED,
        remedy="Name one of these fields.",
    )
