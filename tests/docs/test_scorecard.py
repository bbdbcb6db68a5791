"""The scorecard: its page is current, missing queues are named, its parts measure what they say."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import benchmarks_page
import svg_plots
from benchmarks import chaos, measures, meters, peer_process, roster

ROOT = Path(__file__).parents[2]
FAKE = """
import json, sys, time
print(json.dumps({"answer": "ready"}), flush=True)
for line in sys.stdin:
    if line.startswith("end"):
        sys.exit("it fell over")
    if line.startswith("fault"):
        print(json.dumps({"error": "fault: no such table"}), flush=True)
        continue
    for done in (1, 3):
        print(json.dumps({"done": done, "last_ns": time.monotonic_ns()}), flush=True)
    print(json.dumps({"answer": line.split()}), flush=True)
"""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> roster.Entry:
    """A peer that is only a script."""
    (tmp_path / "fake.py").write_text(FAKE)
    monkeypatch.setattr(roster, "PEERS", tmp_path)
    return roster.Entry("fake", "fake.py")


def results(*lines: dict[str, Any]) -> benchmarks_page.Results:
    """The lines of a run."""
    head = benchmarks_page.stored("scorecard", "scorecard_quick")[0]
    end = {"measure": "end", "queue": "", "seconds": 5, "load_average": [0.1, 0.1, 0.1]}
    return [head, *lines, end]


def drained(queue: str, per_s: int, **more: object) -> dict[str, object]:
    """A line about a drain."""
    costs = {"client_us": 30.0, "server_us": 50.0, "wal_bytes": 1400}
    line = {"measure": "drain", "queue": queue, "processes": 1, "median_per_s": per_s}
    return {**line, **costs, **more}


def test_the_page_of_benchmarks_is_what_the_stored_results_give() -> None:
    text, plots = benchmarks_page.current()
    assert benchmarks_page.PAGE.read_text(encoding="utf-8") == text, "run `make docs`"
    stored = {
        path.name: path.read_text(encoding="utf-8") for path in benchmarks_page.IMAGES.iterdir()
    }
    assert stored == plots, "run `make docs`"


def test_the_page_of_benchmarks_names_missing_and_failed_queues() -> None:
    missing = {"measure": "missing", "queue": "chancy", "reason": "not installed (make peers)"}
    failed = {"measure": "drain", "queue": "pgmq", "processes": 1, "failed": "no answer"}
    text = benchmarks_page.page(results(missing, drained("mailgres", 100), failed), [])
    assert "- Missing: chancy, not installed (make peers)." in text
    assert re.search(r"^\| pgmq \| failed \|", text, re.MULTILINE)


def test_a_goal_is_met_or_not_or_not_measured() -> None:
    lines = results(drained("mailgres", 3000), drained("pgqueuer", 2000))
    table = benchmarks_page.goals(lines).splitlines()
    rows = {row[0]: row[2:] for row in (line.strip("| ").split(" | ") for line in table)}
    assert rows["one process against pgqueuer's"] == ["1.5", "yes"]
    assert rows["server CPU per email, µs"] == ["50", "no"]
    assert rows["client CPU per email, µs"] == ["30", "yes"]
    assert rows["two processes against its two"] == ["-", "not measured"]


def test_a_quick_run_and_a_busy_machine_are_marked_on_the_page() -> None:
    lines = results(drained("mailgres", 100))
    head = {**lines[0], "kind": "quick"}
    busy = {**head, "machine": {**head["machine"], "load_average": [9, 9, 9], "cores": 2}}
    quiet = {**head, "kind": "full", "machine": {**busy["machine"], "load_average": [0.5, 1, 1]}}
    marks = ("do not quote them", "busy with other work")
    for first, expected in ((busy, True), (quiet, False)):
        text = " ".join(benchmarks_page.conditions([first, lines[-1]]).split())
        assert [mark in text for mark in marks] == [expected, expected]


def test_plots_escape_their_labels_and_scale_to_the_largest_bar() -> None:
    svg = svg_plots.bars("a < b", [svg_plots.Bar("<one>", 10), svg_plots.Bar("two", 5)])
    assert "a &lt; b" in svg
    assert "&lt;one&gt;" in svg
    widths = [float(width) for width in re.findall(r'<rect [^>]*width="([\d.]+)"', svg)]
    assert widths[0] == pytest.approx(2 * widths[1])


def test_a_queue_that_is_not_installed_is_missing_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roster, "PEERS_PYTHON", tmp_path / "python")
    monkeypatch.setattr(roster, "NODE_FOLDER", tmp_path)
    monkeypatch.setattr(roster, "node", lambda: "/usr/bin/node")
    needy = [entry for entry in roster.ROSTER if entry.package]
    assert len(needy) == 7
    assert {entry.missing() for entry in needy} == {"not installed (make peers)"}
    monkeypatch.setattr(roster, "node", lambda: None)
    assert {e.missing() for e in needy if e.is_node} == {"Node.js is not installed"}


def test_every_peer_of_the_roster_has_a_script_that_cites_its_settings() -> None:
    for entry in roster.ROSTER:
        folder = roster.NODE_FOLDER if entry.is_node else roster.PEERS
        text = (folder / entry.script).read_text(encoding="utf-8")
        assert not entry.package or "Settings, from its" in text, entry.name
    assert sum(entry.chaos for entry in roster.ROSTER) == 5


def test_the_lock_file_of_the_peers_names_no_host() -> None:
    text = (roster.NODE_FOLDER / "package-lock.json").read_text(encoding="utf-8")
    assert '"resolved"' not in text
    assert '"integrity"' in text


def test_a_peer_answers_commands_and_reports_its_calls(fake: roster.Entry) -> None:
    with peer_process.PeerProcess(fake, "postgresql://nowhere/") as peer:
        assert peer.ask("fill", 0, 10) == ["fill", "0", "10"]
        peer.wait_until_done(3)
        assert peer.done == 3
    assert peer.process.returncode == 0


def test_a_peers_fault_and_its_end_are_reported_in_its_own_words(fake: roster.Entry) -> None:
    with peer_process.PeerProcess(fake, "postgresql://nowhere/") as peer:
        with pytest.raises(peer_process.PeerFailed, match="fault: no such table"):
            peer.ask("fault")
        with pytest.raises(peer_process.PeerFailed, match="the process ended it fell over"):
            peer.ask("end")


def test_a_drain_that_stands_still_fails_with_what_is_left(fake: roster.Entry) -> None:
    with peer_process.PeerProcess(fake, "postgresql://nowhere/") as peer:
        peer.ask("work")
        with pytest.raises(peer_process.PeerFailed, match="7 of 10 were not sent"):
            peer.wait_until_done(10, quiet=0.05)


def test_a_peer_that_gives_no_answer_is_ended(fake: roster.Entry) -> None:
    with peer_process.PeerProcess(fake, "postgresql://nowhere/") as peer:
        with peer.paused(), pytest.raises(peer_process.PeerFailed, match="no answer"):
            peer.ask("fill", seconds=0.2)
        assert peer.process.returncode == -signal.SIGKILL
        with pytest.raises(peer_process.PeerFailed, match="ended"):
            peer.ask("left")


def test_jains_index_is_one_for_equal_shares_and_small_for_one_winner() -> None:
    assert measures.jain([1.0] * 10) == pytest.approx(1)
    assert measures.jain([1.0] + [0.0] * 9) == pytest.approx(0.1)
    assert measures.jain([]) == 0


def test_recorded_calls_of_a_killed_peer_end_with_the_last_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "calls"
    assert measures.calls(path) == []
    path.write_text("1 100 -\n2 200 k\n3 3")
    assert measures.calls(path) == [(1, 100, "-"), (2, 200, "k")]


def test_a_repeated_key_is_no_doubled_email_but_a_second_key_is() -> None:
    made = [(1, "-"), (1, "-"), (2, "a"), (2, "a"), (3, "b"), (3, "c"), (4, "d")]
    found = chaos.repeated([measures.Call(number, 0, key) for number, key in made])
    assert found == {"doubled": 2, "repeated_keys": 1}


def test_cpu_time_counts_children_that_have_ended() -> None:
    before = meters.cpu_of_tree(os.getpid())
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    subprocess.run([sys.executable, "-c", burn], check=True)
    assert meters.cpu_of_tree(os.getpid()) - before >= 0.25
    assert meters.stat(2**22 + 1) == []


def lines_of(name: str) -> list[dict[str, Any]]:
    """The lines of a trial."""
    trial = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", "--trial"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert trial.returncode == 0, trial.stderr
    return [json.loads(line) for line in trial.stdout.splitlines()]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_trial_of_the_scorecard_has_every_measure() -> None:
    lines = lines_of("scorecard")
    assert [line for line in lines if "failed" in line] == []
    ours = {line["measure"] for line in lines if line["queue"] == roster.OURS}
    wanted = {"drain", "latency", "pinned", "memory", "fairness", "enqueue", "tenants", "growth"}
    assert ours == wanted
    missing = {line["queue"] for line in lines if line["measure"] == "missing"}
    measured = {line["queue"] for line in lines if line["measure"] == "drain"}
    assert missing | measured == {entry.name for entry in roster.ROSTER}


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_trial_of_the_chaos_run_loses_and_doubles_nothing() -> None:
    scenes = [line for line in lines_of("chaos") if line["measure"] == "chaos"]
    assert len(scenes) == 6
    bad = [s for s in scenes if "failed" in s or s["lost"] or s["stuck"] or s["doubled"]]
    assert bad == []
