"""A job moves in while plain Spark runs it: in one task, or in three with a person between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from airflow_flinkstyle.hooks.failures import airflow_errors
from airflow_flinkstyle.hooks.keys import run_key
from airflow_flinkstyle.operators.asking import AskingOperator
from airflow_flinkstyle.operators.base import SavepointMaker

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

    from airflow_flinkstyle.hooks.job import StreamingJobHook
    from airflow_flinkstyle.jobs.adoption.ending import Ending
    from airflow_flinkstyle.jobs.adoption.running import RunningAdoption

ENDED: Final = "It has ended"
GIVE_UP: Final = "Give up"


class _RunningAdoptionOperator(SavepointMaker):
    """Arguments of every task of the adoption of a running job."""

    template_fields: Sequence[str] = (
        *SavepointMaker.template_fields,
        *("script", "args", "conf", "env", "spark_conn_id", "checkpoints", "kafka_conn_ids"),
        *("end_pid", "end_command", "gone_command", "rehearse_batches"),
    )

    def __init__(
        self,
        *,
        script: str,
        checkpoints: Mapping[str, str] | str,
        args: Sequence[str] | str | None = None,
        conf: Mapping[str, Any] | str | None = None,
        env: Mapping[str, str] | None = None,
        spark_conn_id: str = "spark_default",
        kafka_conn_ids: Sequence[str] | str | None = None,
        end_pid: int | str | None = None,
        end_command: str | None = None,
        gone_command: str | None = None,
        rehearse_batches: int | str = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.script = script
        self.checkpoints = checkpoints
        self.args = args
        self.conf = conf
        self.env = env
        self.spark_conn_id = spark_conn_id
        self.kafka_conn_ids = kafka_conn_ids
        self.end_pid = end_pid
        self.end_command = end_command
        self.gone_command = gone_command
        self.rehearse_batches = rehearse_batches

    def adoption(self, context: Context, key: str, ending: Ending) -> RunningAdoption:
        """Return the adoption, as an earlier try or task may have begun it."""
        from airflow_flinkstyle.hooks.adoption import adoption_journal, watched_checkpoint
        from airflow_flinkstyle.hooks.launches import rehearse
        from airflow_flinkstyle.jobs.adoption.running import RunningAdoption

        hook = self.hook
        return RunningAdoption(
            client=hook.client(self.job),
            journal=adoption_journal(hook, self.job, key),
            spec=hook.spec(self.job, self.script, args=self.args, conf=self.conf, env=self.env),
            target=hook.target(self.spark_conn_id),
            rehearse=rehearse(self.rehearse_batches, 10_000, timeout_s=300.0),
            watched=watched_checkpoint(hook, self.checkpoints, self.kafka_conn_ids, None),
            ending=ending,
            by=run_key(context),
        )

    def show(self, context: Context, adoption: RunningAdoption, *, finish: bool) -> dict[str, Any]:
        """Adopt the job, or finish a prepared adoption, and show the outcome."""
        done = adoption.finish() if finish else adoption.run()
        self.show_savepoint(context, done.savepoint_id)
        self.announce(context, done.savepoint_id)
        self.log.info("Job %s is adopted as generation %d: %s", self.job, done.generation, done.ended)
        return done.as_dict()


class AdoptRunningJobOperator(_RunningAdoptionOperator):
    """Adopt a job while plain Spark runs it: a driver waits with its state, the old one ends, it takes over.

    Until the old driver is asked to end, every error leaves it running; after that nothing is undone by
    itself. A retry continues. Returns savepoint, generation, batches, how the old driver's end is known, and
    for how long the job was down.

    :param script: The PySpark script, as the next driver sees it. (templated)
    :param args: Its arguments. (templated)
    :param conf: Spark settings. (templated)
    :param env: The driver's environment; it is recorded, so no secrets. (templated)
    :param spark_conn_id: Where the next driver runs. (templated)
    :param checkpoints: Query name -> the ``checkpointLocation`` that the old script names. (templated)
    :param kafka_conn_ids: Connections of the Kafka clusters that it reads. (templated)
    :param end_pid: Process id of the old driver's ``spark-submit``, on the machine of this task. (templated)
    :param end_command: Command that ends the old driver, split as by a shell. It must also succeed if the
        driver has ended. (templated)
    :param gone_command: Command that succeeds once the old driver has ended; run until it does. (templated)
    :param rehearse_batches: Batches to try on a copy of the state first; 0 for none. (templated)
    """

    asks = ("script", "args", "conf", "env", "checkpoints", "end_pid", "end_command")

    def execute(self, context: Context) -> dict[str, Any]:
        """Adopt the job, or continue what an earlier try began."""
        from airflow_flinkstyle.hooks.adoption import ending

        with airflow_errors():
            end = ending(self.end_pid, self.end_command, self.gone_command)
            return self.show(context, self.adoption(context, self.request_key(context), end), finish=False)


class PrepareAdoptionOperator(_RunningAdoptionOperator):
    """Bring up the driver that is to adopt a running job: it restores a copy of its state, and rehearses.

    The old driver keeps running. All arguments are those of ``AdoptRunningJobOperator``; without ``end_pid``
    and ``end_command`` a person is to end it. ``AskToEndOldJobOperator`` and ``FinishAdoptionOperator``
    follow in the same DAG run. XCom ``markdown`` has the rehearsal's table.
    """

    def execute(self, context: Context) -> None:
        """Start the driver, or find it waiting."""
        from airflow_flinkstyle.hooks.adoption import ending_or_person

        with airflow_errors():
            end = ending_or_person(self.end_pid, self.end_command, self.gone_command)
            rehearsal = self.adoption(context, run_key(context), end).bring_up()
        if rehearsal is not None:
            context["ti"].xcom_push(key="markdown", value=rehearsal["table"])
        self.log.info("A driver waits with the state of job %s", self.job)


class AskToEndOldJobOperator(AskingOperator):
    """Ask a person to end the old driver of a job that is adopted, and wait for the answer that it has ended.

    Asks nobody if a process id or a command is given, unless that has failed and this task is cleared. The
    adoption's journal keeps who answered, and when.

    :param job: Name of the job. (templated)
    :param flinkstyle_conn_id: Connection with the savepoint root. (templated)
    :param end_pid: As of ``FinishAdoptionOperator``. (templated)
    :param end_command: As of ``FinishAdoptionOperator``. (templated)
    """

    template_fields: Sequence[str] = (
        *AskingOperator.template_fields,
        *("job", "flinkstyle_conn_id", "end_pid", "end_command"),
    )

    def __init__(
        self,
        *,
        job: str,
        flinkstyle_conn_id: str = "flinkstyle_default",
        end_pid: int | str | None = None,
        end_command: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(options=[ENDED, GIVE_UP], **kwargs)
        self.job = job
        self.flinkstyle_conn_id = flinkstyle_conn_id
        self.end_pid = end_pid
        self.end_command = end_command

    @property
    def hook(self) -> StreamingJobHook:
        """A hook on the rendered connections."""
        from airflow_flinkstyle.hooks.job import StreamingJobHook

        return StreamingJobHook(self.flinkstyle_conn_id)

    def execute(self, context: Context) -> Any:  # noqa: ANN401 - as its base
        """Ask, if nothing else ends the old driver."""
        from airflow_flinkstyle.hooks.adoption import adoption_journal

        if self.end_pid or self.end_command:
            with airflow_errors():
                begun = adoption_journal(self.hook, self.job, run_key(context)).read("end")
            if begun is None:
                self.log.info("Nobody is asked: the next task ends the old driver")
                return None
        return super().execute(context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:  # noqa: ANN401 - as its base
        """Keep who answered what."""
        from airflow_flinkstyle.hooks.adoption import keep_answer

        answer = super().execute_complete(context, event)
        (choice,) = event["chosen_options"]
        user = event.get("responded_by_user") or {}
        by = user.get("name") or user.get("id") or "somebody"
        with airflow_errors():
            keep_answer(
                self.hook, self.job, run_key(context), by=by, at=event["responded_at"], choice=choice,
                ended=choice == ENDED,
            )  # fmt: skip
        self.log.info("%s answered: %s", by, choice)
        return answer


class FinishAdoptionOperator(_RunningAdoptionOperator):
    """End the old driver, or rely on a person's answer that it has ended; then the waiting driver takes over.

    Give it the trigger rule ``all_done``: where the tasks before it failed, or a person gave up, it ends the
    driver that waits. Returns what ``AdoptRunningJobOperator`` returns, and takes the same arguments.
    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Finish the adoption, or give it up."""
        from airflow_flinkstyle.hooks.adoption import answer_of, ending_by_answer
        from airflow_flinkstyle.hooks.airflow_versions import AirflowSkipException

        key = run_key(context)
        with airflow_errors():
            answer = answer_of(self.hook, self.job, key)
            end = ending_by_answer(answer, self.end_pid, self.end_command, self.gone_command)
            adoption = self.adoption(context, key, end)
            if answer is None and not (self.end_pid or self.end_command):
                raise adoption.abandon("Nobody said that the old driver has ended.")
            if answer is None or answer["choice"] != GIVE_UP:
                return self.show(context, adoption, finish=True)
            adoption.journal.begin(lambda: 0)
            adoption.give_up(f"{answer['by']} gave it up.")
        raise AirflowSkipException(
            f"{answer['by']} gave the adoption of job {self.job} up: no driver waits, and the checkpoint is "
            "as the old driver left it."
        )
