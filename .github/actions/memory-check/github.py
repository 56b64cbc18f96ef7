"""GitHub's interfaces for a step of a workflow: the event, output files, annotations, and the REST API."""

import json
import os
import urllib.error
import urllib.parse
import urllib.request


class Problem(Exception):
    """An error that the user can correct. Only the message is printed."""


def write_line(variable, text):
    """Appends to a file that GitHub reads, such as GITHUB_OUTPUT, GITHUB_PATH or GITHUB_STEP_SUMMARY."""
    if "\n" in text and variable != "GITHUB_STEP_SUMMARY":
        raise Problem(f"{text!r} contains a line break, which {variable} cannot contain")
    if os.environ.get(variable):
        with open(os.environ[variable], "a", encoding="utf-8") as file:
            file.write(text + "\n")


def annotate(kind, text):
    """Shows an annotation on the page of the workflow run: `::error::…`."""
    print(f"::{kind}::" + text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A"), flush=True)


class Event:
    """The event that started the workflow."""

    def __init__(self):
        payload = {}
        if os.environ.get("GITHUB_EVENT_PATH"):
            with open(os.environ["GITHUB_EVENT_PATH"], encoding="utf-8") as file:
                payload = json.load(file)
        name = os.environ.get("GITHUB_EVENT_NAME", "")
        if name == "pull_request_target":
            why = "it would run the code of a pull request with a token that can write"
            raise Problem(f"the event pull_request_target is not supported: {why}; use `on: pull_request`")
        pull_request, merge_group = payload.get("pull_request") or {}, payload.get("merge_group") or {}
        head = pull_request.get("head") or {}
        self.repository = os.environ.get("GITHUB_REPOSITORY", "")
        self.default_branch = (payload.get("repository") or {}).get("default_branch") or "main"
        self.pull_request = pull_request.get("number") if name == "pull_request" else None
        # A fork that was deleted has no repository.
        self.is_from_fork = (head.get("repo") or {}).get("full_name") != self.repository
        self.commit = head.get("sha") or os.environ.get("GITHUB_SHA", "")
        # Whether the recordings are those of a change to a branch; otherwise they are the branch's own.
        self.is_change = name in ("pull_request", "merge_group")
        base = os.environ.get("GITHUB_BASE_REF") or (merge_group.get("base_ref") or "").replace("refs/heads/", "", 1)
        self.branch = base if self.is_change else os.environ.get("GITHUB_REF_NAME", "")
        self.is_of_branch = not self.is_change and os.environ.get("GITHUB_REF_TYPE") == "branch"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_arguments):
        return None


class Api:
    """The REST API of one repository. Uses the token if there is one."""

    def __init__(self, repository):
        base = os.environ.get("GITHUB_API_URL", "https://api.github.com").rstrip("/")
        self._base = f"{base}/repos/{urllib.parse.quote(repository)}"
        self._opener = urllib.request.build_opener(_NoRedirect)

    def _open(self, method, path, body=None, timeout=60):
        request = urllib.request.Request(f"{self._base}/{path}", method=method)
        request.add_header("Accept", "application/vnd.github+json")
        request.add_header("X-GitHub-Api-Version", "2022-11-28")
        if os.environ.get("GITHUB_TOKEN"):
            request.add_header("Authorization", f"Bearer {os.environ['GITHUB_TOKEN']}")
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        return self._opener.open(request, timeout=timeout)

    def call(self, method, path, body=None):
        """Returns the response as JSON."""
        with self._open(method, path, body) as answer:
            return json.load(answer)

    def rows(self, path, key=None):
        """Yields the rows of a paginated list, at most 2,000."""
        separator = "&" if "?" in path else "?"
        for page in range(1, 21):
            answer = self.call("GET", f"{path}{separator}per_page=100&page={page}")
            rows = answer[key] if key else answer
            yield from rows
            if len(rows) < 100:
                return

    def download(self, path):
        """Returns a file. GitHub responds with the address of a storage service, which must not receive the token."""
        try:
            with self._open("GET", path, timeout=600) as answer:
                return answer.read()
        except urllib.error.HTTPError as error:
            if error.code not in (301, 302, 303, 307, 308):
                raise
            with urllib.request.urlopen(error.headers["Location"], timeout=600) as answer:
                return answer.read()


def advice(error, permission):
    """Returns the end of a message about a failed request: the permission that the job may lack."""
    is_refusal = isinstance(error, urllib.error.HTTPError) and error.code in (401, 403, 404)
    return f"; does the job have `permissions: {permission}`?" if is_refusal else ""
