"""The app for browsers, served by the `highwater` program."""

from __future__ import annotations

import atexit
import re
import subprocess

from . import _binary

_URL = re.compile(r"https?://\S+")


class Server:
    """Serves a recording until `stop()` or the end of the program. Can be used as a context manager.

    Attributes:
        url: the address to open in a browser.

    Raises:
        HighwaterError: the program is not installed, or cannot serve the file.
    """

    def __init__(self, path: str, *, port: int | None = None, host: str | None = None) -> None:
        self.url = ""
        arguments = [_binary.path(), "serve", path]
        for name, value in (("--port", port), ("--host", host)):
            arguments += [] if value is None else [name, str(value)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)
        found = None
        for line in self._process.stdout or ():
            found = _URL.search(line)
            if found:
                break
        if found is None:
            message = self._process.communicate()[1].strip()
            raise _binary.HighwaterError(message or "highwater serve: no address was printed")
        self.url = found.group()
        atexit.register(self.stop)

    def stop(self) -> None:
        """Stops the server."""
        atexit.unregister(self.stop)
        self._process.terminate()
        self._process.communicate()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<server at {self.url}>"
