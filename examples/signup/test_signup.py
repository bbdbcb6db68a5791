"""What the application promises about its emails."""

from __future__ import annotations

import asyncio
import re
import threading
from datetime import timedelta

import pytest
from fastapi.testclient import TestClient

from mailgres.testing import AsyncOutbox, EmailNotFound, Outbox

ANA = {"email": "ana@example.com", "name": "Ana"}


def sign_up(client: TestClient) -> None:
    assert client.post("/users", json=ANA).status_code == 201


def test_a_new_user_gets_a_link_that_confirms_the_address(
    client: TestClient, outbox: Outbox
) -> None:
    sign_up(client)
    email = outbox.wait_for(to="ana@example.com", template="confirm_address")
    assert email.subject == "Please confirm your address, Ana"
    assert email.from_email == "The shop <hello@shop.example.com>"
    found = re.search(r'href="https://shop.example.com(/confirm\?token=[\w-]+)"', email.html or "")
    assert found
    assert client.post(found[1]).json() == {"email": "ana@example.com"}


def test_a_user_who_does_not_confirm_is_reminded_after_two_days(
    client: TestClient, outbox: Outbox
) -> None:
    sign_up(client)
    assert outbox.drain().sent == 1
    assert outbox.only(template="reminder").status == "pending"
    outbox.travel(timedelta(days=2))
    assert outbox.wait_for(template="reminder").to == "ana@example.com"


def test_a_user_who_confirms_is_not_reminded(client: TestClient, outbox: Outbox) -> None:
    sign_up(client)
    token = outbox.only(template="confirm_address").payload["url"].partition("token=")[2]
    client.post(f"/confirm?token={token}")
    outbox.travel(timedelta(days=2))
    outbox.drain()
    assert outbox.only(template="reminder").status == "cancelled"


def test_nobody_is_written_to_twice(client: TestClient, outbox: Outbox) -> None:
    sign_up(client)
    assert client.post("/users", json=ANA).status_code == 409
    assert len(outbox.emails(template="confirm_address")) == 1


def test_an_address_that_bounces_is_known_to_the_support(
    client: TestClient, outbox: Outbox
) -> None:
    outbox.fail_next("bounce", to="ana@example.com")
    sign_up(client)
    outbox.drain()
    assert client.get("/users/ana@example.com/problem").json() == {"problem": "bounced"}


def test_an_outage_of_the_provider_delays_the_email(client: TestClient, outbox: Outbox) -> None:
    outbox.fail_next("timeout", template="confirm_address")
    sign_up(client)
    assert outbox.drain().retried == 1
    with pytest.raises(EmailNotFound, match=r"confirm_address: pending \(timeout, next attempt"):
        outbox.wait_for(template="confirm_address", timeout=0)
    outbox.travel(timedelta(minutes=1))
    assert outbox.wait_for(template="confirm_address").retries == 1


def test_an_address_that_the_provider_refuses_is_a_dead_letter(
    client: TestClient, outbox: Outbox
) -> None:
    outbox.fail_next("reject")
    sign_up(client)
    outbox.drain()
    email = outbox.only(template="confirm_address")
    assert (email.status, email.dead_reason, email.error_code) == (
        "failed",
        "permanent",
        "rejected",
    )


def test_an_email_that_another_thread_enqueues_is_waited_for(
    client: TestClient, outbox: Outbox
) -> None:
    thread = threading.Thread(target=sign_up, args=(client,))
    thread.start()
    assert outbox.wait_for(to="ANA@example.com", template="confirm_address").is_sent
    thread.join()


def test_a_coroutine_awaits_the_email(client: TestClient, async_outbox: AsyncOutbox) -> None:
    async def story() -> str | None:
        await asyncio.to_thread(sign_up, client)
        return (await async_outbox.wait_for(to="ana@example.com")).subject

    assert asyncio.run(story()) == "Please confirm your address, Ana"
