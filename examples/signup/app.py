"""A small application that sends emails with mailgres: sign up, confirm, be reminded."""

from __future__ import annotations

import os
import secrets
from datetime import UTC, datetime, timedelta

import psycopg
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

import mailgres

SCHEMA = """
    CREATE TABLE IF NOT EXISTS users (
        email      text PRIMARY KEY,
        name       text NOT NULL,
        token      text NOT NULL UNIQUE,
        confirmed  boolean NOT NULL DEFAULT false
    )
"""
BASE = "https://shop.example.com"
REMIND_AFTER = timedelta(days=2)

app = FastAPI()


class NewUser(BaseModel):
    """What a sign-up form sends."""

    email: str
    name: str


def connect() -> psycopg.Connection:
    """Open a connection to the database of the application, which is also that of its emails."""
    return psycopg.connect(os.environ["DATABASE_URL"])


@app.post("/users", status_code=201)
def sign_up(user: NewUser) -> dict[str, str]:
    """Store the user, and enqueue two emails in the same transaction."""
    token = secrets.token_urlsafe(16)
    with connect() as connection:
        added = connection.execute(
            "INSERT INTO users (email, name, token) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
            (user.email, user.name, token),
        )
        if not added.rowcount:
            raise HTTPException(409, "this address is known already")
        payload = {"name": user.name, "url": f"{BASE}/confirm?token={token}"}
        mailgres.enqueue(connection, "confirm_address", user.email, payload)
        mailgres.enqueue(
            connection,
            "reminder",
            user.email,
            payload,
            scheduled_for=datetime.now(UTC) + REMIND_AFTER,
            idempotency_key=f"reminder/{user.email}",
        )
    return {"email": user.email}


@app.post("/confirm")
def confirm(token: str) -> dict[str, str]:
    """Confirm the address, and cancel the reminder."""
    with connect() as connection:
        found = connection.execute(
            "UPDATE users SET confirmed = true WHERE token = %s RETURNING email", (token,)
        ).fetchone()
        if found is None:
            raise HTTPException(404, "this link is not valid")
        connection.execute(
            "SELECT cancel_email(id) FROM email_queue"
            " WHERE idempotency_key = %s AND status = 'pending'",
            (f"reminder/{found[0]}",),
        )
    return {"email": found[0]}


@app.get("/users/{email}/problem")
def problem(email: str) -> dict[str, str | None]:
    """Say what is wrong with an address, for the people of the support."""
    with connect() as connection:
        found = connection.execute(
            "SELECT reason FROM email_suppressions WHERE recipient_email = %s", (email,)
        ).fetchone()
    return {"problem": found[0] if found else None}
