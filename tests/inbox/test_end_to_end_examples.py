"""The examples for Playwright and Cypress on docs/testing.md run, against a real application.

Playwright runs as it is, with Debian's Chromium. Cypress comes as a binary of its own, so its
example runs with doubles of the four commands that it uses, which make the same requests.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from inbox.client import SECRET, Client
from inbox.shop import Shop, open_shop
from support.browser import CHROMIUM

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/testing.md").read_text(encoding="utf-8")
PLAYWRIGHT = ROOT / "node_modules/@playwright/test/cli.js"
NODE = shutil.which("node")
CONFIG = {
    "workers": 1,
    "timeout": 300_000,
    "expect": {"timeout": 60_000},
    "reporter": "line",
    "use": {"launchOptions": {"executablePath": CHROMIUM, "args": ["--no-sandbox"]}},
}
CYPRESS = """
const base = process.env.SHOP_URL;
const Cypress = { env: (name) => process.env[name] };
let work = Promise.resolve();
const later = (step) => { work = work.then(step); return work; };
const open = async (url, options) => {
  const answer = await fetch(new URL(url, base), options);
  if (!answer.ok) throw new Error(`${url}: ${answer.status}`);
  return answer;
};
const cy = {
  visit: (url) => later(() => open(url)),
  get: (selector) => ({
    type: (text) => later(() => {
      const name = selector.match(/^\\[name=(\\w+)\\]$/)[1];
      const typed = text.match(/^(.*)\\{enter\\}$/)[1];
      return open("/signup", { method: "POST", body: new URLSearchParams({ [name]: typed }) });
    }),
  }),
  request: ({ url, qs, headers }) => ({
    then: (use) => later(async () => {
      const answer = await open(`${url}?${new URLSearchParams(qs)}`, { headers });
      const body = await answer.json();
      setTimeout(() => use({ body }));
    }),
  }),
};
const it = (name, run) => run();
"""


def block(language: str) -> str:
    """The example of the page in a language; it waits longer, for a busy machine."""
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert 'wait: "5s"' in found
    return str(found).replace('wait: "5s"', 'wait: "30s"')


@pytest.fixture
def shop(database_url: str, worker: None) -> Iterator[Shop]:
    del worker
    with open_shop(database_url) as opened:
        yield opened


def run(command: list[str], shop: Shop, inbox: Client, directory: Path) -> None:
    variables = {
        "INBOX_URL": f"http://127.0.0.1:{inbox.port}",
        "INBOX_TOKEN": SECRET,
        "SHOP_URL": shop.base,
        "NODE_PATH": str(ROOT / "node_modules"),
        "HOME": str(directory),
    }
    done = subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(not PLAYWRIGHT.exists(), reason="@playwright/test is not installed: npm")
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_the_playwright_example_confirms_an_address(
    shop: Shop, stranger: Client, tmp_path: Path
) -> None:
    (tmp_path / "node_modules").symlink_to(ROOT / "node_modules")
    settings = CONFIG | {"use": {**CONFIG["use"], "baseURL": shop.base}}  # type: ignore[dict-item]
    (tmp_path / "playwright.config.js").write_text(f"module.exports = {json.dumps(settings)};\n")
    (tmp_path / "signup.spec.ts").write_text(block("ts"))
    run([str(NODE), str(PLAYWRIGHT), "test"], shop, stranger, tmp_path)
    assert len(shop.confirmed) == 1


@pytest.mark.skipif(NODE is None, reason="node is not installed")
def test_the_requests_of_the_cypress_example_confirm_an_address(
    shop: Shop, stranger: Client, tmp_path: Path
) -> None:
    (tmp_path / "signup.js").write_text(CYPRESS + block("js"))
    run([str(NODE), "signup.js"], shop, stranger, tmp_path)
    assert len(shop.confirmed) == 1
