"""Errors say what is wrong and what to do, even where nobody thought about it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import pytest

from mailgres import errors
from mailgres.errors import MailgresError, NotMigrated


def tree(cls: type[MailgresError], prefix: str = "") -> Iterator[str]:
    """Draw the classes below `cls` the way the module's docstring does."""
    below = [c for c in cls.__subclasses__() if c.__module__ == errors.__name__]
    for number, child in enumerate(below, start=1):
        last = number == len(below)
        yield f"{prefix}{'└' if last else '├'}── {child.__name__}"
        yield from tree(child, prefix + ("    " if last else "│   "))


def every() -> list[type[MailgresError]]:
    return [
        value
        for _, value in inspect.getmembers(errors, inspect.isclass)
        if issubclass(value, MailgresError)
    ]


def test_the_docstring_of_errors_draws_the_tree_of_errors() -> None:
    drawn = "\n".join(["MailgresError", *tree(MailgresError)])
    assert drawn in (errors.__doc__ or "")


@pytest.mark.parametrize("cls", every())
def test_every_error_has_a_message_of_its_own(cls: type[MailgresError]) -> None:
    error = cls()
    assert error.message == str(error)
    assert "\n" not in error.message
    assert not error.message.endswith(".")
    assert "__doc__" in vars(cls)


@pytest.mark.parametrize("cls", [c for c in every() if c is not MailgresError])
def test_every_error_has_a_hint(cls: type[MailgresError]) -> None:
    assert cls().hint


def test_sqlstates_are_ours_and_name_one_error_each() -> None:
    states = [c.sqlstate for c in every() if c.sqlstate is not None]
    assert len(states) == len(set(states))
    assert all(len(state) == 5 and state.startswith("MG") for state in states)


def test_an_error_can_be_given_a_message_and_a_hint() -> None:
    error = NotMigrated("what", "do")
    assert (error.message, error.hint, str(error)) == ("what", "do", "what")
    assert NotMigrated("what").hint == "Run `mailgres migrate`."


def test_an_error_without_a_docstring_has_its_name_as_message() -> None:
    class Bare(MailgresError):
        pass

    Bare.__doc__ = ""
    assert Bare.default_message() == "Bare"
