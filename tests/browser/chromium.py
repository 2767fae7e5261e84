"""Headless Chromium spoken to over two pipes (the DevTools protocol): no driver, no library."""

import json
import os
import select
import shutil
import subprocess
import time

PROGRAM = next((p for p in ("chromium", "chromium-browser", "google-chrome") if shutil.which(p)), None)


class Chromium:
    """One browser with one page. What the page logs, throws and asks of the network is kept."""

    def __init__(self, profile):
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()

        def as_three_and_four():
            # Chromium reads commands from descriptor 3 and answers on 4; move ours out of the way first.
            reading, writing = os.dup2(to_browser, 100), os.dup2(from_browser, 101)
            os.dup2(reading, 3)
            os.dup2(writing, 4)

        self.process = subprocess.Popen(
            [PROGRAM, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run",
             "--disable-extensions", "--disable-background-networking", f"--user-data-dir={profile}", "about:blank"],
            preexec_fn=as_three_and_four, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_browser)
        os.close(from_browser)
        self._buffer, self._number, self.events = b"", 0, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = None
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    session = None

    def call(self, method, **parameters):
        """Ask and wait for the answer; events that come in between are kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next(60)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.events.append(answer)

    def _next(self, seconds):
        deadline = time.monotonic() + seconds
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError("Chromium does not answer")
            piece = os.read(self._read, 1 << 20)
            if not piece:
                raise RuntimeError("Chromium has gone")
            self._buffer += piece
        line, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(line)

    def open(self, address):
        """Go there and wait until it has loaded; gives what went wrong and what was fetched."""
        self.events = []
        self.call("Page.navigate", url=address)
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events):
            self.events.append(self._next(60))
        self.run("document.fonts.ready.then(() => 1)")
        return self.complaints(), self.fetched()

    def complaints(self):
        """Errors of the console, exceptions, and whatever could not be loaded."""
        found = []
        for event in self.events:
            method, content = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                found.append(content["exceptionDetails"]["text"])
            elif method == "Runtime.consoleAPICalled" and content["type"] in ("error", "warning", "assert"):
                found.append(str(content["args"]))
            elif method == "Log.entryAdded" and content["entry"]["level"] in ("error", "warning"):
                found.append(content["entry"]["text"])
            elif method == "Network.loadingFailed" and not content.get("canceled"):
                found.append(content["errorText"])
        return found

    def fetched(self):
        """The addresses the page asked for."""
        return [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]

    def run(self, code):
        """The value of a JavaScript expression, promises awaited."""
        answer = self.call("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"].get("description", "exception"))
        return answer["result"].get("value")

    def press(self, key, code):
        """A key, as a person presses it."""
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)

    def scheme(self, name):
        """light or dark."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def close(self):
        """End it."""
        self.process.kill()
        self.process.wait()
        os.close(self._write)
        os.close(self._read)
