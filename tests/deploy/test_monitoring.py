"""The alerts of Prometheus and the dashboard of Grafana name metrics and values that exist."""

from __future__ import annotations

import json
import re
from itertools import combinations
from typing import Any

import psycopg
import pytest
import yaml  # type: ignore[import-untyped]

from deploy.files import ROOT, read
from mailgres.metrics.definitions import METRICS

_SELECTOR = re.compile(r"\b(mailgres_\w+)(?:\{([^}]*)\})?")
_MATCHER = re.compile(r'(\w+)=~?"([^"]*)"')
_BY = re.compile(r"\bby \(([^)]*)\)")
KNOWN = {metric.full_name: metric for metric in METRICS.values()}
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load(read("monitoring", "events.rules.yml"))["groups"]
    for rule in group["rules"]
]
DASHBOARD = json.loads(read("monitoring", "events.dashboard.json"))
TARGETS = [target for panel in DASHBOARD["panels"] for target in panel["targets"]]
EXPRESSIONS = [rule["expr"] for rule in RULES] + [target["expr"] for target in TARGETS]
VALUES = {
    ("mailgres_reported_emails", "event"): "SELECT event FROM mailgres.reported_emails()",
    ("mailgres_alerts_firing", "rule"): "SELECT name FROM mailgres.alert_rules",
    ("mailgres_events_total", "event"): "VALUES ('sent')",
}
"""Where the values of a label come from."""


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_metric_label_and_value_exists(expression: str, conn: psycopg.Connection) -> None:
    selectors = _SELECTOR.findall(expression)
    assert selectors
    labels = {label for name, _ in selectors for label in KNOWN[name].labels}
    for name, matchers in selectors:
        for label, pattern in _MATCHER.findall(matchers):
            values = {row[0] for row in conn.execute(VALUES[name, label])}
            assert set(pattern.split("|")) <= values, pattern
    for group in _BY.findall(expression):
        assert {label.strip() for label in group.split(",")} <= labels


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_every_alert_says_how_severe_it_is_and_where_to_read_on(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"info", "warning", "critical"}
    assert rule["for"]
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    titles = re.findall(r"^#+ (.+)$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
    assert anchor in {title.lower().replace(" ", "-").replace("`", "") for title in titles}
    assert rule["annotations"]["summary"]
    assert rule["annotations"]["description"]


def test_every_delivery_alert_of_mailgres_is_one_of_prometheus() -> None:
    about = {
        value
        for rule in RULES
        for label, value in _MATCHER.findall(rule["expr"])
        if label == "rule"
    }
    assert about == {"bounce_rate", "complaint_rate"}


def test_the_dashboard_can_be_imported() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    source = {"type": "prometheus", "uid": "${datasource}"}
    assert [one["name"] for one in DASHBOARD["templating"]["list"]] == ["datasource"]
    assert all(each["datasource"] == source for each in [*panels, *TARGETS])
    for one, other in combinations([panel["gridPos"] for panel in panels], 2):
        apart = (one["x"] + one["w"] <= other["x"]) or (other["x"] + other["w"] <= one["x"])
        below = (one["y"] + one["h"] <= other["y"]) or (other["y"] + other["h"] <= one["y"])
        assert apart or below
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)
