"""``offsets/N``: what batch N reads, from each source. Versions 1 and 2 (Spark 4.2). Pure.

Lines are kept as they are and only parsed on demand, so that rendering gives the same bytes.
Spark: ``OffsetSeqLog``, ``OffsetSeq``, ``OffsetMap``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from airflow_flinkstyle.checkpoint.errors import LogFormatError
from airflow_flinkstyle.checkpoint.logfile import compact_json, is_number, json_object, split_version
from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.types import NextOffset, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sized

KNOWN_VERSIONS = (1, 2)
SOURCE_EVOLUTION: Final = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
"""Setting by which Spark (4.2) identifies sources by the names that a script gives them."""
_NO_OFFSET, _NO_TOPICS = "-", "{}"
_NONE = Offsets()
_OF_VERSION_2: Final = frozenset(("sourceMetadataInfo", "controlBatchInfo"))
_Key = TypeVar("_Key", str, int)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetLog:
    """One file of the offset log."""

    version: int
    """1: sources by position; 2: sources by name or id, in arbitrary order."""
    header: str
    """The second line: watermark, timestamp and pinned confs as raw JSON."""
    sources: Mapping[str, str]
    """Raw offset JSON per source, in the file's order; the key is the position in v1, the id in v2."""
    end: str = ""
    """Behind the last source: a line end, if the file was edited by hand; Spark reads it all the same."""
    _parsed: dict[str, Offsets | None] = field(default_factory=dict, init=False, repr=False, compare=False)
    """A cache: a source's line is parsed once."""

    def render(self) -> str:
        """Return the file's content; for an unchanged log exactly the text that was parsed."""
        if self.version == 1:
            lines = list(self.sources.values())
        else:
            lines = [f"{source}:{offset}" for source, offset in self.sources.items()]
        return "\n".join([f"v{self.version}", self.header, *lines]) + self.end

    @property
    def confs(self) -> Mapping[str, str]:
        """Settings that override the session's when Spark restarts from this log."""
        confs = self._header_fields().get("conf", {})
        if not isinstance(confs, dict) or not all(isinstance(value, str) for value in confs.values()):
            raise LogFormatError.of("Offset log", "string settings under 'conf'", self.header)
        return dict(confs)

    @property
    def watermark_ms(self) -> int:
        """Event-time watermark of the batch, epoch milliseconds; 0 if there is none."""
        return self._integer("batchWatermarkMs")

    @property
    def timestamp_ms(self) -> int:
        """Processing time of the batch, epoch milliseconds."""
        return self._integer("batchTimestampMs")

    @property
    def kafka_sources(self) -> tuple[str, ...]:
        """The sources whose offsets have the Kafka connector's form.

        Other sources may write the same, so it proves nothing: a run's records hold what a source is.
        """
        return tuple(source for source in self.sources if self._kafka(source) is not None)

    def kafka_offsets(self, source: str) -> Offsets:
        """Return where a Kafka source is; empty if it has no offsets yet.

        Raises:
            BadInputError: If there is no such source, or it is not a Kafka source.
        """
        if source not in self.sources:
            raise BadInputError(
                f"Expected a source {source!r} in the offset log, found {list(self.sources)}.",
                state_after="Nothing was changed.",
                remedy="Use the position of the source (log v1) or its name (log v2).",
            )
        raw = self.sources[source]
        # A pattern that matches no topic reads {}.
        offsets = _NONE if raw in (_NO_OFFSET, _NO_TOPICS) else self._kafka(source)
        if offsets is None:
            raise BadInputError(
                f"Expected offsets of a Kafka source under {source!r}, found {raw[:80]!r}.",
                state_after="Nothing was changed.",
                remedy=f"Name a Kafka source; this query has {list(self.kafka_sources)}.",
            )
        return offsets

    def with_kafka_offsets(self, source: str, offsets: Offsets) -> OffsetLog:
        """Return a log in which one source has other offsets; every other byte stays.

        Topics and partitions that were there keep their order, since Spark writes them in no fixed one.
        """
        raw = kafka_offset(offsets, self.kafka_offsets(source))
        return replace(self, sources={**self.sources, source: raw})

    @property
    def by_position(self) -> bool:
        """Whether sources are identified by their place in the query: always in v1, without names in v2."""
        return self.sources.keys() == _places(self.sources)

    def with_sources(self, sources: Mapping[str, str]) -> OffsetLog:
        """Return a log of these sources, in this order, and no others; the header stays byte for byte.

        Args:
            sources: Raw offset per source, as in ``sources``: ``kafka_offset`` makes that of a new one.

        Raises:
            BadInputError: If there is none, or a log v1 would not number them 0, 1, 2, ... in order.
        """
        numbered = [str(position) for position in range(len(sources))]
        if not sources or (self.version == 1 and list(sources) != numbered):
            raise BadInputError(
                f"Expected the sources {numbered or ['0']} for an offset log v{self.version}, "
                f"found {list(sources)}.",
                state_after="Nothing was changed.",
                remedy="Give every source that the query is to have, each once, in the script's order.",
            )
        return replace(self, sources=dict(sources))

    def renamed(self, names: Mapping[str, str]) -> OffsetLog:
        """Return a log in which each source has another name: version 1 by places, version 2 by names.

        Args:
            names: What it is called now, a place or a name -> what it is called from now on.
        """
        sources = {names[source]: offset for source, offset in self.sources.items()}
        fields, by_name = self._header_fields(), set(names.values()) != _places(names)
        confs = {**self.confs, SOURCE_EVOLUTION: str(by_name).lower()}
        if by_name:
            header = {**fields, "conf": confs, "sourceMetadataInfo": {}}
            return replace(self, version=2, header=compact_json(header), sources=sources)
        header = {name: value for name, value in fields.items() if name not in _OF_VERSION_2}
        in_order = {place: sources.get(place, _NO_OFFSET) for place in sorted(_places(names), key=int)}
        return replace(self, version=1, header=compact_json({**header, "conf": confs}), sources=in_order)

    def with_confs(self, confs: Mapping[str, str]) -> OffsetLog:
        """Return a log that pins these settings and no others."""
        return replace(self, header=compact_json({**self._header_fields(), "conf": dict(confs)}))

    def planned_next(self, *, watermark_ms: int, timestamp_ms: int) -> OffsetLog:
        """Return the log of a next batch that reads nothing yet: confs carried, times set, as Spark does.

        ``controlBatchInfo`` (4.2) is dropped: it describes only the batch that it is in.
        """
        fields = {name: value for name, value in self._header_fields().items() if name != "controlBatchInfo"}
        times = {"batchWatermarkMs": watermark_ms, "batchTimestampMs": timestamp_ms}
        return replace(self, header=compact_json({**fields, **times}))

    def _kafka(self, source: str) -> Offsets | None:
        if source not in self._parsed:
            self._parsed[source] = _as_kafka(self.sources[source])
        return self._parsed[source]

    def _header_fields(self) -> dict[str, Any]:
        return json_object(self.header, "Offset log's second line") if self.header else {}

    def _integer(self, name: str) -> int:
        value = self._header_fields().get(name, 0)
        if not isinstance(value, int):
            raise LogFormatError.of("Offset log", f"a number under {name!r}", self.header)
        return value


def parse(text: str) -> OffsetLog:
    """Parse the content of ``offsets/N``.

    Raises:
        LogFormatError: If it is incomplete or malformed.
        FlinkstyleError: ``CHECKPOINT_UNSUPPORTED`` if its version is newer than 2.
    """
    version, rest = split_version(text, "Offset log", KNOWN_VERSIONS)
    end = "\n" if rest.endswith("\n") else ""
    header, *lines = rest.removesuffix(end).split("\n")
    if not lines or "" in lines:
        raise LogFormatError.of("Offset log", "a line for each source, no empty one", text)
    if version == 1:
        sources = {str(position): line for position, line in enumerate(lines)}
    else:
        sources = dict(_source_and_offset(line) for line in lines)
        if len(sources) != len(lines):
            raise LogFormatError.of("Offset log v2", "each source once", rest[len(header) + 1 :])
    log = OffsetLog(version=version, header=header, sources=sources, end=end)
    _ = (log.confs, log.watermark_ms, log.timestamp_ms)  # a torn header is refused here, not later
    return log


def kafka_offset(offsets: Offsets, before: Offsets = _NONE) -> str:
    """Return the raw offset of a Kafka source: what was there before keeps its order, the rest is sorted."""
    now, then = offsets.by_topic, before.by_topic
    return compact_json(
        {
            topic: {str(number): now[topic][number] for number in _ordered(now[topic], then.get(topic, {}))}
            for topic in _ordered(now, then)
        }
    )


def _places(sources: Sized) -> set[str]:
    """Return the places of so many sources, which are their names in version 1."""
    return {str(place) for place in range(len(sources))}


def _source_and_offset(line: str) -> tuple[str, str]:
    source, colon, offset = line.partition(":")
    if not source or not colon or not offset:
        raise LogFormatError.of("Offset log v2", "lines like 'source:offset'", line)
    return source, offset


def _as_kafka(raw: str) -> Offsets | None:
    """Return the offsets if they have the form ``{"topic":{"0":123}}``, else None."""
    if not raw.startswith("{"):
        return None
    topics = json_object(raw, "Offset of a source")
    if not topics or not all(partitions and isinstance(partitions, dict) for partitions in topics.values()):
        return None
    found: dict[TopicPartition, NextOffset] = {}
    for topic, partitions in topics.items():
        for partition, offset in partitions.items():
            if not is_number(partition) or type(offset) is not int:
                return None
            found[topic, int(partition)] = NextOffset(offset)
    return Offsets(found)


def _ordered(wanted: Mapping[_Key, object], before: Mapping[_Key, object]) -> list[_Key]:
    """Return the wanted keys: those that were there first, in their order; then the new ones, sorted."""
    return [key for key in before if key in wanted] + sorted(key for key in wanted if key not in before)
