"""How MirrorMaker 2 is set up, and what its topics are called then. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_flinkstyle.kafka.settings import Isolation


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorSettings:
    """How MirrorMaker 2 is set up; names as in its properties file."""

    source_alias: str
    target_alias: str
    connector_name: str = "MirrorSourceConnector"
    """The connector's name: that class in dedicated mode, what you called it on a Connect cluster."""
    offsets_topic: str = ""
    """On the target; default ``mm2-offsets.<source alias>.internal`` (Connect: its offset.storage.topic)."""
    replication_policy: Literal["identity", "default"] = "identity"
    """``default`` puts the source alias and a dot before topic names."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Topics a policy of your own names otherwise: source name -> target name."""
    isolation: Isolation = "read_committed"
    """What MirrorMaker's consumer reads (``<source alias>.consumer.isolation.level``)."""
    ignored_headers: Sequence[str] = ()
    """Headers that it adds or changes on the way: no part of a record's identity, on either side."""
    sole_writer: bool = False
    """Nobody else writes to its topics on the target: records equal to mirrored ones are second copies. If
    this is not set, positions are refused or bounded where these could be new ones of another producer."""
    keeps_offsets: bool = False
    """This mirror is no MirrorMaker: it gives every record the offset that it has on the source (Cluster
    Linking and the like). It notes no positions; the ends of its logs count as such, which is verified."""
    syncs_on: Literal["source", "target"] = "source"
    """Where the offset syncs are (``offset-syncs.topic.location``)."""

    def target_topic(self, topic: str) -> str:
        """Return what a source topic is called on the target."""
        if topic in self.renamed:
            return self.renamed[topic]
        return topic if self.replication_policy == "identity" else f"{self.source_alias}.{topic}"

    @property
    def positions_topic(self) -> str:
        """The topic with MirrorMaker's positions."""
        return self.offsets_topic or f"mm2-offsets.{self.source_alias}.internal"

    @property
    def syncs_topic(self) -> str:
        """The topic with the offset syncs; it is named after the cluster at the other end."""
        other = self.target_alias if self.syncs_on == "source" else self.source_alias
        return f"mm2-offset-syncs.{other}.internal"

    @property
    def checkpoints_topic(self) -> str:
        """The topic with the groups' checkpoints, on the target."""
        return f"{self.source_alias}.checkpoints.internal"
