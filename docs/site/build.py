"""Builds the documentation site in target/site/html, and checks it.

    python docs/site/build.py [--gallery FOLDER] [--url URL] [--repository URL]

needs the packages of requirements.txt, and no network.
"""

import argparse
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib

import check

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
FOLDER = os.path.join(ROOT, "target", "site")
# Pages that are made here or by gallery.py.
GALLERY = "gallery/README.md"
SCHEMAS = "docs/schema/README.md"
# Folders whose files the site has as they are.
CARRIED = ("docs/images", "docs/schema", "docs/tasks/programs")
NOT_SEARCHED = "---\nsearch:\n  exclude: true\n---\n"


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def sections(nav, title=None):
    """Returns the sections of the navigation with their pages: (title, [(title, path)]). Top-level pages have no
    title."""
    pages = [(name, path) for entry in nav for name, path in entry.items() if isinstance(path, str)]
    inner = [
        section
        for entry in nav
        for name, path in entry.items()
        if not isinstance(path, str)
        for section in sections(path, name)
    ]
    return [(title, pages), *inner]


def with_links(text, page, pages, repository):
    """Returns the text of a page. Links to files that are not pages point to the repository, or become plain text
    without a repository."""

    def replaced(found):
        label, target = found[1], found[2]
        path, hash_, anchor = target.partition("#")
        if not path or "://" in path:
            return found[0]
        inside = os.path.normpath(os.path.join(os.path.dirname(page), path))
        if inside in pages or os.path.dirname(inside) in CARRIED or not os.path.exists(os.path.join(ROOT, inside)):
            return found[0]
        as_page = os.path.join(inside, "README.md")
        if as_page in pages:
            return f"[{label}]({os.path.relpath(as_page, os.path.dirname(page) or '.')}{hash_}{anchor})"
        kind = "tree" if os.path.isdir(os.path.join(ROOT, inside)) else "blob"
        return f"[{label}]({repository}/{kind}/main/{inside}{hash_}{anchor})" if repository else label

    code = re.compile(r"(^```.*?^```$|`[^`\n]*`)", re.MULTILINE | re.DOTALL)
    link = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
    # A label may be code, so that code is replaced by a mark first.
    kept = []

    def keep(found):
        kept.append(found[0])
        return f"\x00{len(kept) - 1}\x00"

    return re.sub(r"\x00(\d+)\x00", lambda found: kept[int(found[1])], link.sub(replaced, code.sub(keep, text)))


def stage(gallery, url, repository):
    """Copies the pages, their pictures and the configuration. Returns the configuration."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    config = read(HERE, "zensical.toml")
    if not gallery:
        config = "".join(line for line in config.splitlines(keepends=True) if GALLERY not in line)
    if url:
        config = config.replace("[project]\n", f'[project]\nsite_url = "{url.rstrip("/")}/"\n', 1)
    write(os.path.join(FOLDER, "zensical.toml"), config)
    project = tomllib.loads(config)["project"]
    pages = {path for _, entries in sections(project["nav"]) for _, path in entries}
    for page in pages - {GALLERY, SCHEMAS}:
        head = NOT_SEARCHED if page in project["extra"]["not_searched"] else ""
        write(os.path.join(FOLDER, "pages", page), head + with_links(read(ROOT, page), page, pages, repository))
    shutil.copy(os.path.join(HERE, "site.css"), os.path.join(FOLDER, "pages"))
    for folder in CARRIED:
        shutil.copytree(os.path.join(ROOT, folder), os.path.join(FOLDER, "pages", folder))
    write(os.path.join(FOLDER, "pages", SCHEMAS), schemas())
    if gallery:
        shutil.copytree(gallery, os.path.join(FOLDER, "pages", "gallery"))
    return project


def schemas():
    """The page that lists the JSON Schemas."""
    names = check.files(os.path.join(ROOT, "docs", "schema"), ".json")
    titles = {name: json.loads(read(ROOT, "docs", "schema", name))["title"] for name in names}
    lines = [
        "# JSON Schemas",
        "",
        "What `--json` prints, a schema for each command ([more](../commands.md#json)).",
        "",
        "| command | schema |",
        "|---|---|",
        *(f"| `{title}` | [{name}]({name}) |" for name, title in titles.items()),
        "",
    ]
    return "\n".join(lines)


def first_sentence(text):
    """Returns the description of a page: its first sentence, without links."""
    for paragraph in re.split(r"\n\s*\n", re.sub(r"(?ms)^```.*?^```$", "", text)):
        if paragraph.strip() and not paragraph.lstrip().startswith(("#", "!", "|", "<", "-")):
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(paragraph.split())).replace("**", "")
            return re.split(r"(?<=\.)\s", plain)[0]
    return ""


def llms(project, found, url):
    """Returns llms.txt, which lists every page as Markdown by section of the navigation (https://llmstxt.org)."""
    lines = [f"# {project['site_name']}", "", f"> {project['site_description']}", ""]
    for title, entries in found:
        lines += [f"## {title}", ""] if title else []
        for name, page in entries:
            text = read(FOLDER, "pages", page).removeprefix(NOT_SEARCHED)
            address = f"{url.rstrip('/')}/{page}" if url else page
            lines.append(f"- [{name}]({address}): {first_sentence(text)}")
        lines.append("")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gallery", help="the folder that gallery.py has written")
    parser.add_argument("--url", help="the address of the site, for llms.txt and search engines")
    parser.add_argument("--repository", help="the address of the repository, for links to its files")
    options = parser.parse_args()
    if importlib.util.find_spec("zensical") is None:
        sys.exit("error: Zensical is not installed: pip install -r docs/site/requirements.txt")
    project = stage(options.gallery, options.url, options.repository)
    subprocess.run([sys.executable, "-m", "zensical", "build", "--strict"], cwd=FOLDER, check=True)
    html = os.path.join(FOLDER, "html")
    found = sections(project["nav"])
    pages = [page for _, entries in found for _, page in entries]
    for page in pages:
        write(os.path.join(html, page), read(FOLDER, "pages", page).removeprefix(NOT_SEARCHED))
    write(os.path.join(html, "llms.txt"), llms(project, found, options.url))
    live = [f"gallery/{name}" for name in check.files(os.path.join(html, "gallery"), ".html") if name != "index.html"]
    wrong = [*check.missing_pages(ROOT, pages), *check.problems(html, live)]
    print(*wrong, sep="\n", file=sys.stderr)
    print(f"{html}: {len(pages)} pages, {len(live)} live recordings, {len(wrong)} problems")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
