from __future__ import annotations

import io
import json
import zipfile

import pytest

from airflow_flinkstyle.checkpoint.errors import StateIncompleteError
from airflow_flinkstyle.checkpoint.state_store import state_closure
from airflow_flinkstyle.types import StateVersion

A, B, C, D = (f"{letter * 8}-0000-4000-8000-000000000000" for letter in "abcd")


def a_zip(*ssts: str) -> bytes:
    content = io.BytesIO()
    files = [{"localFileName": "1.sst", "dfsSstFileName": name, "sizeBytes": 1} for name in ssts]
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("metadata", "v1\n" + json.dumps({"sstFiles": files}))
    return content.getvalue()


def closure(version: int, uids: list[str], *names: str, **ssts: str) -> list[str]:
    """Find the closure of one store; ``ssts`` gives each attempt's zip its SST."""
    files = {f"state/0/0/{name}": b"" for name in names}
    for attempt in [name for name in names if name.endswith(".zip")]:
        named = ssts.get(attempt[2], "")
        files[f"state/0/0/{attempt}"] = a_zip(*filter(None, [named]))
        files |= {f"state/0/0/SSTs/{named}": b""} if named else {}
    found = state_closure(
        files, StateVersion(version), {"0": (tuple(uids),)}, files.__getitem__, partitions=None
    )
    return [file.path.removeprefix("state/0/0/") for file in found]


def test_committed_attempts_zip_is_all_that_is_needed_beside_its_ssts():
    names = [f"1_{A}.zip", f"2_{B}.zip", f"2_{C}.zip"]
    assert closure(2, [B], *names, b="b.sst", c="c.sst") == [f"2_{B}.zip", "SSTs/b.sst"]


def test_changelogs_lead_back_to_the_newest_zip():
    names = [f"1_{A}.zip", f"2_{B}.zip", f"2_{B}.changelog", f"3_{C}.changelog", f"4_{D}.changelog"]
    found = closure(4, [D], *names, b="b.sst")
    assert found == [f"4_{D}.changelog", f"3_{C}.changelog", f"2_{B}.zip", "SSTs/b.sst", f"2_{B}.changelog"]


def test_changelogs_alone_lead_back_to_the_first_version():
    names = [f"1_{A}.changelog", f"2_{B}.changelog"]
    assert closure(2, [B], *names) == [f"2_{B}.changelog", f"1_{A}.changelog"]


def test_every_attempt_of_an_older_version_goes_along_back_to_a_zip_without_rivals():
    names = [f"1_{A}.zip", f"2_{B}.zip", f"2_{C}.changelog", f"3_{D}.changelog", f"3_{A}.changelog"]
    assert closure(3, [D], *names) == [f"3_{D}.changelog", f"2_{B}.zip", f"2_{C}.changelog", f"1_{A}.zip"]


def test_later_versions_are_left_out():
    assert closure(1, [A], f"1_{A}.zip", f"2_{B}.zip", f"2_{B}.changelog") == [f"1_{A}.zip"]


def test_gap_in_the_chain_is_named():
    with pytest.raises(StateIncompleteError, match=r"version 3.*2_<id>\.changelog"):
        closure(3, [C], f"1_{A}.zip", f"3_{C}.changelog")


def test_attempt_that_the_commit_names_and_is_missing_is_named():
    with pytest.raises(StateIncompleteError, match=f"state/0/0.*2_{B}"):
        closure(2, [B], f"1_{A}.zip", f"2_{C}.zip")


def test_missing_sst_of_a_zip_is_named():
    files = {f"state/0/0/1_{A}.zip": a_zip("gone.sst")}
    with pytest.raises(StateIncompleteError, match=r"gone\.sst"):
        state_closure(files, StateVersion(1), {"0": ((A,),)}, files.__getitem__, partitions=None)


def test_store_that_the_commit_does_not_name_is_refused():
    with pytest.raises(StateIncompleteError, match="attempt that the commit log names"):
        closure(1, [], f"1_{A}.zip")


def test_each_store_of_a_join_is_followed_by_its_own_id_whatever_their_order():
    files = {f"state/0/0/left/1_{A}.zip": a_zip(), f"state/0/0/right/1_{B}.zip": a_zip()}
    for uids in ((A, B), (B, A)):
        found = state_closure(files, StateVersion(1), {"0": (uids,)}, files.__getitem__, partitions=None)
        assert {file.path for file in found} == files.keys()


def test_visible_checksums_go_along():
    names = [f"1_{A}.zip", f"1_{A}.zip.crc", f"2_{B}.changelog", f"2_{B}.changelog.crc", f"2_{C}.zip.crc"]
    assert set(closure(2, [B], *names)) == set(names[:4])
