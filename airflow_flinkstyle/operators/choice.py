"""Let a person choose among the present savepoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.hooks.failures import airflow_errors
from airflow_flinkstyle.operators.asking import AskingOperator

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

    from airflow_flinkstyle.hooks.job import StreamingJobHook

CHOOSE = "choose"
"""Given in place of a savepoint's id to ask a person."""
_LATER = "listed when the task runs"


class ChooseSavepointOperator(AskingOperator):
    """Return the savepoint that was named; where that is ``choose``, ask a person which.

    The list is made when the task runs: the newest savepoints with their age, batches and size. A chosen
    savepoint must still exist when the answer comes.

    :param job: Name of the job. (templated)
    :param flinkstyle_conn_id: Connection with the savepoint root. (templated)
    :param savepoint_id: An id, ``latest``, or empty: returned as it is; ``choose`` asks. (templated)
    :param subject: The question. (templated)
    :param body: What is shown above the list, as markdown. (templated)
    """

    template_fields: Sequence[str] = (
        *AskingOperator.template_fields,
        *("job", "flinkstyle_conn_id", "savepoint_id"),
    )
    SEVERAL: ClassVar[bool] = False

    def __init__(
        self,
        *,
        job: str,
        flinkstyle_conn_id: str = "flinkstyle_default",
        savepoint_id: str | Sequence[str] | None = CHOOSE,
        subject: str = "Which savepoint?",
        **kwargs: Any,
    ) -> None:
        super().__init__(subject=subject, options=[_LATER], multiple=self.SEVERAL, **kwargs)
        self.job = job
        self.flinkstyle_conn_id = flinkstyle_conn_id
        self.savepoint_id = savepoint_id

    @property
    def hook(self) -> StreamingJobHook:
        """A hook on the rendered connections."""
        from airflow_flinkstyle.hooks.job import StreamingJobHook

        return StreamingJobHook(self.flinkstyle_conn_id)

    def execute(self, context: Context) -> Any:  # noqa: ANN401 - as its base
        """Return the named savepoint, or ask."""
        from airflow_flinkstyle.hooks.choices import savepoint_choices

        if self.savepoint_id != CHOOSE:
            return self.named()
        with airflow_errors():
            choices = savepoint_choices(self.hook, self.job)
        self.options = list(choices.options)
        self.body = "\n\n".join(filter(None, (self.body, choices.table)))
        return super().execute(context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:  # noqa: ANN401 - as HITLOperator
        """Return the id of the chosen savepoint."""
        answer: Mapping[str, Any] = super().execute_complete(context, event)
        chosen = [_id_of(option) for option in answer["chosen_options"]]
        user = (answer.get("responded_by_user") or {}).get("name") or "an unknown user"
        self.log.info("Chosen by %s: %s", user, ", ".join(chosen))
        return chosen if self.SEVERAL else chosen[0]

    def validate_chosen_options(self, chosen_options: list[str]) -> None:
        """Require that the chosen savepoints still exist: the list was made before."""
        with airflow_errors():
            repository = self.hook.repository(self.job)
            for option in chosen_options:
                repository.read(_id_of(option))

    def named(self) -> Any:  # noqa: ANN401 - one, or several
        """Return what the form or the DAG names."""
        from airflow_flinkstyle.jobs.answers.values import text_or_none

        return text_or_none(self.savepoint_id)


class ChooseSavepointsOperator(ChooseSavepointOperator):
    """Return the savepoints that were named, as a list; where that is ``choose``, ask a person which.

    :param savepoint_id: Ids, as a list or with commas between them; ``choose`` asks. (templated)
    """

    SEVERAL = True

    def named(self) -> list[str]:
        """Return what the form or the DAG names."""
        given = self.savepoint_id
        parts = given.split(",") if isinstance(given, str) else given or ()
        named = [str(part).strip() for part in parts if str(part).strip()]
        if named:
            return named
        with airflow_errors():
            raise BadInputError(
                f"Savepoints of job {self.job} were expected, with commas between them, found {given!r}.",
                state_after="Nothing was changed.",
                remedy=f"Name them, or {CHOOSE!r} to be asked.",
            )


def _id_of(option: str) -> str:
    return option.split(" ", maxsplit=1)[0]
