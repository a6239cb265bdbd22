"""A page in headless Chromium, over its debugging pipe, with Python's standard library only.

    with Browser() as browser:
        page = browser.open(path, width=390, dark=True)
        page.run("document.title")
        page.errors                        # what the console has said
"""
import base64
import json
import os
import shutil
import subprocess
import tempfile


def program():
    """Where Chromium is, or None."""
    for name in ("chromium", "chromium-browser", "google-chrome", "chrome"):
        if shutil.which(name):
            return shutil.which(name)
    return None


class Browser:
    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="trireme_browser_")
        to_read, self.to = os.pipe()
        self.read_from, from_write = os.pipe()
        command = [program(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                   "--no-first-run", "--user-data-dir=" + self.folder, "--remote-debugging-pipe", "about:blank"]
        # The browser reads commands from descriptor 3 and writes to 4.
        self.process = subprocess.Popen(["bash", "-c", f'exec "$@" 3<&{to_read} 4>&{from_write}', "bash"] + command,
                                        pass_fds=(to_read, from_write), stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(from_write)
        self.buffer = b""
        self.number = 0
        self.pages = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.call("Browser.close")
        except EOFError:
            pass
        self.process.wait()
        os.close(self.to)
        os.close(self.read_from)
        shutil.rmtree(self.folder, ignore_errors=True)

    def message(self):
        while b"\0" not in self.buffer:
            read = os.read(self.read_from, 1 << 16)
            if not read:
                raise EOFError("the browser has ended")
            self.buffer += read
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, session=None, **parameters):
        self.number += 1
        command = {"id": self.number, "method": method, "params": parameters}
        if session:
            command["sessionId"] = session
        os.write(self.to, json.dumps(command).encode() + b"\0")
        while True:
            message = self.message()
            if message.get("id") == self.number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self.note(message)

    def note(self, message):
        page = self.pages.get(message.get("sessionId"))
        if page is not None:
            page.note(message)

    def open(self, path, width=1280, height=900, dark=False, scale=1):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self.pages[session] = Page(self, session)
        for domain in ("Runtime", "Log", "Page"):
            page.call(domain + ".enable")
        page.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale,
                  mobile=width < 600)
        page.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        page.call("Network.enable")
        page.call("Page.navigate", url="file://" + os.path.abspath(path).replace(" ", "%20"))
        while not page.loaded:
            self.note(self.message())
        return page


class Page:
    def __init__(self, browser, session):
        self.browser, self.session = browser, session
        self.loaded, self.errors, self.requests = False, [], []

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def note(self, message):
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Page.loadEventFired":
            self.loaded = True
        elif method == "Runtime.exceptionThrown":
            self.errors.append(parameters["exceptionDetails"].get("exception", {}).get("description", "an exception"))
        elif method == "Runtime.consoleAPICalled" or method == "Log.entryAdded":
            self.errors.append(json.dumps(parameters))
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])

    def run(self, script):
        """The value of an expression."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"]["exception"]["description"])
        return result["result"].get("value")

    def frame(self):
        """Waits until what was asked for is drawn."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def key(self, name):
        code = {"key": name, "text": name} if len(name) == 1 else {"key": name}
        self.call("Input.dispatchKeyEvent", type="keyDown", **code)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=name)

    def point(self, x, y, kind="mouseMoved", **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x, y):
        self.point(x, y)
        self.point(x, y, "mousePressed", button="left", clickCount=1)
        self.point(x, y, "mouseReleased", button="left", clickCount=1)

    def screenshot(self, path, selector=None, whole=False):
        self.frame()
        parameters = {}
        if selector or whole:
            box = self.run(f"(() => {{ const b = document.querySelector({json.dumps(selector or 'body')}).getBoundingClientRect();"
                           " return [b.x + scrollX, b.y + scrollY, b.width, b.height]; })()")
            parameters = {"captureBeyondViewport": True,
                          "clip": dict(zip(("x", "y", "width", "height", "scale"), box + [1]))}
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.captureScreenshot", format="png", **parameters)["data"]))
