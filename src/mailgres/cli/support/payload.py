"""A payload on the command line: JSON, @FILE or - for standard input."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from mailgres.errors import InvalidPayload

_AROUND = 20


def read_payload(given: str) -> dict[str, Any]:
    """Read a payload; an error shows the place where it is not JSON."""
    try:
        text = sys.stdin.read() if given == "-" else given
        if given.startswith("@"):
            text = Path(given[1:]).read_text(encoding="utf-8")
        value = json.loads(text)
    except OSError as error:
        raise InvalidPayload(f"{given[1:]}: {error.strerror}", "Name a file with JSON.") from None
    except json.JSONDecodeError as error:
        raise InvalidPayload(f"The payload is not JSON: {_where(error)}") from None
    except (ValueError, RecursionError) as error:
        raise InvalidPayload(f"The payload is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidPayload
    return value


def _where(error: json.JSONDecodeError) -> str:
    line = error.doc.split("\n")[error.lineno - 1]
    at = error.colno - 1
    before, after = line[max(at - _AROUND, 0) : at], line[at : at + _AROUND]
    place = f"line {error.lineno}, character {error.colno}"
    return f"{error.msg} at {place}: {before}-->{after}"
