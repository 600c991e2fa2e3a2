"""What the contract's tests share: for each deployment one cluster, and one job in the order of the tests."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pytest

from testbed.clusters import Cluster, Place
from tests.integration.cluster_lab import ClusterLab

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRET_NAME = "FLINKSTYLE_TEST_SECRET"  # noqa: S105 - a name


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    place: Place = request.param
    with Cluster(place, tmp_path_factory.mktemp(place)) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def lab(cluster: Cluster) -> Iterator[ClusterLab]:
    """One job for all tests of a deployment: they are one life of it."""
    lab = ClusterLab(cluster.folder / "job", cluster, secret_env={SECRET_NAME: secrets.token_hex(16)})
    yield lab
    lab.end()
