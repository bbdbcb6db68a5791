"""Two operators at the same moment: both get an answer, and everything happens once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from page import bulk
from page.client import Client
from page.sending import enqueue, kill
from support.queue import Queue
from support.web_client import Answer
from worker.harness import until


def at_once(*calls: Callable[[], Answer]) -> list[Answer]:
    """Make calls at the same moment."""
    barrier, found = threading.Barrier(len(calls)), dict[int, Answer]()

    def make(place: int, call: Callable[[], Answer]) -> None:
        barrier.wait()
        found[place] = call()

    threads = [threading.Thread(target=make, args=each) for each in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[place] for place in range(len(calls))]


def posts(stranger: Client, path: str, **form: str) -> list[Callable[[], Answer]]:
    """The same form of two operators."""
    people = [stranger.sign_in(name=name) for name in ("ana", "ben")]
    forms = [(each, {"csrf": each.get("/").csrf(), **form}) for each in people]
    return [partial(each.post, path, form) for each, form in forms]


def test_two_operators_who_retry_an_email_at_once_reopen_it_once(
    stranger: Client, queue: Queue
) -> None:
    queue_id = enqueue(queue)
    kill(queue, queue_id)
    answers = at_once(*posts(stranger, f"/emails/{queue_id}/retry"))
    assert [answer.status for answer in answers] == [303, 303]
    assert queue.events(queue_id).count("reopened") == 1
    assert queue.email(queue_id).generation == 1, "one new key"


def test_an_email_that_two_operators_retry_and_cancel_at_once_has_the_state_of_the_last(
    stranger: Client, queue: Queue
) -> None:
    queue_id = enqueue(queue)
    kill(queue, queue_id)
    retry, _ = posts(stranger, f"/emails/{queue_id}/retry")
    _, cancel = posts(stranger, f"/emails/{queue_id}/cancel")
    answers = at_once(retry, cancel)
    assert [answer.status for answer in answers] == [303, 303]
    last = queue.log(queue_id)[-1]
    assert queue.email(queue_id).status == last.to_status
    assert {entry.role.partition(" ")[2] for entry in queue.log(queue_id)[1:]} == {"(ana)", "(ben)"}


def test_two_operators_who_start_the_same_bulk_action_change_each_email_once(
    stranger: Client, queue: Queue
) -> None:
    bulk.fill(queue, 500)
    form = {"action": "retry", "status": "failed"}
    answers = at_once(*posts(stranger, "/bulk", **form))
    assert [answer.status for answer in answers] == [303, 303]
    ended = "SELECT count(*) FROM mailgres.bulk_actions WHERE state = 'done'"
    until(lambda: queue.value(ended) == 2, "both are done", 60)
    assert queue.value("SELECT sum(done) FROM mailgres.bulk_actions") == 500
    assert bulk.changes(queue).changes == 500


def test_two_operators_who_stop_a_bulk_action_at_once_both_see_it_stopped(
    stranger: Client, queue: Queue
) -> None:
    bulk.fill(queue, 400)
    bulk.close_gate(queue, 200)
    bulk.start(queue)
    answers = at_once(*posts(stranger, "/bulk/1/stop"))
    assert [answer.status for answer in answers] == [303, 303]
    row = bulk.action(queue)
    assert (row.state, row.stopped_by in ("ana", "ben")) == ("stopped", True)


def test_two_operators_who_pause_a_tenant_at_once_pause_it_once(
    stranger: Client, queue: Queue
) -> None:
    enqueue(queue, tenant="acme")
    answers = at_once(*posts(stranger, "/tenants/pause", name="acme", reason="unpaid"))
    assert [answer.status for answer in answers] == [303, 303]
    assert queue.value("SELECT paused_at IS NOT NULL FROM mailgres.tenants")
