"""What the pages in a browser have in common: the inbox and the operator's page stand on it.

Who calls (`access`), how pages are written (`rendering`), forms and addresses (`requests`), what
failed requests get (`problems`), short transactions on a few connections (`pool`) in threads of
their own (`limits`), and the closed frame of an email (`frame`).
"""

from __future__ import annotations

from mailgres.web.access import LOOPBACK, Hosts, Signer, is_own_origin, is_same
from mailgres.web.limits import RETRY_SOON, AtATime, in_thread
from mailgres.web.pool import TOO_SLOW, Pool
from mailgres.web.problems import Problems, json_problem
from mailgres.web.rendering import HEADERS, Pages, files_in, static_route
from mailgres.web.requests import (
    NotAllowed,
    as_number,
    as_time,
    as_uuid,
    cookie_path,
    path_number,
    read_body,
    read_form,
    relative,
    slash_added,
    with_slash,
)

__all__ = [
    "HEADERS",
    "LOOPBACK",
    "RETRY_SOON",
    "TOO_SLOW",
    "AtATime",
    "Hosts",
    "NotAllowed",
    "Pages",
    "Pool",
    "Problems",
    "Signer",
    "as_number",
    "as_time",
    "as_uuid",
    "cookie_path",
    "files_in",
    "in_thread",
    "is_own_origin",
    "is_same",
    "json_problem",
    "path_number",
    "read_body",
    "read_form",
    "relative",
    "slash_added",
    "static_route",
    "with_slash",
]
