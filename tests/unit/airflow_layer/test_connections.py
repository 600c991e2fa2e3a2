from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.hooks.aws import s3_environment, s3_settings
from airflow_flinkstyle.hooks.connections import Defaults, kafka_cluster, submit_target
from airflow_flinkstyle.hooks.job import StreamingJobHook
from airflow_flinkstyle.jobs import errors
from airflow_flinkstyle.jobs.deployments.detached import Detached
from airflow_flinkstyle.jobs.deployments.kubernetes.deployment import Kubernetes
from airflow_flinkstyle.jobs.deployments.standalone import Standalone
from airflow_flinkstyle.jobs.deployments.yarn import Yarn
from airflow_flinkstyle.jobs.packing import DriverAgent
from airflow_flinkstyle.jobs.spec import launch_of
from airflow_flinkstyle.jobs.target import Brought
from airflow_flinkstyle.provider_info import get_provider_info
from testbed import paths
from testbed.keys import SIGNING_KEY
from testbed.refusals import refuses
from tests.unit.airflow_layer.conftest import a_connection

if TYPE_CHECKING:
    from types import SimpleNamespace

pytestmark = pytest.mark.airflow


def defaults(**extra: object) -> Defaults:
    return Defaults.of(a_connection("flinkstyle", extra={"savepoint_root": "s3://bucket/prefix", **extra}))


def test_form_asks_for_exactly_what_the_hook_reads():
    fields = get_provider_info()["connection-types"][0]["conn-fields"]
    assert set(fields) == set(Defaults.__slots__)


def test_every_field_of_the_form_is_documented():
    page = (paths.ROOT / "docs" / "start.md").read_text(encoding="utf-8")
    fields = get_provider_info()["connection-types"][0]["conn-fields"]
    assert [name for name in fields if f"\n| `{name}` | " not in page] == []


def test_empty_answers_of_the_form_count_as_not_given():
    found = defaults(aws_conn_id="", lease_s=None, checkpoint_root="")
    assert (found.aws_conn_id, found.lease_s) == (None, 30.0)
    assert found.checkpoint_root == "s3a://bucket/prefix/checkpoints"


@pytest.mark.parametrize("lease_s", ["half a minute", "inf", -1, 0])
def test_lease_that_is_no_number_of_seconds_is_refused(lease_s: object):
    with pytest.raises(BadInputError, match=f"lease_s of a_conn to be a number.*{lease_s}"):
        defaults(lease_s=lease_s)


def test_drivers_that_may_end_with_their_worker_are_accepted_by_a_clear_yes_only():
    assert [
        defaults(driver_may_end_with_worker=answer).driver_may_end_with_worker
        for answer in (
            None,
            "",
            False,
            "False",
            True,
            "True",
        )
    ] == [False, False, False, False, True, True]
    with pytest.raises(BadInputError, match="driver_may_end_with_worker of a_conn to be one of True, False"):
        defaults(driver_may_end_with_worker="perhaps")


def test_drivers_are_supervised_where_the_connection_says_so():
    assert not defaults().supervise_drivers
    assert defaults(supervise_drivers=True).supervise_drivers
    assert not defaults().class_archives
    assert defaults(class_archives=True).class_archives
    assert not defaults().pulses
    assert defaults(pulses=True).pulses


def test_local_root_keeps_checkpoints_in_a_folder_beside_the_jobs():
    assert defaults(savepoint_root="file:///data/sp/").checkpoint_root == "/data/sp/checkpoints"


def test_connection_without_a_savepoint_root_is_refused_by_name():
    with pytest.raises(BadInputError, match="a_conn should name a savepoint_root"):
        Defaults.of(a_connection("flinkstyle"))


def test_only_listed_kafka_connections_are_read_for_jobs(connections: SimpleNamespace):
    for name in ("kafka_orders", "kafka_payroll"):
        connections.set(name, "kafka", {"bootstrap.servers": f"{name}:9092"})
    assert StreamingJobHook().kafka("kafka_payroll").bootstrap_servers == "kafka_payroll:9092"
    extra = {"savepoint_root": str(connections.root), "kafka_connections": "kafka_orders, kafka_new"}
    connections.set("flinkstyle_default", "flinkstyle", extra, password=SIGNING_KEY)
    hook = StreamingJobHook()
    assert hook.kafka("kafka_orders").bootstrap_servers == "kafka_orders:9092"
    for read in (lambda: hook.kafka("kafka_payroll"), lambda: hook.kafka_logins(["kafka_payroll"])):
        with pytest.raises(BadInputError, match=r"\(kafka_orders, kafka_new\), found kafka_payroll"):
            read()


def test_jobs_are_started_by_listed_spark_connections_only(connections: SimpleNamespace):
    connections.set("spark_payroll", "spark", {"python": "/usr/bin/python3"}, host="local[1]")
    assert StreamingJobHook().target("spark_payroll").master == "local[1]"
    extra = {"savepoint_root": str(connections.root), "spark_connections": "spark_default"}
    connections.set("flinkstyle_default", "flinkstyle", extra, password=SIGNING_KEY)
    assert StreamingJobHook().target("spark_default").master == "local[1]"
    with pytest.raises(BadInputError, match=r"Spark connection .*\(spark_default\), found spark_payroll"):
        StreamingJobHook().target("spark_payroll")


def test_drivers_get_the_keys_of_a_connection_of_their_own(connections: SimpleNamespace):
    connections.set("aws_worker", "aws", {}, login="worker", password="worker-secret")  # noqa: S106
    connections.set("aws_driver", "aws", {}, login="driver", password="driver-secret")  # noqa: S106
    extra = {"savepoint_root": "s3://b/p", "aws_conn_id": "aws_worker", "driver_aws_conn_id": "aws_driver"}
    connections.set("flinkstyle_default", "flinkstyle", extra)
    hook = StreamingJobHook()
    assert (hook.s3 and hook.s3.access_key, hook.secret_env["AWS_ACCESS_KEY_ID"]) == ("worker", "driver")
    assert hook.client("orders").view.secret_env == hook.target("spark_default").secret_env == hook.secret_env
    connections.set("flinkstyle_default", "flinkstyle", {**extra, "driver_aws_conn_id": ""})
    assert StreamingJobHook().secret_env["AWS_ACCESS_KEY_ID"] == "worker"


def test_client_tells_which_task_it_works_for(connections: SimpleNamespace, monkeypatch: pytest.MonkeyPatch):
    assert StreamingJobHook().client("orders").asked_by == {}
    task = {"DAG_ID": "start_job", "DAG_RUN_ID": "manual__1", "TASK_ID": "start"}
    for name, value in task.items():
        monkeypatch.setenv(f"AIRFLOW_CTX_{name}", value)
    asked = {"dag_id": "start_job", "run_id": "manual__1", "task_id": "start"}
    assert StreamingJobHook().client("orders").asked_by == asked


def test_signing_keys_of_the_connection_are_masked_and_the_first_one_signs(
    connections: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
):
    masked: list[str] = []
    monkeypatch.setattr("airflow.sdk.log.mask_secret", masked.append)
    before = "the-key-before-that-one-of-the-testbed"
    extra = {"savepoint_root": "s3://b/p", "previous_passwords": f"{before}, "}
    connections.set("flinkstyle_default", "flinkstyle", extra, password=SIGNING_KEY)
    hook = StreamingJobHook()
    assert hook.signer.keys == (SIGNING_KEY, before)
    assert masked[-2:] == [SIGNING_KEY, before]
    assert before not in f"{hook.defaults!r} {hook.signer!r}"


def test_signing_key_that_is_too_short_is_refused_and_none_starts_nothing(connections: SimpleNamespace):
    connections.set("flinkstyle_default", "flinkstyle", {"savepoint_root": "s3://b/p"}, password="short")  # noqa: S106
    with refuses(errors.SIGNING_KEY, match="at least 32 characters"):
        _ = StreamingJobHook().signer
    connections.set("flinkstyle_default", "flinkstyle", {"savepoint_root": "s3://b/p"})
    assert StreamingJobHook().signer.keys == ()


def test_connection_of_another_type_is_refused_with_both_types():
    with pytest.raises(BadInputError, match="type 'kafka', but is of type 'http'"):
        kafka_cluster(a_connection("http"))


def test_kafka_settings_become_what_librdkafka_reads():
    cluster = kafka_cluster(
        a_connection(
            "kafka", extra={"bootstrap.servers": "old:9092", "enable.idempotence": True, "retries": 3}
        )
    )
    assert cluster.name == "a_conn"
    assert cluster.config == {"bootstrap.servers": "old:9092", "enable.idempotence": "true", "retries": "3"}


def test_kafka_callbacks_are_those_that_the_provider_allows(monkeypatch: pytest.MonkeyPatch):
    from airflow.providers.apache.kafka.hooks import base as provider

    extra = {"bootstrap.servers": "old:9092", "oauth_cb": "tests.unit.airflow_layer.test_connections.a_token"}
    connection = a_connection("kafka", extra=extra)
    if not hasattr(provider, "CALLBACK_ALLOWLIST_CONFIG_OPTION"):  # an older one imports none
        assert kafka_cluster(connection).config["oauth_cb"] == extra["oauth_cb"]
        return
    with pytest.raises(BadInputError, match=r"connection a_conn .*callback_allowlist"):
        kafka_cluster(connection)
    monkeypatch.setenv("AIRFLOW__APACHE_KAFKA__CALLBACK_ALLOWLIST", extra["oauth_cb"])
    assert callable(kafka_cluster(connection).config["oauth_cb"])


def a_token(_config: str) -> tuple[str, float]:
    return "token", 0.0


def test_secrets_of_a_kafka_connection_are_masked_and_never_shown(monkeypatch: pytest.MonkeyPatch):
    masked: list[object] = []
    monkeypatch.setattr("airflow.sdk.log.mask_secret", masked.append)
    secrets = {
        "sasl.password": "pw-1",
        "ssl.key.pem": "pw-2",
        "ssl.keystore.password": "pw-3",
        "sasl.oauthbearer.client.secret": "pw-4",
    }
    cluster = kafka_cluster(a_connection("kafka", extra={"bootstrap.servers": "old:9092", **secrets}))
    assert all(secret in masked for secret in secrets.values())
    assert "pw-" not in f"{cluster} {cluster!r}"


def test_kafka_connection_without_servers_is_refused():
    with pytest.raises(BadInputError, match=r"bootstrap\.servers"):
        kafka_cluster(a_connection("kafka"))


@pytest.mark.parametrize(
    ("host", "port", "master"),
    [
        ("local[2]", None, "local[2]"),
        ("yarn", None, "yarn"),
        ("spark://head", 7077, "spark://head:7077"),
        ("head", 7077, "spark://head:7077"),
    ],
)
def test_master_is_read_as_the_spark_provider_reads_it(host: str, port: int | None, master: str):
    connection = a_connection("spark", extra={"python": "/venv/bin/python"}, host=host, port=port)
    assert submit_target(connection, defaults(), secret_env={}).master == master


def test_spark_connection_fills_the_submit_target():
    extra = {
        "python": "/venv/bin/python",
        "spark-home": "/opt/spark",
        "conf": {"spark.ui.enabled": False, "spark.executor.cores": 2},
        "jars": "a.jar, b.jar",
    }
    target = submit_target(
        a_connection("spark", extra=extra, host="local[1]"), defaults(log_dir="/logs"), secret_env={}
    )
    assert target.conf == {"spark.ui.enabled": "false", "spark.executor.cores": "2"}
    assert (target.jars, target.spark_home, target.log_dir) == (("a.jar", "b.jar"), "/opt/spark", "/logs")


def test_python_of_the_flinkstyle_connection_stands_in_for_the_spark_connections():
    target = submit_target(
        a_connection("spark", host="local[1]"), defaults(python="/spark/bin/python"), secret_env={}
    )
    assert target.python == "/spark/bin/python"


def test_spark_connection_without_python_says_where_to_name_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    with pytest.raises(BadInputError, match="python in its extra"):
        submit_target(a_connection("spark", host="local[1]"), defaults(), secret_env={})


def test_unknown_deploy_mode_is_refused_by_name():
    connection = a_connection("spark", extra={"python": "p", "deploy-mode": "clusters"}, host="yarn")
    with refuses(errors.DEPLOY_MODE, match="'clusters'"):
        submit_target(connection, defaults(), secret_env={})


def test_standalone_cluster_is_reached_where_the_spark_providers_fields_say():
    extra = {"python": "p", "deploy-mode": "cluster", "rest-scheme": "https", "rest-port": 6067}
    extra |= {"agent": "py-files", "agent-path": "/shared/agent.zip", "master-web-url": "http://one:8081"}
    target = submit_target(
        a_connection("spark", extra=extra, host="spark://one:7077,two:7077"), defaults(), secret_env={}
    )
    assert target.deployment == Standalone(
        agent=DriverAgent(way="py-files", path="/shared/agent.zip"),
        cluster_url="https://one:6067,https://two:6067",
        web_url="http://one:8081",
    )


def test_yarn_gets_queue_principal_and_proxy_user_of_the_connection():
    extra = {
        "python": "p", "deploy-mode": "cluster", "queue": "streams", "proxy-user": "etl",
        "yarn_resourcemanager_webapp_address": "http://rm:8088",
    }  # fmt: skip
    target = submit_target(a_connection("spark", extra=extra, host="yarn"), defaults(), secret_env={})
    assert target.deployment == Yarn(cluster_url="http://rm:8088", proxy_user="etl")
    assert target.conf["spark.yarn.queue"] == "streams"
    principal = {**extra, "principal": "etl@REALM"}
    target = submit_target(a_connection("spark", extra=principal, host="yarn"), defaults(), secret_env={})
    assert target.conf["spark.kerberos.principal"] == "etl@REALM"


def test_kubernetes_gets_the_login_of_its_connection(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(
        "AIRFLOW_CONN_CLUSTER",
        json.dumps(
            {
                "conn_type": "kubernetes",
                "extra": {"kube_config_path": "/etc/kube", "namespace": "streams", "cluster_context": "blue"},
            }
        ),
    )
    monkeypatch.setenv(
        "AIRFLOW_CONN_POD", json.dumps({"conn_type": "kubernetes", "extra": {"in_cluster": True}})
    )
    extra = {"python": "p", "deploy-mode": "cluster", "kubernetes-conn-id": "cluster"}
    target = submit_target(
        a_connection("spark", extra=extra, host="k8s://https://api"), defaults(), secret_env={}
    )
    assert target.deployment == Kubernetes(kube_config="/etc/kube")
    assert target.conf == {"spark.kubernetes.namespace": "streams", "spark.kubernetes.context": "blue"}
    extra |= {"kubernetes-conn-id": "pod", "namespace": "of-spark"}
    target = submit_target(
        a_connection("spark", extra=extra, host="k8s://https://api"), defaults(), secret_env={}
    )
    assert target.deployment == Kubernetes(kube_config="in-cluster")
    assert target.conf == {"spark.kubernetes.namespace": "of-spark"}


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"conn_type": "kubernetes", "extra": {"kube_config": "{}"}}, "within connection cluster"),
        ({"conn_type": "http"}, "'http'"),
    ],
)
def test_kubernetes_connection_that_a_relaunch_could_not_use_is_refused(
    said: dict[str, object], words: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", json.dumps(said))
    extra = {"python": "p", "deploy-mode": "cluster", "kubernetes-conn-id": "cluster"}
    with pytest.raises(BadInputError, match=words):
        submit_target(a_connection("spark", extra=extra, host="k8s://https://api"), defaults(), secret_env={})


def test_limits_of_a_standby_hold_for_a_driver_on_the_workers_machine_too():
    extra = {"python": "p", "standby-cores": 4, "standby-memory": "8g"}
    target = submit_target(
        a_connection("spark", extra=extra, host="spark://master", port=7077), defaults(), secret_env={}
    )
    assert target.deployment == Detached()
    assert (target.standby_cores, target.standby_memory) == (4, "8g")


def test_operator_pages_and_limits_of_a_standby_are_read():
    extra = {
        "python": "p",
        "deploy-mode": "cluster",
        "spark-operator": "kubeflow",
        "spark-application": {"batchScheduler": "volcano"},
        "ui-url": "https://spark.example/{pod}",
        "standby-cores": 8,
        "standby-memory": "16g",
    }
    connection = a_connection("spark", extra=extra, host="k8s://https://api")
    target = submit_target(connection, defaults(), secret_env={})
    assert target.deployment == Kubernetes(
        spark_operator="kubeflow",
        application={"batchScheduler": "volcano"},
        ui_url="https://spark.example/{pod}",
    )
    assert (target.standby_cores, target.standby_memory) == (8, "16g")
    extra["standby-cores"] = "many"
    with pytest.raises(BadInputError, match="standby-cores of connection"):
        submit_target(a_connection("spark", extra=extra, host="k8s://https://api"), defaults(), secret_env={})


def test_deployment_of_another_package_is_chosen_with_its_address():
    extra = {"python": "p", "deployment": "ssh", "cluster-url": "host-7"}
    target = submit_target(a_connection("spark", extra=extra, host="local[2]"), defaults(), secret_env={})
    assert isinstance(target.deployment, Brought)
    assert (target.deployment.name, target.deployment.cluster_url) == ("ssh", "host-7")


def test_keytab_within_the_connection_is_refused_on_a_cluster():
    extra = {"python": "p", "deploy-mode": "cluster", "keytab": "AAAA"}
    with pytest.raises(BadInputError, match="keytab"):
        submit_target(a_connection("spark", extra=extra, host="yarn"), defaults(), secret_env={})


def test_secrets_of_an_amazon_connection_reach_the_environment_and_nothing_else():
    settings = s3_settings(
        a_connection(
            "aws",
            login="the-key",
            password="the-secret",  # noqa: S106 - invented
            extra={"endpoint_url": "http://127.0.0.1:9", "region_name": "eu-west-1"},
        )
    )
    env = {name: value for name, value in s3_environment(settings).items() if value}
    assert env == {
        "AWS_ACCESS_KEY_ID": "the-key",
        "AWS_SECRET_ACCESS_KEY": "the-secret",
        "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9",
        "AWS_REGION": "eu-west-1",
    }
    target = submit_target(
        a_connection("spark", extra={"python": "p"}, host="local[1]"), defaults(), secret_env=env
    )
    assert "the-secret" not in repr(settings) + repr(target)
    from airflow_flinkstyle.jobs.spec import JobSpec

    spec = JobSpec(name="job", script="s.py", checkpoint_root="/cp")
    assert "the-secret" not in str(launch_of(spec, target))


def test_encryption_of_an_amazon_connection_reaches_the_environment():
    service = {"s3": {"server_side_encryption": "aws:kms", "sse_kms_key_id": "key-1"}}
    settings = s3_settings(
        a_connection("aws", login="key", password="x", extra={"service_config": service})  # noqa: S106
    )
    env = s3_environment(settings)
    assert (env["FLINKSTYLE_S3_ENCRYPTION"], env["FLINKSTYLE_S3_KMS_KEY_ID"]) == ("aws:kms", "key-1")


def test_role_of_an_amazon_connection_is_handed_on_and_nothing_is_assumed_here():
    extra = {
        "role_arn": "arn:aws:iam::1:role/streams",
        "assume_role_kwargs": {"ExternalId": "x", "DurationSeconds": 900},
        "service_config": {"sts": {"endpoint_url": "http://127.0.0.1:9"}},
    }
    env = s3_environment(s3_settings(a_connection("aws", extra=extra)))
    assert json.loads(env.pop("FLINKSTYLE_S3_ROLE")) == {
        "arn": "arn:aws:iam::1:role/streams",
        "session_name": "flinkstyle",
        "external_id": "x",
        "duration_s": 900,
        "sts_endpoint": "http://127.0.0.1:9",
    }
    assert env == {}


def test_profile_is_handed_on_by_its_name_and_displaces_every_identity_of_the_worker():
    env = s3_environment(
        s3_settings(a_connection("aws", extra={"profile_name": "streams", "region_name": "eu-west-1"}))
    )
    assert {name: value for name, value in env.items() if value} == {
        "AWS_PROFILE": "streams",
        "AWS_REGION": "eu-west-1",
    }
    for name in (
        "AWS_ACCESS_KEY_ID",
        "AWS_SESSION_TOKEN",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "FLINKSTYLE_S3_ROLE",
    ):
        assert env[name] == ""


def test_connection_that_names_no_identity_takes_none_from_the_driver():
    settings = s3_settings(a_connection("aws", extra={"region_name": "eu-west-1"}))
    assert s3_environment(settings) == {"AWS_REGION": "eu-west-1"}


@pytest.mark.parametrize(
    "extra",
    [
        {"assume_role_method": "assume_role_with_saml"},
        {"assume_role_kwargs": {"Policy": "{}"}},
        {
            "assume_role_method": "assume_role_with_web_identity",
            "assume_role_with_web_identity_federation": "google",
        },
        {
            "assume_role_method": "assume_role_with_web_identity",
            "assume_role_with_web_identity_federation": "file",
        },
    ],
)
def test_role_that_a_driver_cannot_assume_by_itself_is_refused(
    extra: dict[str, object], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("AWS_WEB_IDENTITY_TOKEN_FILE", raising=False)
    with pytest.raises(BadInputError, match="a_conn should name what a driver can assume by itself"):
        s3_settings(a_connection("aws", extra={"role_arn": "arn:aws:iam::1:role/x", **extra}))


@pytest.mark.usefixtures("connections")
def test_setting_that_is_null_is_no_setting_of_a_start():
    spec = StreamingJobHook().spec("orders", "a.py", conf='{"spark.a": null, "spark.b": false}')
    assert spec.conf == {"spark.b": "false"}
