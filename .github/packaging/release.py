"""Prepares a release, as `.github/workflows/release.yml` calls it. Needs Python 3.9 and its standard library.

release.py sources OWNER/NAME [TAG]    fills in the address of the repository, before anything is built
release.py files OWNER/NAME DIST       adds checksums, installers, formula and recipe to the archives in DIST

Placeholders are OWNER/highwater, @OWNER@, @VERSION@ and @SHA256 FILE@. It leaves OWNER/highwater in docs as it is.
"""

import hashlib
import os
import re
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PLACEHOLDER = "OWNER/highwater"
README = "recorder/python/README.md"
# The sources that name the repository: what cargo, PyPI and VS Code show.
EXTENSION = "viewer/vscode/package.json"
SOURCES = ("Cargo.toml", "recorder/python/pyproject.toml", EXTENSION)
# Templates, and their names beside the archives.
TEMPLATES = {
    "install.sh": "highwater-installer.sh",
    "install.ps1": "highwater-installer.ps1",
    "highwater.rb": "highwater.rb",
    "recipe.yaml": "recipe.yaml",
}


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def write(path, text):
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write(text)


def version():
    """The version of the workspace, which is the only place where it stands."""
    return re.search(r'(?m)^\[workspace\.package\]\nversion = "([^"]+)"', read(os.path.join(ROOT, "Cargo.toml")))[1]


def prepare_sources(repository, tag=None):
    if tag is not None and tag != f"v{version()}":
        sys.exit(f"error: the tag is {tag}, and the version in Cargo.toml {version()}: they must be the same")
    for name in SOURCES:
        path = os.path.join(ROOT, name)
        write(path, read(path).replace(PLACEHOLDER, repository))
    extension = os.path.join(ROOT, EXTENSION)
    write(extension, read(extension).replace('"version": "0.0.0"', f'"version": "{version()}"'))
    readme = os.path.join(ROOT, README)
    write(readme, with_addresses(read(readme), repository, f"v{version()}"))
    for name in ("LICENSE-APACHE", "LICENSE-MIT"):
        shutil.copy(os.path.join(ROOT, name), os.path.dirname(readme))


def with_addresses(text, repository, tag):
    """Replaces links to files of the repository, which PyPI cannot follow, by addresses."""
    text = re.sub(r"(!\[[^\]]*\]\()\.\./\.\./", rf"\1https://raw.githubusercontent.com/{repository}/{tag}/", text)
    return re.sub(r"(\]\()\.\./\.\./", rf"\1https://github.com/{repository}/blob/{tag}/", text)


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for part in iter(lambda: file.read(1 << 20), b""):
            digest.update(part)
    return digest.hexdigest()


def add_files(repository, dist):
    sums = {name: sha256(os.path.join(dist, name)) for name in sorted(os.listdir(dist))}
    for template, name in TEMPLATES.items():
        text = read(os.path.join(HERE, template)).replace(PLACEHOLDER, repository).replace("@VERSION@", version())
        text = text.replace("@OWNER@", repository.split("/")[0])
        missing = sorted(set(re.findall(r"@SHA256 ([^@]+)@", text)) - set(sums))
        if missing:
            sys.exit(f"error: {template} names {', '.join(missing)}, which {dist} does not have")
        write(os.path.join(dist, name), re.sub(r"@SHA256 ([^@]+)@", lambda found: sums[found[1]], text))
    names = sorted(os.listdir(dist))
    write(os.path.join(dist, "SHA256SUMS"), "".join(f"{sha256(os.path.join(dist, name))}  {name}\n" for name in names))


def main(words):
    if len(words) < 2 or words[0] not in ("sources", "files") or not re.fullmatch(r"[\w.-]+/[\w.-]+", words[1]):
        sys.exit(__doc__)
    (prepare_sources if words[0] == "sources" else add_files)(*words[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
