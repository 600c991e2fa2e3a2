"""List, verify and restore savepoints with nothing but Python: written from docs/savepoint-format.md alone.

For a rainy day without the package, and as a proof that the document is enough. Local roots only.

    python savepoint_reader.py list    ROOT JOB
    python savepoint_reader.py verify  ROOT JOB SAVEPOINT
    python savepoint_reader.py restore ROOT JOB SAVEPOINT TARGET     # each query into TARGET/<query name>
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import re
import sys
from pathlib import Path
from typing import Any, NoReturn

FORMATS = (1, 2)
SEAL = "v2147483647\n"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
UNSAFE = re.compile(r"[\\\x00-\x1f\x7f]")


def fail(why: str) -> NoReturn:
    """Give up; whatever was restored stays sealed."""
    sys.exit(f"savepoint_reader: {why}")


def safe(key: str) -> str:
    """Return a key or path that cannot leave its folder."""
    if UNSAFE.search(key) or any(part in {"", ".", ".."} for part in key.split("/")):
        fail(f"unsafe name {key!r}")
    return key


def named(name: str) -> str:
    """Return a name that can be a folder's."""
    if not NAME.fullmatch(name):
        fail(f"unsafe name {name!r}")
    return name


def text_of(path: Path) -> str:
    """Return the text of a manifest; a large one is compressed."""
    data = path.read_bytes()
    return (gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data).decode()


def manifests(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the savepoints of a job by id; ids that were withdrawn are none."""
    found = {path.stem: json.loads(text_of(path)) for path in folder.glob("savepoints/*.json")}
    return {savepoint_id: one for savepoint_id, one in found.items() if "tombstone" not in one}


def read_manifest(folder: Path, savepoint_id: str) -> dict[str, Any]:
    """Return one manifest, if it is of the known format and what its key says."""
    manifest = manifests(folder).get(savepoint_id)
    if manifest is None:
        fail(f"no savepoint {savepoint_id}")
    if manifest["format_version"] not in FORMATS:
        fail(f"format {manifest['format_version']} is newer than this reader knows {FORMATS}")
    text = text_of(folder / "savepoints" / f"{savepoint_id}.json")
    digits = manifest["checksum"]
    if hashlib.sha256(text.replace(digits, "0" * 64, 1).encode()).hexdigest() != digits:
        fail("the manifest was altered")
    if (manifest["job"], manifest["savepoint_id"]) != (folder.name, savepoint_id):
        fail(f"the manifest is one of {manifest['job']}/{manifest['savepoint_id']}")
    for query in manifest["queries"]:
        query["files"] = rows(query["files"])
    return manifest


def rows(columns: dict[str, Any]) -> list[dict[str, Any]]:
    """Return an object for each file."""
    digits, sizes = io.StringIO(base64.b64decode(columns["sha256"]).hex()), iter(columns["size_bytes"])
    files: list[dict[str, Any]] = []
    in_folder = ""
    for name in columns["path"]:
        if name.endswith("/"):
            in_folder = name if name != "/" else ""
            continue
        number = str(len(files))
        sha256 = digits.read(64) if number not in columns["digest"] else None
        files.append(
            {
                "path": in_folder + name,
                "size_bytes": next(sizes),
                "blob": columns["blob"].get(number, sha256),
                "digest": f"sha256:{sha256}" if sha256 else columns["digest"][number],
            }
        )
    packed = columns.get("packed", [])  # format 1 has none
    for first, count, pack, offset in zip(packed[::4], packed[1::4], packed[2::4], packed[3::4], strict=True):
        for entry in files[first : first + count]:
            entry["blob"], entry["offset"] = columns["packs"][pack][0], offset
            offset += entry["size_bytes"]
    return files


def content(folder: Path, entry: dict[str, Any]) -> bytes:
    """Return a file's content, compared with its size and digest."""
    path = folder / "blobs" / safe(entry["blob"])
    if not path.is_file():
        fail(f"{entry['path']} is missing")
    if "offset" in entry:
        with path.open("rb") as file:
            file.seek(entry["offset"])
            data = file.read(entry["size_bytes"])
    else:
        data = path.read_bytes()
    kind, _, digest = (entry["digest"] or "size:").partition(":")
    found = {
        "size": "",
        "sha256": hashlib.sha256(data).hexdigest(),
        "etag": hashlib.md5(data, usedforsecurity=False).hexdigest(),
    }
    if len(data) != entry["size_bytes"] or found.get(kind) != digest:
        fail(f"{entry['path']} was altered")
    return data


def verify(folder: Path, manifest: dict[str, Any]) -> int:
    """Read every file and compare the logs with the manifest; returns the size in bytes."""
    size_bytes = 0
    for query in manifest["queries"]:
        files = {safe(entry["path"]): content(folder, entry) for entry in query["files"]}
        batch = query["batch_id"]
        needed = {"metadata", f"commits/{batch}", f"offsets/{batch}", f"offsets/{max(0, batch - 1)}"}
        if missing := sorted(needed - files.keys()):
            fail(f"query {query['name']} has no {missing}")
        if json.loads(files["metadata"])["id"] != query["query_id"]:
            fail(f"metadata of query {query['name']} names another query")
        if json.loads(files[f"offsets/{batch}"].split(b"\n")[1])["conf"] != query["pinned_confs"]:
            fail(f"offsets/{batch} of query {query['name']} has other settings than the manifest")
        size_bytes += sum(map(len, files.values()))
    return size_bytes


def restore(folder: Path, manifest: dict[str, Any], target: Path) -> None:
    """Write each query to an empty folder: seal, metadata, the rest, and the newest offset log last."""
    for query in manifest["queries"]:
        place, newest = target / named(query["name"]), f"offsets/{query['batch_id']}"
        if place.exists() and any(place.iterdir()):
            fail(f"{place} is not empty")
        note = {
            "unfinished restore of savepoint": manifest["savepoint_id"],
            "query id": query["query_id"],
        }
        write(place / newest, (SEAL + json.dumps(note)).encode())
        for entry in sorted(query["files"], key=lambda entry: entry["path"] != "metadata"):
            if entry["path"] != newest:
                write(place / safe(entry["path"]), relocated(entry["path"], content(folder, entry), place))
        last = next(entry for entry in query["files"] if entry["path"] == newest)
        write(place / newest, content(folder, last))


def relocated(path: str, data: bytes, place: Path) -> bytes:
    """Return a file with its absolute paths, if it is of a kind that has any, below a new location."""
    if re.fullmatch(r"sources/schema/.+/_schema_log_[^/]+/\d+", path):
        version, _, text = data.decode().partition("\n")
        fields = json.loads(text)
        source = re.search(r"/sources/\d+$", fields.get("sourceMetadataPath") or "")
        if source is None:
            return data
        fields["sourceMetadataPath"] = f"file:{place.absolute()}{source[0]}"
        return f"{version}\n{json.dumps(fields, separators=(',', ':'))}".encode()
    operator, marker, _ = path.partition("/_metadata/v2/")
    if not marker:
        return data
    version, _, text = data.decode().partition("\n")
    fields = json.loads(text)
    for store in fields["stateStoreInfo"]:
        names = [name.rpartition(f"/{operator}/_stateSchema/")[2] for name in store["stateSchemaFilePaths"]]
        store["stateSchemaFilePaths"] = [
            f"file:{place.absolute()}/{operator}/_stateSchema/{name}" for name in names
        ]
    return f"{version}\n{json.dumps(fields, separators=(',', ':'))}".encode()


def write(path: Path, data: bytes) -> None:
    """Write a file so that it is there whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    part.write_bytes(data)
    part.rename(path)


def main(command: str, root: str, job: str, *args: str) -> None:
    """Run one of the three commands."""
    folder = Path(root) / named(job)
    if command == "list":
        for savepoint_id, manifest in sorted(manifests(folder).items()):
            batches = {query["name"]: query["batch_id"] for query in manifest["queries"]}
            print(savepoint_id, manifest["taken_at_ms"], json.dumps(batches))
        return
    manifest = read_manifest(folder, args[0])
    print(f"{args[0]} is whole: {verify(folder, manifest)} bytes")
    if command == "restore":
        restore(folder, manifest, Path(args[1]))
        print(f"restored to {args[1]}")


if __name__ == "__main__":
    main(*sys.argv[1:]) if len(sys.argv) > 3 else sys.exit(__doc__)
