"""The end of a run: which tests did not run, and why, one line for each reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

LEFT_OUT = "left_out"
_left_out: Counter[str] = Counter()


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Count by module, in each process of the run."""
    _left_out.update(item.location[0] for item in items)
    for item in items[:1]:
        if hasattr(item.config, "workeroutput"):
            item.config.workeroutput[LEFT_OUT] = dict(_left_out)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over what a process of the run counted: each one collects all tests."""
    _left_out.update(Counter(getattr(node, "workeroutput", {}).get(LEFT_OUT, {})) - _left_out)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reasons: dict[str, Counter[str]] = {}
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2]
        modules = reasons.setdefault(reason.removeprefix("Skipped: "), Counter())
        modules[report.nodeid.partition("::")[0]] += 1
    expression = terminalreporter.config.option.markexpr
    if _left_out and expression:
        reasons[f"not selected by -m {expression!r}"] = _left_out
    if not reasons:
        return
    terminalreporter.section("tests that did not run")
    for reason, modules in sorted(reasons.items()):
        terminalreporter.write_line(f"{modules.total():4}  {reason}")
        for path, count in sorted(modules.items()):
            terminalreporter.write_line(f"      {path}" + (f" ({count})" if count > 1 else ""))
