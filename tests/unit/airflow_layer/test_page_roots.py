from __future__ import annotations

import pytest

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.hooks.page_roots import DEFAULT, PageRoot, parse_roots

pytestmark = pytest.mark.airflow


def test_roots_come_in_order_each_with_the_dag_that_decides():
    found = parse_roots(" shop:rotate_shop ,billing")
    assert list(found.values()) == [
        PageRoot(conn_id="shop", dag_id="rotate_shop"),
        PageRoot(conn_id="billing", dag_id="take_savepoint"),
    ]
    assert parse_roots(DEFAULT)["flinkstyle_default"].dag_id == "take_savepoint"
    assert parse_roots("") == {}


@pytest.mark.parametrize("setting", ["a b", "shop:", ":dag", "shop:a:b", "<script>", "shop,shop:other"])
def test_setting_that_is_no_such_list_is_refused_by_name(setting: str):
    with pytest.raises(BadInputError, match=r"\[flinkstyle\] page: expected .* found") as caught:
        parse_roots(setting)
    assert "AIRFLOW__FLINKSTYLE__PAGE" in caught.value.remedy
