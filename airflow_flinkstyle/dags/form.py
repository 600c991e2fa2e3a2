"""The form of a DAG: its fields, the answers that are known already, and templates that lead to both.

A field that is known is not asked for. So one function makes the DAG that asks for everything and the DAG
of one job that asks for nothing.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, Param

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.hooks.page_roots import DEFAULT_CONNECTION, ONE_ROOT_TAG, root_tag
from airflow_flinkstyle.jobs.definition import SparkStreamingJob

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_ROOT = "flinkstyle_conn_id"
_KNOWN = "known"
"""Name of the known answers in templates."""

_ANSWER = "answer"
"""Name of the function that each answer passes through in templates."""
_ROOT_ANSWER = "root_answer"
"""Name of the function that an entered savepoint root passes through: a DAG may not act on every root."""

Job = str | SparkStreamingJob | None
"""The DAG's job: a name, or a definition, which answers further fields too; None: the form asks."""


class Form:
    """The fields that a DAG asks for, and the answers that it knows.

    ``form["script"]`` is the template that leads to the answer, for an operator's argument.

    Args:
        fields: Everything that may be asked for, by name, in the order of the form.
        job: The DAG's job.
        given: By the name of a field: the answer, or a ``Param`` that replaces it. Other names are
            arguments of ``DAG``.
    """

    def __init__(self, fields: Mapping[str, Param], job: Job, given: Mapping[str, Any]) -> None:
        self._job = job.job if isinstance(job, SparkStreamingJob) else job
        defined = job.operator_arguments() if isinstance(job, SparkStreamingJob) else {}
        answers = {**defined, **({"job": self._job} if self._job else {}), **given}
        asked = {name: answer for name, answer in answers.items() if isinstance(answer, Param)}
        self.known = {name: answers[name] for name in fields if name in answers and name not in asked}
        for name, answer in self.known.items():
            _require_offered(name, fields[name], answer)
        self.params = {
            name: asked.get(name, field) for name, field in fields.items() if name not in self.known
        }
        self._arguments = {name: value for name, value in given.items() if name not in fields}

    def __contains__(self, name: object) -> bool:
        """Return whether the form leads to an answer of this name."""
        return name in self.known or name in self.params

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - a template for an answer of any type
        """Return the template that leads to an answer, whatever text it is: ``2024``, ``None``, ``{}``."""
        through = _ROOT_ANSWER if name == _ROOT and name in self.params else _ANSWER
        return f"{{{{ {through}({self._path(name)}) }}}}"

    def shown(self, name: str) -> str:
        """Return the template of an answer inside a sentence."""
        return f"{{{{ {self._path(name)} }}}}"

    def _path(self, name: str) -> str:
        """Return what leads to an answer: by subscript, since Jinja takes ``params.keys`` for the method."""
        if name in self.known:
            return f"{_KNOWN}[{name!r}]"
        if name not in self:
            raise KeyError(name)
        return f"params[{name!r}]"

    def answers(self, *names: str) -> dict[str, Any]:
        """Return templates by name, for an operator's arguments of these names."""
        return {name: self[name] for name in names}

    @property
    def job(self) -> dict[str, Any]:
        """Arguments of every operator on a job."""
        return self.answers("job", "flinkstyle_conn_id")

    def dag(self, dag_id: str, given: str | None, doc: str | None, **defaults: Any) -> DAG:
        """Return the DAG, still without tasks.

        Args:
            dag_id: Name of the DAG that asks for the job.
            given: The author's name for it; None: ``dag_id``, followed by the job's name if that is known.
            doc: Text that Airflow shows.
            defaults: Arguments of ``DAG`` that the author has not given.
        """
        arguments = {
            "catchup": False,
            "tags": ["flinkstyle", *([self._job] if self._job else [])],
            "doc_md": doc,
            "render_template_as_native_obj": True,  # an empty field arrives as None, not as "None"
            **defaults,
            **self._arguments,
        }
        # Beside an author's own tags too: without them the page would take it for a DAG of the usual root.
        arguments["tags"] = list(dict.fromkeys([*arguments["tags"], *self._root_tags()]))
        usual = defaults.get("default_args", {})
        arguments["default_args"] = {**usual, **self._arguments.get("default_args", {})}
        named = given or (f"{dag_id}_{self._job}" if self._job else dag_id)
        answer = _quoted if arguments["render_template_as_native_obj"] else _as_it_is
        macros = {
            **arguments.pop("user_defined_macros", {}),
            _KNOWN: self.known,
            _ANSWER: answer,
            _ROOT_ANSWER: partial(_root_answer, answer, named, self._offered_roots()),
        }
        params = {**self.params, **arguments.pop("params", {})}
        schedule = arguments.pop("schedule", None)
        return DAG(named, schedule=schedule, params=params, user_defined_macros=macros, **arguments)

    def _offered_roots(self) -> tuple[str, ...]:
        """Return the savepoint roots that the form's author offers: its default, and its list."""
        field = self.params.get(_ROOT)
        if field is None:
            return ()
        return (str(field.value), *map(str, field.schema.get("enum") or ()))

    def _root_tags(self) -> list[str]:
        """Return tags that name the DAG's roots for the Savepoints page; none for the usual root alone."""
        if _ROOT in self.known:
            return [root_tag(self.known[_ROOT]), ONE_ROOT_TAG]
        offered = dict.fromkeys(self._offered_roots())
        return [] if list(offered) == [DEFAULT_CONNECTION] else [root_tag(conn_id) for conn_id in offered]


def _quoted(answer: object) -> object:
    """Return an answer for native rendering, which would read text as Python, ``2024`` as a number."""
    return repr(str(answer)) if isinstance(answer, str) else answer


def _root_answer(
    answer: Callable[[object], object], dag_id: str, offered: tuple[str, ...], conn_id: object
) -> object:
    """Return the answer, if the DAG may act on that root.

    Raises:
        AirflowFailException: If it may not: a user who may trigger one DAG must not act on every root.
    """
    from airflow_flinkstyle.hooks.failures import airflow_errors
    from airflow_flinkstyle.hooks.root_rights import require_chosen

    with airflow_errors():
        require_chosen(conn_id, dag_id, offered)
    return answer(conn_id)


def _as_it_is(answer: object) -> object:
    return answer


def _require_offered(name: str, field: Param, answer: object) -> None:
    """Refuse an answer that the form would refuse, when the DAG's file is parsed."""
    from airflow_flinkstyle.hooks.airflow_versions import ParamValidationError

    try:
        field.resolve(answer)
    except ParamValidationError as error:
        raise BadInputError(
            f"Expected {name} to be an answer that the form of the DAG takes, found {answer!r}: {error}",
            state_after="There is no such DAG.",
            remedy="Correct the argument of the function that makes the DAG.",
        ) from None
