"""The shortest histories of faults that were found once: each must keep every promise."""

from __future__ import annotations

from typing import Final

from testbed.histories.steps import Step
from testbed.histories.world import Setting

PLAIN, LOCAL = Setting(), Setting(shared=False)
CASES: Final[dict[str, tuple[Setting, tuple[Step, ...]]]] = {
    "1-default-start-resumes-the-abandoned-line": (
        LOCAL,
        (
            Step(do="produce", many=2),
            Step(do="start", who=1),
            Step(do="stop", who=2),
            Step(do="start", host="b", who=5, how="fresh"),
            Step(do="stop", who=6, how="plain"),
        ),
    ),
    "1-latest-is-of-an-abandoned-line": (
        PLAIN,
        (
            Step(do="produce", many=1),
            Step(do="start", who=1),
            Step(do="stop", who=2),
            Step(do="start", who=3, how="fresh"),
            Step(do="kill"),
            Step(do="start", who=5, how="latest"),
        ),
    ),
    "1-continue-from-before-a-fork": (
        PLAIN,
        (
            Step(do="produce", many=3),
            Step(do="start", who=1),
            Step(do="stop", who=2),
            Step(do="produce", many=5),
            Step(do="start", who=4, how="latest:fork"),
            Step(do="stop", who=5),
            Step(do="start", who=6, how="savepoint"),
        ),
    ),
    "3-take-tombstones-what-an-old-prune-condemned": (
        PLAIN,
        (
            Step(do="produce", many=3),
            Step(do="start", who=1),
            Step(do="pass", seconds=10),
            Step(do="take", who=2),
            Step(do="produce", many=3),
            Step(do="pass", seconds=10),
            Step(do="take", who=3),
            Step(do="prune", who=4, many=1, fault=("fail", 22), retries=0),
            Step(do="pin", who=5),
            Step(do="prune", who=6, many=1, fault=("die", 10), retries=0),
            Step(do="pass", seconds=60),
            Step(do="take", who=7),
        ),
    ),
    "4-second-root-beside-it": (
        PLAIN,
        (Step(do="produce", many=4), Step(do="start", who=1), Step(do="start", root="r2", who=2)),
    ),
    "4-deleted-root": (
        PLAIN,
        (
            Step(do="produce", many=2),
            Step(do="start", who=1),
            Step(do="delete-root"),
            Step(do="start", who=4),
        ),
    ),
    "5-max-age-takes-the-newest": (
        PLAIN,
        (
            Step(do="produce", many=3),
            Step(do="start", who=1),
            Step(do="pass", seconds=10),
            Step(do="take", who=2),
            Step(do="verify", who=3),
            Step(do="produce", many=3),
            Step(do="pass", seconds=10),
            Step(do="take", who=4),
            Step(do="pass", seconds=150),
            Step(do="prune", who=5, seconds=60),
        ),
    ),
    "6-offline-savepoint-that-dies-half-way": (
        PLAIN,
        (
            Step(do="produce", many=3),
            Step(do="start", who=1),
            Step(do="stop", who=3),
            Step(do="take", who=4, fault=("die", 62), retries=0),
        ),
    ),
    "11-start-that-slept-since-it-was-planned": (
        PLAIN,
        (
            Step(do="produce", many=2),
            Step(do="start", who=1, fault=("freeze", 8)),
            Step(do="start", who=2),
            Step(do="kill"),
        ),
    ),
    "12-rollback-to-before-a-migration": (
        PLAIN,
        (
            Step(do="produce", many=4),
            Step(do="start", who=1),
            Step(do="migrate", who=2),
            Step(do="rollback", who=4, how="re-emit"),
        ),
    ),
    "13-relaunch-where-a-young-checkpoint-is-lost": (
        LOCAL,
        (Step(do="produce", many=2), Step(do="start", who=1), Step(do="lose-host")),
    ),
    "14-cleared-start-that-another-has-followed": (
        PLAIN,
        (
            Step(do="start", who=1),
            Step(do="kill"),
            Step(do="start", who=2, how="fresh", script="v1-broken"),
            Step(do="start", who=1),
        ),
    ),
    "15-upgrade-cleared-after-another-start": (
        PLAIN,
        (
            Step(do="produce", many=5),
            Step(do="start", who=1),
            Step(do="upgrade", who=8, fault=("die", 82), retries=0),
            Step(do="stop", who=9),
            Step(do="start", who=10),
            Step(do="stop", who=11),
        ),
    ),
    "17-prune-takes-what-a-rollback-that-has-begun-goes-back-to": (
        PLAIN,
        (
            Step(do="start", who=1),
            Step(do="produce", many=2),
            Step(do="take", who=3),
            Step(do="pass", seconds=10),
            Step(do="rollback", who=6, how="re-emit", fault=("die", 58), retries=0),
            Step(do="take", who=7),
            Step(do="prune", who=11, many=1),
        ),
    ),
    "18-first-start-that-slept-until-another-had-a-savepoint": (
        PLAIN,
        (
            Step(do="produce", many=4),
            Step(do="start", who=1, fault=("freeze", 22), retries=0),
            Step(do="start", who=1, retries=0),
            Step(do="take", who=2, retries=0),
        ),
    ),
    "19-second-start-behind-a-query-that-died-in-its-first-batch": (
        Setting(queries=2, sink="foreachBatch"),
        (
            Step(do="start", who=1, script="v1-late", retries=0),
            Step(do="take", who=2, retries=0),
            Step(do="take", who=3, retries=0),
            Step(do="kill", how="batch", which=-1, retries=0),
            Step(do="start", who=4, script="v1-broken", retries=0),
            Step(do="start", who=9, script="v1-late", retries=0),
        ),
    ),
    "20-offline-savepoint-that-cannot-read-the-store-when-it-fails": (
        Setting(sink="foreachBatch", shared=False),
        (
            Step(do="produce", many=3),
            Step(do="start", who=1),
            Step(do="lose-host"),
            Step(do="take", who=3, which=-1, retries=0),
            Step(do="produce", many=1),
            Step(do="take", who=4, which=1, fault=("fail", 60), retries=0),
            Step(do="pass", seconds=60),
            Step(do="lose-host", host="b"),
        ),
    ),
    "21-start-that-slept-while-the-dead-job-was-started-again": (
        PLAIN,
        (
            Step(do="produce", many=5),
            Step(do="start", who=1),
            Step(do="take", who=3),
            Step(do="kill"),
            Step(do="start", who=4, how="savepoint:fork", fault=("freeze", 10), retries=0),
            Step(do="take", who=5),
        ),
    ),
    "22-the-same-with-its-driver-waiting": (
        PLAIN,
        (
            Step(do="start", who=1),
            Step(do="produce", many=4),
            Step(do="stop", who=7),
            Step(do="start", host="b", who=8),
            Step(do="kill"),
            Step(do="start", who=10, how="savepoint:fork", fault=("freeze", 51), retries=0),
            Step(do="take", who=12),
        ),
    ),
    "23-fresh-start-whose-driver-cannot-read-once-it-has-taken-over": (
        PLAIN,
        (
            Step(do="produce", many=1),
            Step(do="start", who=4),
            Step(do="next-driver", fault=("fail", 33)),
            Step(do="stop", who=7),
            Step(do="start", who=10, how="fresh", retries=0),
        ),
    ),
    "24-take-that-waits-for-a-prune-which-died-beside-a-local-disk": (
        LOCAL,
        (
            Step(do="start", host="b", who=1),
            Step(do="produce", many=2),
            Step(do="take", who=3),
            Step(do="prune", who=6, fault=("die", 8), retries=0),
        ),
    ),
    "25-take-that-waits-for-a-prune-whose-slot-was-lost": (
        PLAIN,
        (
            Step(do="produce", many=4),
            Step(do="start", who=1),
            Step(do="take", who=2),
            Step(do="prune", who=3, fault=("lost", 6), retries=0),
            Step(do="take", who=4, fault=("die", 15), retries=0),
        ),
    ),
    "26-fork-from-before-a-query-that-a-function-has-seen": (
        Setting(queries=2, sink="foreachBatch"),
        (
            Step(do="produce", many=1),
            Step(do="start", who=1, script="v1-late"),
            Step(do="upgrade", who=2, retries=0),
            Step(do="kill"),
            Step(do="start", who=8),
            Step(do="stop", who=11),
            Step(do="start", who=12, how="savepoint:fork", script="v1-late"),
        ),
    ),
    "27-import-that-is-started-by-its-name": (
        PLAIN,
        (
            Step(do="start", who=1),
            Step(do="produce", many=4),
            Step(do="kill"),
            Step(do="start", root="r2", who=3),
            Step(do="take", root="r2", who=7),
            Step(do="import", who=12),
            Step(do="start", who=16, how="savepoint"),
        ),
    ),
    "28-import-whose-numbers-a-function-has-seen": (
        Setting(sink="foreachBatch"),
        (
            Step(do="produce", many=2),
            Step(do="start", who=1),
            Step(do="pass", seconds=20),
            Step(do="produce", many=2),
            Step(do="pass", seconds=20),
            Step(do="stop", who=2),
            Step(do="start", root="r2", who=3),
            Step(do="take", root="r2", who=4),
            Step(do="import", who=5),
            Step(do="produce", many=2),
            Step(do="start", who=6, how="savepoint", which=-1),
        ),
    ),
    "29-stop-that-waits-for-a-prune-which-died-longer-than-its-caller-lives": (
        PLAIN,
        (
            Step(do="produce", many=2),
            Step(do="start", who=1),
            Step(do="prune", who=11, fault=("die", 9), retries=0),
            Step(do="stop", who=12, fault=("fail", 11), retries=0),
        ),
    ),
    "30-stop-that-waits-for-a-late-query-longer-than-its-caller-lives": (
        Setting(queries=2),
        (
            Step(do="start", who=1),
            Step(do="produce", many=2),
            Step(do="pass"),
            Step(do="kill", how="batch", which=-1),
            Step(do="start", who=5, script="v1-late", retries=0),
            Step(do="stop", who=6, fault=("die", 9), retries=0),
        ),
    ),
    "31-start-without-its-disk-behind-a-migration-that-was-given-up": (
        Setting(queries=1, sink="kafka"),
        (
            Step(do="produce", many=1, retries=0),
            Step(do="start", who=1, retries=0),
            Step(do="migrate", who=2, fault=("fail", 125), retries=0),
            Step(do="start", host="b", who=4, retries=0, for_s=3.0),
            Step(do="kill", retries=0),
        ),
    ),
    "32-migration-whose-new-driver-is-killed-within-its-first-batch": (
        Setting(queries=2, sink="kafka", shared=True),
        (
            Step(do="produce", many=5, retries=0),
            Step(do="start", who=1, retries=0),
            Step(do="migrate", who=5, retries=0, for_s=10.0),
            Step(do="kill", how="batch", which=-1, retries=0),
        ),
    ),
    "33-savepoint-from-before-a-batch-that-was-half-written-elsewhere": (
        LOCAL,
        (
            Step(do="produce", many=2, retries=0),
            Step(do="start", who=1, retries=0),
            Step(do="stop", who=2, retries=0),
            Step(do="start", host="b", who=4, retries=0),
            Step(do="kill", how="batch", retries=0),
            Step(do="take", who=9, retries=0),
            Step(do="produce", many=3, retries=0),
            Step(do="take", host="b", who=12, retries=0),
            Step(do="start", who=14, how="savepoint", retries=0),
        ),
    ),
    "34-driver-that-is-started-again-where-one-had-only-waited": (
        LOCAL,
        (
            Step(do="produce", many=3, retries=0),
            Step(do="start", who=1, retries=0),
            Step(do="kill", how="batch", retries=0),
            Step(do="next-driver", fault=("die", 45), retries=0),
            Step(do="start", who=5, retries=0),
            Step(do="take", host="b", who=6, retries=0),
            Step(do="kill", retries=0),
        ),
    ),
    "35-migration-that-is-tried-again-once-another-run-has-the-job": (
        Setting(queries=2, sink="kafka", shared=True, ahead_s=0.0),
        (
            Step(do="start", who=1, retries=0),
            Step(do="migrate", who=5, fault=("lost", 24), retries=0),
            Step(do="lose-host", retries=0),
            Step(do="start", who=8, script="v1-late", retries=0),
            Step(do="take", who=9, retries=0),
            Step(do="produce", many=1, retries=0),
            Step(do="stop", who=11, retries=0),
        ),
    ),
}
"""By the number of the fault: 1 to 10 were filed together, those from 11 on random histories found."""
