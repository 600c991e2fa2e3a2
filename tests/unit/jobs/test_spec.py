from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.errors import BadInputError, MessageFormatError
from airflow_flinkstyle.jobs.errors import DEPLOY_MODE
from airflow_flinkstyle.jobs.packing import launcher_path
from airflow_flinkstyle.jobs.spec import (
    driver_env,
    from_launch,
    launch_of,
    program_of,
    submit_argv,
)
from airflow_flinkstyle.kafka.login import CONNECTION
from airflow_flinkstyle.protocol.records import KafkaOverride
from testbed.refusals import refuses
from tests.unit.jobs.specs import SECRET, a_spec, a_target

if TYPE_CHECKING:
    from airflow_flinkstyle.jobs.spec import JobSpec, SubmitTarget


def argv_of(spec: JobSpec, target: SubmitTarget, **more: Any) -> tuple[str, ...]:
    return submit_argv(program_of(spec, target, **more), target, name="orders-1")


def test_argv_runs_the_launcher_with_the_script_behind_it():
    argv = argv_of(a_spec(), a_target(), root="s3://b/p", generation=7, claim_id="c1", submit=2, env={})
    assert argv[0] == "/venv/bin/spark-submit"
    assert argv[argv.index("--jars") + 1] == "/a.jar,/b.jar"
    assert "spark.sql.shuffle.partitions=4" in argv
    tail = ("--root", "s3://b/p", "--job", "orders", "--claim", "c1", "--generation", "7", "--submit", "2")
    assert argv[argv.index(launcher_path()) :] == (
        launcher_path(), *tail, "--", "/jobs/orders.py", "--topic", "orders",
    )  # fmt: skip


def test_driver_that_logs_in_to_kafka_hides_logins_in_spark_plans_too():
    rule = KafkaOverride(role="source", servers="old:9092", options={CONNECTION: "kafka_new"})
    argv = argv_of(a_spec(overrides=(rule,)), a_target(), root="/r", generation=1, claim_id="c", env={})
    (redaction,) = [part for part in argv if part.startswith("spark.redaction.regex=")]
    for name in ("kafka.ssl.keystore.key", "kafka.sasl.jaas.config", "password"):
        assert re.search(redaction.partition("=")[2].replace("(?i)", ""), name)
    own = a_spec(overrides=(rule,), conf={"spark.redaction.regex": "mine"})
    argv = argv_of(own, a_target(), root="/r", generation=1, claim_id="c", env={})
    assert any(part.startswith("spark.redaction.regex=mine|") for part in argv)


def test_launcher_is_found_without_importing_pyspark():
    program = (
        "import sys\nfrom airflow_flinkstyle.jobs.packing import launcher_path\n"
        "print(launcher_path(), 'pyspark' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout.endswith("airflow_flinkstyle/agent/launcher.py False\n")


def test_launch_round_trips_through_json_without_the_secrets():
    launch = json.loads(json.dumps(launch_of(a_spec(), a_target())))
    assert SECRET not in json.dumps(launch)
    assert from_launch(launch, secret_env=a_target().secret_env) == (a_spec(), a_target())


def test_secrets_are_in_no_repr_and_not_on_the_command_line():
    assert SECRET not in repr(a_target())
    assert SECRET not in " ".join(
        argv_of(a_spec(), a_target(), root="r", generation=1, claim_id="c1", env={})
    )


def test_driver_gets_secrets_but_nothing_of_airflows_environment():
    base = {
        "AIRFLOW_HOME": "x", "AIRFLOW__CORE__FERNET_KEY": "x", "VIRTUAL_ENV": "x", "PYTHONPATH": "x",
        "HOME": "/root", "PATH": "/usr/bin",
    }  # fmt: skip
    env = driver_env(a_spec(env={"TZ": "UTC"}), a_target(), base)
    assert env == {
        "HOME": "/root",
        "PATH": "/venv/bin:/usr/bin",
        "PYSPARK_PYTHON": "/venv/bin/python",
        "PYSPARK_DRIVER_PYTHON": "/venv/bin/python",
        "TZ": "UTC",
        "AWS_SECRET_ACCESS_KEY": SECRET,
    }


def test_unknown_deploy_mode_and_way_of_the_agent_are_refused_by_name():
    with refuses(DEPLOY_MODE, match="'clusters'"):
        a_target(deploy_mode="clusters")
    with pytest.raises(BadInputError, match="'image'"):
        a_target(agent="image")


@pytest.mark.parametrize("changes", [{"name": "a/b"}, {"script": ""}, {"lease_s": 0}])
def test_spec_refuses_what_cannot_run(changes: dict[str, object]):
    with pytest.raises(BadInputError):
        a_spec(**changes)


def test_launch_of_something_else_is_a_clear_error():
    with pytest.raises(MessageFormatError, match="job spec"):
        from_launch({}, secret_env={})


def test_each_generation_has_its_own_checkpoint():
    assert a_spec().checkpoint_location(12, "5f0e7b2a99") == "/checkpoints/orders/000012-5f0e7b2a"


def test_module_is_run_as_by_python_and_needs_a_name():
    argv = argv_of(
        a_spec(script="-m", args=("shop.orders", "--fast")),
        a_target(),
        root="/r",
        generation=1,
        claim_id="c",
        env={},
    )
    assert argv[-4:] == ("--", "-m", "shop.orders", "--fast")
    with pytest.raises(BadInputError, match="name of a module"):
        a_spec(script="-m", args=())
