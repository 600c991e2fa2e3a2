from __future__ import annotations

import pytest

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.answers.rules import mirror_if_named, mirror_settings, proof_request


def test_empty_mirror_answers_take_the_defaults():
    found = mirror_settings({"source_alias": "old", "target_alias": "new", "connector_name": None})
    assert found.connector_name == "MirrorSourceConnector"
    assert found.positions_topic == "mm2-offsets.old.internal"


def test_mirror_without_aliases_is_refused():
    with pytest.raises(BadInputError, match="no source_alias and no target_alias"):
        mirror_settings({})


def test_form_that_says_there_is_no_alias_names_no_mirror():
    none = {"source_alias": "none", "target_alias": "none"}
    assert mirror_if_named(none) is None
    kept = mirror_if_named({**none, "keeps_offsets": True})
    assert kept is not None
    assert (kept.source_alias, kept.target_alias) == ("source", "target")
    with pytest.raises(BadInputError, match="no target_alias"):
        mirror_if_named({**none, "source_alias": "old"})


def test_misspelt_mirror_setting_is_refused():
    with pytest.raises(BadInputError, match="'polciy'"):
        mirror_settings({"source_alias": "a", "target_alias": "b", "polciy": "identity"})


def test_text_that_a_template_makes_of_a_form_says_the_same():
    named = {"source_alias": "a", "target_alias": "b"}
    found = mirror_settings(
        {**named, "sole_writer": "False", "keeps_offsets": "true", "ignored_headers": "origin"}
    )
    assert (found.sole_writer, found.keeps_offsets, found.ignored_headers) == (False, True, ("origin",))
    assert mirror_if_named({"keeps_offsets": "False"}) is None
    kept = mirror_if_named({"keeps_offsets": True, "ignored_headers": ["a", "b"]})
    assert kept is not None
    assert kept.ignored_headers == ("a", "b")


@pytest.mark.parametrize(
    "answer",
    [{"sole_writer": "no"}, {"replication_policy": "Identity"}, {"isolation": "committed"}, {"syncs_on": 1}],
)
def test_mirror_setting_with_another_value_is_refused_by_name(answer: dict[str, object]):
    with pytest.raises(BadInputError, match=next(iter(answer))):
        mirror_settings({"source_alias": "a", "target_alias": "b", **answer})


def test_isolation_that_kafka_does_not_know_is_refused():
    with pytest.raises(BadInputError, match="'READ_COMMITTED'"):
        proof_request(mirror=None, rename=None, isolation="READ_COMMITTED")
