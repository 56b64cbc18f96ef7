"""Checks a built site for broken links and anchors, unreachable or heavy pages, other hosts, and unprocessed
Markdown."""

import os
import re
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

# What a page, other than the gallery's, may weigh with everything that it loads when it is opened.
MAX_PAGE_BYTES = 1 << 20
# How a paragraph looks whose Markdown the site does not read as GitHub does.
UNRENDERED = re.compile(r"^\s*(?:[-*] |\d+\. |\|.*\||```)", re.MULTILINE)
# What a style sheet loads from another host.
ELSEWHERE = re.compile(r"""(?:@import\s*(?:url\()?|url\()\s*["']?((?:https?:)?//[^"')\s]+)""")


class Page(HTMLParser):
    """The links, anchors, resources and paragraphs of a page."""

    def __init__(self, path):
        super().__init__()
        self.anchors, self.links, self.resources, self.unrendered = set(), [], set(), []
        self._paragraph = None
        with open(path, encoding="utf-8") as file:
            self.feed(file.read())

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.anchors |= {values[key] for key in ("id", "name") if values.get(key)}
        if tag == "a" and values.get("href") is not None:
            self.links.append(values["href"])
        elif tag == "link" and values.get("rel") not in ("canonical", "next", "prev", "alternate"):
            self.resources.add(values["href"])
        elif values.get("src") and tag != "a":
            self.resources.add(values["src"])
        elif tag == "p":
            self._paragraph = ""

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)

    def handle_data(self, data):
        if self._paragraph is not None:
            self._paragraph += data

    def handle_endtag(self, tag):
        if tag == "p" and self._paragraph is not None:
            if UNRENDERED.search(self._paragraph):
                self.unrendered.append(self._paragraph.strip()[:80])
            self._paragraph = None


def files(folder, ending):
    """Returns the files in a folder, by path within it."""
    found = (os.path.join(base, name) for base, _, names in os.walk(folder) for name in names if name.endswith(ending))
    return sorted(os.path.relpath(path, folder).replace(os.sep, "/") for path in found)


def target(page, address):
    """Returns the file and the anchor to which an address on a page leads; None for other hosts and schemes."""
    parts = urlsplit(address)
    if parts.scheme or parts.netloc:
        return None
    path = os.path.normpath(os.path.join(os.path.dirname(page), unquote(parts.path))) if parts.path else page
    path = os.path.join(path, "index.html") if parts.path.endswith(("/", ".")) else path
    return path.replace(os.sep, "/").removeprefix("./"), unquote(parts.fragment)


def problems(html, live=()):
    """Returns the problems of the site in a folder. `live` are pages with recordings, which are not checked."""
    # Addresses on the page for what is not found are absolute, since it is shown at any address.
    ours = [path for path in files(html, ".html") if path not in live and path != "404.html"]
    pages = {path: Page(os.path.join(html, path)) for path in ours}
    # The search of each page loads its index and its program.
    every = [*files(html, "search.json"), *(path for path in files(html, ".js") if "/workers/" in path)]
    reached = {"index.html"}
    for path, page in pages.items():
        for address in page.links:
            found = target(path, address)
            if found is None:
                continue
            file, anchor = found
            if not os.path.isfile(os.path.join(html, file)):
                yield f"{path}: link to {address}: there is no such file"
            elif anchor and file in pages and anchor not in pages[file].anchors:
                yield f"{path}: link to {address}: the page has no such heading"
            if file != path:
                reached.add(file)
        bytes_ = sum(os.path.getsize(os.path.join(html, file)) for file in (path, *every))
        for address in sorted(page.resources):
            found = target(path, address)
            if found is None:
                if not address.startswith("data:"):
                    yield f"{path}: loads {address} from another host"
            elif not os.path.isfile(os.path.join(html, found[0])):
                yield f"{path}: loads {address}: there is no such file"
            else:
                bytes_ += os.path.getsize(os.path.join(html, found[0]))
        if bytes_ > MAX_PAGE_BYTES and not path.startswith("gallery/"):
            yield f"{path}: {bytes_ / 2**20:.2f} MiB with its resources, more than the limit of 1 MiB"
        for text in page.unrendered:
            yield f"{path}: Markdown that is shown as text; it needs an empty line or four spaces before it: {text!r}"
    for path in [*pages, *live]:
        if path not in reached:
            yield f"{path}: no page links to it"
    for path in files(html, ".css"):
        with open(os.path.join(html, path), encoding="utf-8") as file:
            for address in ELSEWHERE.findall(file.read()):
                yield f"{path}: loads {address} from another host"


def missing_pages(root, pages):
    """Returns the pages of the documentation that are missing in the navigation."""
    for path in files(os.path.join(root, "docs"), ".md"):
        if f"docs/{path}" not in pages:
            yield f"docs/{path}: missing in the navigation of docs/site/zensical.toml"
