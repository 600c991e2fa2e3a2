from __future__ import annotations

import json
from dataclasses import replace

from airflow_flinkstyle.jobs.spec import JobSpec
from airflow_flinkstyle.jobs.upgrade.repartition import undone
from airflow_flinkstyle.savepoint.compat import SOURCE_NAMES
from tests.manifests import a_manifest


def test_old_version_gets_the_names_of_its_sources_back() -> None:
    old = JobSpec(name="orders", script="v1.py", checkpoint_root="/checkpoints")
    new = replace(old, script="v2.py", conf={SOURCE_NAMES: '{"totals": {"0": "orders", "1": "returns"}}'})
    back = undone(old, new, a_manifest())
    assert json.loads(back.conf[SOURCE_NAMES]) == {"totals": {"orders": "0", "returns": "1"}}
    assert undone(old, old, a_manifest()) == old
