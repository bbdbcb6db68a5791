"""A real Chromium, driven over the WebDriver protocol by chromedriver: Debian's packages."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

CHROMIUM = shutil.which("chromium")
DRIVER = shutil.which("chromedriver")
MISSING = "chromium and chromedriver are not installed"
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
ARGUMENTS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    # The tests are about the policies of pages: rules of the browser must not hide a gap in them.
    "--disable-features=LocalNetworkAccessChecks,BlockInsecurePrivateNetworkRequests",
    # Nothing but this machine can be looked up: an email that loads something would be seen.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
]
DEADLINE = 60.0
KEYS = {"Tab": "\ue004", "Enter": "\ue007", "Escape": "\ue00c"}


class Browser:
    """A window of the browser; every call is one of the protocol."""

    def __init__(self, address: str, session: str) -> None:
        self._session = f"{address}/session/{session}"

    def open(self, url: str) -> None:
        """Load a page."""
        self._call("POST", "/url", {"url": url})

    @property
    def url(self) -> str:
        """The address that it shows."""
        return str(self._call("GET", "/url"))

    def run(self, script: str, *arguments: Any) -> Any:
        """Run JavaScript in the page."""
        return self._call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def run_async(self, script: str, *arguments: Any) -> Any:
        """Run JavaScript that calls its last argument when it is done."""
        return self._call("POST", "/execute/async", {"script": script, "args": list(arguments)})

    def text(self, selector: str = "body") -> str:
        """The text that people see in an element."""
        return str(
            self.run("return document.querySelector(arguments[0])?.innerText", selector) or ""
        )

    def find(self, selector: str) -> str:
        """Return the id of an element."""
        found = self._call("POST", "/element", {"using": "css selector", "value": selector})
        return str(found[ELEMENT])

    def click(self, selector: str) -> None:
        """Click as a person does."""
        self._call("POST", f"/element/{self.find(selector)}/click", {})

    def type(self, selector: str, text: str) -> None:
        """Type into a field."""
        self._call("POST", f"/element/{self.find(selector)}/value", {"text": text})

    def press(self, *keys: str) -> None:
        """Press keys, one after another."""
        steps = []
        for key in keys:
            value = KEYS.get(key, key)
            steps += [{"type": "keyDown", "value": value}, {"type": "keyUp", "value": value}]
        actions = [{"type": "key", "id": "keyboard", "actions": steps}]
        self._call("POST", "/actions", {"actions": actions})

    def enter_frame(self, selector: str) -> None:
        """Let further calls be about the document in a frame."""
        self._call("POST", "/frame", {"id": {ELEMENT: self.find(selector)}})

    def leave_frame(self) -> None:
        """Let further calls be about the page again."""
        self._call("POST", "/frame", {"id": None})

    def cdp(self, command: str, **parameters: Any) -> Any:
        """Call the protocol of the developer tools."""
        return self._call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def resize(self, width: int, height: int = 900, scale: float = 1) -> None:
        """Make the window this large."""
        self.cdp(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=False,
        )

    def prefer(self, scheme: str) -> None:
        """Prefer light or dark."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.cdp("Emulation.setEmulatedMedia", features=[feature])

    def use_scripts(self, *, enabled: bool) -> None:
        """Switch the page's JavaScript on or off."""
        self.cdp("Emulation.setScriptExecutionDisabled", value=not enabled)

    def save_downloads_in(self, directory: Path) -> None:
        """Keep what it downloads from now on."""
        self.cdp("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(directory))

    def screenshot(self, path: Path) -> None:
        """Save what it shows."""
        data = self.cdp("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(data))

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        """Wait for a condition, and fail if it does not come true.

        A question that meets a page while it is replaced is asked again.
        """
        deadline = time.monotonic() + DEADLINE
        refused = ""
        while True:
            try:
                if found := condition():
                    return found
            except HTTPError as error:
                refused = error.read().decode(errors="replace")
            if time.monotonic() >= deadline:
                raise AssertionError(f"not within {DEADLINE} s: {what}\n{refused}\n{self.text()}")
            time.sleep(0.02)

    def close(self) -> None:
        """End the browser."""
        self._call("DELETE", "")

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        return call(method, self._session + path, body)


def call(method: str, url: str, body: dict[str, Any] | None = None) -> Any:
    """Call chromedriver."""
    data = None if body is None else json.dumps(body).encode()
    request = Request(url, data, {"Content-Type": "application/json"}, method=method)  # noqa: S310
    with urlopen(request, timeout=60) as answer:  # noqa: S310 - chromedriver, on this machine
        return json.load(answer)["value"]


@contextmanager
def driver() -> Iterator[str]:
    """Run chromedriver; yield its address."""
    assert DRIVER is not None, MISSING
    with subprocess.Popen(
        [DRIVER, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if found := re.search(r"successfully on port (\d+)", line):
                    break
            else:
                raise AssertionError("chromedriver ended")
            yield f"http://127.0.0.1:{found[1]}"
        finally:
            process.terminate()


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """Run a browser with a profile of its own."""
    with driver() as address:
        options = {"binary": CHROMIUM, "args": [*ARGUMENTS, f"--user-data-dir={profile}"]}
        wanted = {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}}
        started = Browser(address, call("POST", f"{address}/session", wanted)["sessionId"])
        try:
            yield started
        finally:
            started.close()
