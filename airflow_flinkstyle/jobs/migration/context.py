"""What every phase of a migration is given beside what a cutover has: both clusters, and the switch."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_flinkstyle.jobs.cutover.context import CutoverContext
from airflow_flinkstyle.jobs.migration.hold import ProducerHold
from airflow_flinkstyle.jobs.migration.producers import TokenCounter

if TYPE_CHECKING:
    from airflow_flinkstyle.jobs.migration.kafka_side import KafkaSide
    from airflow_flinkstyle.jobs.migration.producers import ProducerSwitch
    from airflow_flinkstyle.types import Generation

log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class MigrationContext(CutoverContext):
    """One migration of one job, as every attempt and every task of it knows it.

    ``spec`` is the job as it runs on the new cluster: usually the same, with overrides.
    """

    switch: ProducerSwitch
    kafka: KafkaSide
    group: str | None = None
    """Consumer group whose offsets on the new cluster are set, for those who watch its lag."""
    held: ProducerHold | None = None
    """This attempt's hold of the producers; None before it has begun."""

    def begin(self) -> None:
        """Take charge; every older attempt finds its token replaced."""
        tokens = TokenCounter(self.client.board.store, self.client.board.job)
        attempt = self.journal.begin(tokens.next)
        self.held = ProducerHold(self.switch, token=attempt.token, lease_s=self.settings.hold_lease_s)
        log.info("Attempt %d of migration %s", attempt.attempt, self.journal.migration_id)

    @property
    def hold(self) -> ProducerHold:
        """The hold of the attempt that has begun."""
        if self.held is None:
            raise RuntimeError("no attempt has begun")
        return self.held

    def let_take_over(self) -> None:
        """Tell the driver that has its order for how long producers are held, now and again."""
        self.hold.let_take_over()
        if self.work is not None:
            self.work.beat()

    def renew_held(self) -> float:
        """Renew the hold."""
        return self.hold.renew()

    @property
    def sources(self) -> dict[str, list[str]]:
        """``query/source`` -> topics that the old generation reads on the old cluster, as journalled."""
        noted = (self.journal.result("standby") or {}).get("sources")
        return dict(noted) if noted else sources_read(self, self.generation("old"))

    @property
    def topics(self) -> list[str]:
        """The topics of all sources, each once."""
        return sorted({topic for topics in self.sources.values() for topic in topics})


def sources_read(context: MigrationContext, old: Generation) -> dict[str, list[str]]:
    """Return ``query/source`` -> topics on the old cluster; a driver that starts again tells few, or none."""
    slot, old_id = context.client.board.heartbeat(old), context.kafka.old_cluster_id
    return {
        f"{query}/{name}": sorted(source.topic_ids)
        for query, beat in (slot.value.queries if slot else {}).items()
        for name, source in beat.sources.items()
        if source.cluster_id == old_id
    }
