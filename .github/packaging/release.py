"""Prepares a release, as `.github/workflows/release.yml` calls it. Needs Python 3.9 and its standard library.

release.py sources OWNER/NAME [TAG]    fills in the address of the repository, before anything is built
release.py licences [TARGET…]          writes LICENSE-THIRD-PARTY: the licences of the crates in the program, of all
                                       targets or of these; needs cargo
release.py files OWNER/NAME DIST       adds checksums, installers, formula and recipe to the archives in DIST

Placeholders are OWNER/highwater, @OWNER@, @VERSION@ and @SHA256 FILE@. It leaves OWNER/highwater in docs as it is.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
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
    """Returns the version of the workspace, the only place where it is defined."""
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


def write_licences(*targets):
    text = third_party(targets)
    for folder in (ROOT, os.path.dirname(os.path.join(ROOT, README))):
        write(os.path.join(folder, "LICENSE-THIRD-PARTY"), text)


def third_party(targets):
    """Returns the licences of the crates compiled into the program. Each text occurs once, after the names of its
    crates."""
    crates = {}
    for crate in crates_in_program(targets):
        name = f"{crate['name']} {crate['version']} ({crate['license']})"
        texts = licence_texts(os.path.dirname(crate["manifest_path"]), crate["license"])
        authors = ", ".join(crate["authors"]) or "its authors"
        for text in texts or [f"Copyright {authors}. {crate['repository'] or crate['name']}"]:
            crates.setdefault(text, []).append(name)
    head = "Highwater contains these crates, under the licences below. If a crate offers MIT, MIT applies.\n"
    parts = ["\n".join([*sorted(set(names)), "", text, ""]) for text, names in crates.items()]
    return ("\n" + "=" * 100 + "\n").join([head, *sorted(parts)])


def crates_in_program(targets):
    """Returns the third-party crates on which `highwater` and the libraries in it depend, except those used only to
    build or test."""
    platforms = [word for target in targets for word in ("--filter-platform", target)]
    command = ["cargo", "metadata", "--locked", "--format-version", "1", *platforms]
    found = json.loads(subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout)
    packages = {package["id"]: package for package in found["packages"]}
    nodes = {node["id"]: node["deps"] for node in found["resolve"]["nodes"]}
    waiting, seen = [id for id in found["workspace_members"] if packages[id]["name"] == "highwater"], set()
    while waiting:
        id = waiting.pop()
        if id in seen:
            continue
        seen.add(id)
        # The libraries in the program are dependencies of its build script.
        kinds = {None} if packages[id]["source"] else {None, "build"}
        waiting += [dep["pkg"] for dep in nodes[id] if kinds & {kind["kind"] for kind in dep["dep_kinds"]}]
    crates = [packages[id] for id in seen if packages[id]["source"]]
    return sorted(crates, key=lambda crate: (crate["name"], crate["version"]))


def licence_texts(folder, licence):
    """Returns the licence texts in the folder of a crate. If there are several to choose from, returns that of MIT."""
    names = [name for name in sorted(os.listdir(folder)) if re.match("(?i)(un)?licen[sc]e|copy|notice", name)]
    mit = [name for name in names if re.search("(?i)mit|notice", name)]
    if " AND " not in licence and any("mit" in name.lower() for name in mit):
        names = mit
    # Fonts have their licences beside them.
    fonts = os.path.join(folder, "fonts")
    if os.path.isdir(fonts):
        names += [os.path.join("fonts", name) for name in sorted(os.listdir(fonts)) if name.endswith(".txt")]
    paths = [os.path.join(folder, name) for name in names]
    return [read(path).replace("\r\n", "\n").strip() for path in paths if os.path.isfile(path)]


def with_addresses(text, repository, tag):
    """Replaces links to files of the repository by addresses, since PyPI cannot follow relative links."""
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
    if words[:1] == ["licences"]:
        return write_licences(*words[1:])
    if len(words) < 2 or words[0] not in ("sources", "files") or not re.fullmatch(r"[\w.-]+/[\w.-]+", words[1]):
        sys.exit(__doc__)
    (prepare_sources if words[0] == "sources" else add_files)(*words[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
