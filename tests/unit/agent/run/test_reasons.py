"""What an error says of a script that failed; with real Spark: tests/integration/test_agent_scripts.py."""

from __future__ import annotations

import pytest

from airflow_flinkstyle.agent.core.run.reasons import Failure, own_lines

IN_BATCH = """Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/py4j/clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/opt/spark/python/lib/pyspark.zip/pyspark/sql/utils.py", line 120, in call
    raise e
  File "/jobs/app.py", line 12, in poisoned
    raise ValueError("poisoned")
    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^
ValueError: poisoned

\tat py4j.Protocol.getReturnValue(Protocol.java:476)
\tat py4j.reflection.PythonProxyHandler.invoke(PythonProxyHandler.java:108)
"""


def test_only_the_scripts_own_lines_of_a_traceback_are_shown() -> None:
    assert own_lines(IN_BATCH) == [
        '  File "/jobs/app.py", line 12, in poisoned',
        '    raise ValueError("poisoned")',
        "ValueError: poisoned",
    ]


def test_traceback_without_a_line_of_the_script_shows_none() -> None:
    assert own_lines(IN_BATCH.replace("/jobs/app.py", "/venv/lib/python3.11/site-packages/other.py")) == []
    assert own_lines("no traceback\n  at all") == []


def test_long_paths_and_messages_hide_no_line_of_the_script() -> None:
    """Spark 3.5 puts a function's traceback into a message that is long by itself."""
    deep = f"/jobs/{'a-folder/' * 30}app.py"
    text = IN_BATCH.replace("/jobs/app.py", deep).replace("ValueError: ", f"ValueError: {'because ' * 200}")
    shown = Failure.of(RuntimeError(text)).text.splitlines()
    assert shown[0].startswith("ValueError: because")
    assert shown[0].endswith("because poisoned (app.py:12)")
    assert shown[1].startswith('  File "/jobs/a-folder/')
    assert shown[1].endswith('/app.py", line 12, in poisoned')
    assert shown[2] == '    raise ValueError("poisoned")'


def test_failure_begins_with_what_ended_the_script_and_where() -> None:
    with pytest.raises(SyntaxError) as caught:
        compile("a = (", "/jobs/orders.py", "exec")
    found = Failure.of(caught.value).text.splitlines()[0]
    assert found == "SyntaxError: '(' was never closed (orders.py:1)"
    assert Failure.of(RuntimeError(IN_BATCH)).text.splitlines()[0] == "ValueError: poisoned (app.py:12)"
    assert Failure.of(ValueError("only said")).text.splitlines()[0] == "ValueError: only said"


def test_failure_shows_the_scripts_lines_before_the_end_of_sparks_message() -> None:
    plan = "\n\n=== Streaming Query ===\nplan"
    failure = Failure.of(RuntimeError(f"[STREAM_FAILED] Query terminated with:\n{IN_BATCH}\nat last{plan}"))
    assert failure.text.splitlines()[1:4] == own_lines(IN_BATCH)
    assert failure.text.endswith("at last")
    assert "py4j.Protocol" not in failure.text
    assert "plan" not in failure.text
