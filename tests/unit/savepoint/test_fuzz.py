"""Bad bytes end in an error of the package, never in another, and never in a write outside the target."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.savepoint import manifest_json
from tools.fuzz_targets import TARGETS, run, seeds

ROOT = Path(__file__).parents[3]
SEEDS: dict[str, list[bytes]] = {name: [] for name in TARGETS}
for _target, _data in seeds():
    SEEDS[_target].append(_data)
SLOW = {"archive", "checkpoint", "manifest"}
TOKENS = [b"\0", b"\xff", b"v", b"1", b"-1", b"-", b"{", b"}", b"[", b'"', b":", b",", b"\n", b"\\ud800",
          b"null", b"NaN", b"1e999", b"../", b"../../../x", b"/", b"9" * 5000, b"[" * 5000,
          b'{"a":' * 5000]  # fmt: skip
relaxed = settings(deadline=None, suppress_health_check=list(HealthCheck), database=None)


def test_every_target_accepts_its_seeds():
    for name, examples in SEEDS.items():
        assert examples, name
        for data in examples:
            TARGETS[name](data)


@st.composite
def spoilt(draw: st.DrawFn, name: str) -> bytes:
    """A seed in which pieces were replaced, by anything."""
    data = draw(st.sampled_from(SEEDS[name]))
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(data)))
        end = draw(st.integers(start, min(len(data), start + 40)))
        data = data[:start] + draw(st.sampled_from(TOKENS) | st.binary(max_size=12)) + data[end:]
    return data


@pytest.mark.parametrize("name", list(TARGETS))
def test_spoilt_input_raises_nothing_but_our_errors(name: str):
    @settings(relaxed, max_examples=40 if name in SLOW else 120)
    @given(spoilt(name) | st.binary(max_size=200))
    def check(data: bytes) -> None:
        run(name, data)

    check()


@pytest.mark.parametrize("token", TOKENS, ids=lambda token: repr(token[:8]))
@pytest.mark.parametrize("name", ["offset-log", "commit-log", "metadata", "operator", "record"])
def test_each_odd_token_at_each_place_raises_nothing_but_our_errors(name: str, token: bytes):
    for data in SEEDS[name][:4]:
        for position in range(0, len(data), max(1, len(data) // 60)):
            run(name, data[:position] + token + data[position:])
            run(name, data[:position] + token)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8)
    | st.sampled_from(["..", "/etc/passwd", "a/../../b", "state", "metadata", "\ud800", "sha256:x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


def places(document: object) -> list[tuple[Any, Any]]:
    """Return every container of a document with each of its keys."""
    if isinstance(document, dict):
        inner = [(document, key) for key in document]
    elif isinstance(document, list):
        inner = [(document, position) for position in range(len(document))]
    else:
        return []
    return inner + [place for container, key in inner for place in places(container[key])]


@settings(relaxed, max_examples=150)
@given(st.data())
def test_manifest_with_any_value_anywhere_raises_nothing_but_our_errors(data: st.DataObject):
    document = json.loads(SEEDS["manifest"][0])
    for _ in range(data.draw(st.integers(1, 2))):
        container, key = data.draw(
            st.sampled_from(range(len(places(document)))).map(places(document).__getitem__)
        )
        container[key] = data.draw(values)
    run("manifest", json.dumps(document).encode())


@settings(relaxed, max_examples=120)
@given(st.data())
def test_logs_of_any_json_raise_nothing_but_our_errors(data: st.DataObject):
    name = data.draw(st.sampled_from(["offset-log", "commit-log", "metadata", "operator"]))
    document = data.draw(values | st.fixed_dictionaries({
        "conf": values, "batchWatermarkMs": values, "nextBatchWatermarkMs": values, "stateUniqueIds": values,
        "stateStoreInfo": values, "operatorInfo": values, "id": values,
    }))  # fmt: skip
    line = json.dumps(document)
    version = data.draw(st.sampled_from(["v1", "v2", "v3"]))
    text = (
        line if name == "metadata" else f"{version}\n{line}" + ("\n0:" + line if name == "offset-log" else "")
    )
    run(name, text.encode())


@settings(relaxed, max_examples=100)
@given(
    st.lists(st.text(max_size=20) | st.sampled_from(["/etc/passwd", "../../x", "a/b", ""]), max_size=3),
    st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]),
    values,
)
def test_zips_of_any_names_and_lists_raise_nothing_but_our_errors(
    names: list[str], compression: int, document: object
):
    content = BytesIO()
    with zipfile.ZipFile(content, "w", compression) as archive:
        lists = {"sstFiles": [{"dfsSstFileName": name} for name in names]} if names else document
        archive.writestr("metadata", "v1\n" + json.dumps(lists))
    run("zip", content.getvalue())


def test_zip_that_unpacks_to_gigabytes_is_refused_before_it_does():
    content = BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("metadata", b"v1\n" + b" " * (70 << 20))
    with pytest.raises(FlinkstyleError, match="file list"):
        TARGETS["zip"](content.getvalue())
    bomb = bytearray(content.getvalue())
    at = bomb.rindex(b"PK\x01\x02") + 24  # the size in the directory, which the sender chooses
    bomb[at : at + 4] = struct.pack("<I", 10)
    run("zip", bytes(bomb))


def test_manifest_with_the_right_checksum_is_still_checked():
    document = json.loads(SEEDS["manifest"][0])
    document["queries"][0]["files"]["path"][0] = "../../outside/"
    with pytest.raises(FlinkstyleError, match="path"):
        manifest_json.from_json(manifest_json.with_checksum(json.dumps(document)))


def test_coverage_guided_fuzzer_finds_nothing_in_a_few_seconds(tmp_path: Path):
    """A short run; ``make fuzz`` takes its time."""
    done = subprocess.run(
        [sys.executable, "-m", "tools.fuzz", "--seconds", "3", "--folder", tmp_path],
        cwd=ROOT, check=False, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert list(tmp_path.glob("found-*")) == []
    runs = int(done.stderr.rpartition("number_of_executed_units:")[2].split()[0])
    assert runs > 200
