"""What the page's modules compute, in the Node.js that Playwright brings; React is pretended."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from playwright._impl._driver import compute_driver_executable

import airflow_flinkstyle.plugin

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.airflow
STATIC = Path(airflow_flinkstyle.plugin.__file__).parent / "static"
REACT = (
    "useCallback: (read) => read, useEffect: () => {}, "
    "useState: (first) => [globalThis.kept ?? first, () => {}]"
)


@pytest.fixture
def run(tmp_path: Path) -> Callable[[str, str], Any]:
    """Return what an expression gives, in which ``page`` is a module of the page."""
    static = shutil.copytree(STATIC, tmp_path / "plugin" / "page" / "static")
    (tmp_path / "package.json").write_text('{"type": "module"}')
    node = compute_driver_executable()[0]

    def answer(module: str, expression: str) -> Any:  # noqa: ANN401 - as the expression gives it
        program = (
            f"globalThis.React = {{ {REACT} }};"
            f"const page = await import({json.dumps((static / module).as_uri())});"
            f"console.log(JSON.stringify({expression}));"
        )
        command = [node, "--input-type=module", "--eval", program]
        said = subprocess.run(command, capture_output=True, text=True, check=False)
        assert said.returncode == 0, said.stderr
        return json.loads(said.stdout)

    return answer


PARAMS = {
    "min_rate": {"value": 0.5, "schema": {"type": ["null", "number"]}},
    "max_lag": {"value": None, "schema": {"type": ["null", "integer"]}},
    "standby": {"value": "warm", "schema": {"type": "string"}},
    "args": {"value": None, "schema": {"type": ["null", "array"]}},
}


@pytest.mark.parametrize(
    ("filled_in", "sent"),
    [
        ({"min_rate": ""}, {"min_rate": None}),  # its default, 0.5, is what the person took away
        ({"min_rate": "0.25", "max_lag": "7"}, {"min_rate": 0.25, "max_lag": 7}),
        ({"max_lag": "", "standby": ""}, {}),
        ({"args": "--top 10", "job": "orders"}, {"args": ["--top", "10"]}),
        ({"args": "--title\ntwo words\n\n"}, {"args": ["--title", "two words"]}),  # as the form says
    ],
)
def test_field_that_was_emptied_is_not_sent_as_its_default(
    run: Callable[[str, str], Any], filled_in: dict[str, str], sent: dict[str, Any]
):
    assert run("fields.js", f"page.typed({json.dumps(filled_in)}, {json.dumps(PARAMS)})") == sent


def test_what_was_asked_before_is_gone_once_nothing_is_asked(run: Callable[[str, str], Any]):
    before = "globalThis.kept = { value: { hitl_details: ['decide'] }, error: 'gone' }"
    asked = run("fetching.js", f"({before}, page.useAnswer(new URL('http://localhost/')).value)")
    assert asked == {"hitl_details": ["decide"]}
    nothing = run("fetching.js", f"({before}, [page.useAnswer(null).value, page.useAnswer(null).error])")
    assert nothing == [None, None]


def test_dots_that_would_lie_upon_each_other_stand_beside_each_other(run: Callable[[str, str], Any]):
    assert run("timeline.js", "page.spread([200, 201, 500, 949, 950], 950)") == [200, 211, 500, 939, 950]
    many = run("timeline.js", "page.spread(Array.from({ length: 200 }, () => 900), 950)")
    assert many == sorted(set(many)), "each is to be hit"
    assert (round(many[0]), many[-1]) == (150, 950)


def test_plot_begins_with_the_first_moment_that_is_known_and_ends_now(run: Callable[[str, str], Any]):
    axis = run("plots.js", "page.axisOf([[2000, 5], [3000, 7]], 1000, 9000)")
    assert axis == {"first": 1000, "last": 9000, "ticks": [1000, 5000, 9000]}


def test_rewritten_savepoint_stands_behind_the_one_that_it_was_made_from(run: Callable[[str, str], Any]):
    node = '{{ id: "savepoint/{0}", row: 1, at_ms: 5 }}'
    nodes = f"[{node.format('new')}, {node.format('old')}]"
    edges = '[{ kind: "rewritten", source: "savepoint/old", target: "savepoint/new" }]'
    new, old = run(
        "lineage.js", f'["new", "old"].map((id) => page.placed({nodes}, {edges}).get(`savepoint/${{id}}`)[0])'
    )
    assert old < new


def test_people_read_one_savepoint_no_milliseconds_and_when_a_number_was_seen(run: Callable[[str, str], Any]):
    said = (
        '[page.count(1, "savepoint"), page.count(2000, "savepoint"), page.duration(20), page.duration(734)]'
    )
    assert run("words.js", said) == ["1 savepoint", "2,000 savepoints", "under 0.1 s", "0.7 s"]
    assert run("words.js", '["running", "dead", "closed"].map(page.whenSeen)') == [
        "",
        *[" when last seen"] * 2,
    ]


def test_jobs_that_never_came_up_can_be_hidden(run: Callable[[str, str], Any]):
    jobs = '[["dead", null], ["dead", 1], ["starting", null]]'
    found = f"{jobs}.map(([state, incarnation]) => page.neverCameUp({{ state, incarnation }}))"
    assert run("jobs.js", found) == [True, False, False]


def test_comparison_that_another_run_has_explained_is_not_listed_twice(run: Callable[[str, str], Any]):
    runs = (
        "[{generation: 4, comparison: {new: 3, again: 4}}, "
        "{generation: 3, comparison: {new: 3, again: null}}, {generation: 2, comparison: null}]"
    )
    assert run("comparison.js", f"page.comparisonsOf({runs}).map((one) => one.generation)") == [4]


def test_rows_that_differ_are_listed_with_their_query_and_keys_of_its_state(run: Callable[[str, str], Any]):
    queries = (
        '[{name: "lines", found: {samples: [{kind: "only in new", old: null, new: "{}"}], '
        'states: [{not_deterministic: false, samples: ["k"]}, {not_deterministic: true, samples: ["l"]}]}}]'
    )
    assert run("comparison.js", f"page.rowsOf({queries})") == [
        ["lines", "only in new", None, "{}"],
        ["lines", "state", "k", None],
    ]


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ([(503, "STORE_BUSY"), (503, "STORE_BUSY"), (200, None)], {"found": 1}),
        ([(503, "STORE_UNAVAILABLE"), (200, None)], "503"),
        ([(503, "STORE_BUSY")] * 15 + [(200, None)], "503"),
    ],
    ids=["slow", "unavailable", "stays-slow"],
)
def test_what_a_person_asked_for_once_is_asked_again_while_the_store_or_a_broker_is_slow(
    run: Callable[[str, str], Any], answers: list[tuple[int, str | None]], told: object
):
    given = [{"status": status, "code": code} for status, code in answers]
    program = f"""await (async () => {{
      const answers = {json.dumps(given)};
      globalThis.setTimeout = (then) => then();
      globalThis.fetch = async () => {{
        const {{ status, code }} = answers.shift();
        const error = {{ code, problem: "p", state_after: "s", remedy: "r" }};
        const body = code ? {{ error }} : {{ found: 1 }};
        return {{ ok: status === 200, status, json: async () => body, headers: new Map() }};
      }};
      return page.askUntilTold("/start").catch((error) => String(error.status));
    }})()"""
    assert run("fetching.js", program) == told
