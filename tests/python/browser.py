# SPDX-License-Identifier: Apache-2.0
"""Drives a headless Chromium by the DevTools protocol over pipes: load a page, click, type, take a picture."""
import base64
import json
import os
import shutil
import subprocess
import tempfile
import time

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Browser:
    """A page. `problems` has console errors, uncaught exceptions and requests other than for the page itself."""

    def __init__(self, path, width=1280, height=720, dark=False):
        self.profile, self.problems, self.count, self.rest = tempfile.TemporaryDirectory(), [], 0, b""
        (theirs, self.output), (self.input, out) = os.pipe(), os.pipe()
        self.process = subprocess.Popen(
            [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--remote-debugging-pipe",
             "--disable-background-networking", f"--user-data-dir={self.profile.name}", f"--window-size={width},{height}", "about:blank"],
            preexec_fn=lambda: (os.dup2(theirs, 103), os.dup2(out, 104), os.dup2(103, 3), os.dup2(104, 4)), close_fds=False,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(theirs), os.close(out)
        self.session = None
        page = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in "Page", "Runtime", "Log", "Network":
            self.call(domain + ".enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.url = "file://" + os.path.abspath(path)
        self.call("Page.navigate", url=self.url)
        self.wait("document.readyState === 'complete'")

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.process.kill()
        self.process.wait()
        os.close(self.input), os.close(self.output)
        shutil.rmtree(self.profile.name, ignore_errors=True)  # its helpers may still write there

    def read(self):
        while b"\0" not in self.rest:
            data = os.read(self.input, 1 << 16)
            if not data:
                raise RuntimeError("the browser ended")
            self.rest += data
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **params):
        self.count += 1
        message = {"id": self.count, "method": method, "params": params, **({"sessionId": self.session} if self.session else {})}
        os.write(self.output, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.read()
            if answer.get("id") == self.count:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.note(answer.get("method"), answer.get("params", {}))

    def note(self, event, params):
        if event == "Runtime.exceptionThrown":
            self.problems.append(params["exceptionDetails"].get("exception", {}).get("description", str(params)))
        elif event == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.problems.append(str(params["args"]))
        elif event == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.problems.append(params["entry"]["text"])
        elif event == "Network.requestWillBeSent" and not params["request"]["url"].startswith(("file:", "data:", "about:")):
            self.problems.append("request: " + params["request"]["url"])

    def run(self, code):
        """Returns the value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=code, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"].get("description"))
        return answer["result"].get("value")

    def wait(self, code, seconds=20):
        end = time.monotonic() + seconds
        while not self.run(f"!!({code})"):
            if time.monotonic() > end:
                raise TimeoutError(code)
            time.sleep(0.02)

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x, y, count=1):
        for number in range(1, count + 1):
            self.mouse("mousePressed", x, y, button="left", buttons=1, clickCount=number)
            self.mouse("mouseReleased", x, y, button="left", clickCount=number)

    def drag(self, x, y, to_x, to_y):
        self.mouse("mousePressed", x, y, button="left", buttons=1, clickCount=1)
        for part in 0.5, 1:
            self.mouse("mouseMoved", x + (to_x - x) * part, y + (to_y - y) * part, button="left", buttons=1)
        self.mouse("mouseReleased", to_x, to_y, button="left", clickCount=1)

    def wheel(self, x, y, by):
        self.mouse("mouseWheel", x, y, deltaX=0, deltaY=by)

    def type(self, text, enter=False):
        self.call("Input.insertText", text=text)
        if enter:
            for kind in "keyDown", "keyUp":
                self.call("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13)

    def picture(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
