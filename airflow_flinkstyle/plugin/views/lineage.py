"""Which savepoint and which run of a job came from which: the nodes and edges of a graph. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MOST_SAVEPOINTS = 40
"""So many of the newest are in the graph, and those from which a run in it was started."""


def lineage(runs: Sequence[Mapping[str, Any]], savepoints: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the graph.

    Args:
        runs: As ``answers.Run``, the newest first.
        savepoints: As ``answers.Savepoint``, the newest first.
    """
    shown = _shown(runs, savepoints)
    nodes = [*(_run_node(run) for run in runs), *(_savepoint_node(one) for one in shown)]
    there = {node["id"] for node in nodes}
    edges = [
        edge
        for edge in (*_of_runs(runs), *_of_savepoints(shown))
        if edge["source"] in there and edge["target"] in there
    ]
    return {"nodes": nodes, "edges": edges, "left_out": len(savepoints) - len(shown)}


def _shown(
    runs: Sequence[Mapping[str, Any]], savepoints: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Return the newest, and those that a run was started from with what they were made from."""
    by_id = {one["savepoint_id"]: one for one in savepoints}
    wanted = [one["savepoint_id"] for one in savepoints[:MOST_SAVEPOINTS]]
    wanted += [run["from_savepoint"] for run in runs if run["from_savepoint"] in by_id]
    wanted += [by_id[name]["parent"] for name in wanted if by_id[name]["parent"] in by_id]
    return [by_id[name] for name in dict.fromkeys(wanted)]


def _run_node(run: Mapping[str, Any]) -> dict[str, Any]:
    generation = run["generation"]
    return {
        "id": f"run/{generation}",
        "row": generation,
        "at_ms": run["claimed_at_ms"],
        "state": run["state"],
    }


def _savepoint_node(one: Mapping[str, Any]) -> dict[str, Any]:
    state = "damaged" if one["damaged"] else "verified" if one["verified"] else "not verified"
    state = "abandoned" if one["beside"] and not one["damaged"] else state
    return {
        "id": f"savepoint/{one['savepoint_id']}",
        "row": one["generation"] or 0,
        "at_ms": one["taken_at_ms"],
        "state": state,
    }


def _of_runs(runs: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, str]]:
    for run in runs:
        target = f"run/{run['generation']}"
        if run["from_savepoint"]:
            yield {"source": f"savepoint/{run['from_savepoint']}", "target": target, "kind": "started"}
        elif run["adopts_checkpoint_of"] is not None:
            yield {"source": f"run/{run['adopts_checkpoint_of']}", "target": target, "kind": "continued"}


def _of_savepoints(shown: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, str]]:
    for one in shown:
        target = f"savepoint/{one['savepoint_id']}"
        if one["parent"]:
            yield {"source": f"savepoint/{one['parent']}", "target": target, "kind": "rewritten"}
        elif one["generation"] is not None:
            yield {"source": f"run/{one['generation']}", "target": target, "kind": "took"}
