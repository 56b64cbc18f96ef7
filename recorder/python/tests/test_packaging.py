"""What a release is made of: names, addresses and checksums in `.github/packaging`, and the rules of the workflows."""

import glob
import hashlib
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
PACKAGING = os.path.join(".github", "packaging")
PLACEHOLDERS = r"OWNER|@VERSION@|@SHA256"


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


def version():
    return re.search(r'\[workspace\.package\]\nversion = "(.+?)"', read("Cargo.toml"))[1]


def archives():
    """The archives that release.yml makes."""
    targets = re.findall(r"\{ runner: .*?, target: ([\w-]+)", read(".github", "workflows", "release.yml"))
    assert len(targets) == 7
    return {f"highwater-{target}.tar.gz" for target in targets}


def program(folder):
    """A program for the archives, which prints its name."""
    path = os.path.join(folder, "highwater")
    with open(path, "w", encoding="utf-8") as file:
        file.write("#!/bin/sh\necho highwater of the archive\n")
    os.chmod(path, 0o755)
    return path


@pytest.fixture
def release(tmp_path):
    """Runs release.py in a copy of the files that it changes: `release(command, *arguments)`."""
    names = [
        "Cargo.toml",
        "LICENSE-MIT",
        "LICENSE-APACHE",
        "recorder/python/pyproject.toml",
        "recorder/python/README.md",
        "viewer/vscode/package.json",
    ]
    for name in [*names, *glob.glob(os.path.join(PACKAGING, "*"), root_dir=ROOT)]:
        os.makedirs(tmp_path / "copy" / os.path.dirname(name), exist_ok=True)
        shutil.copy(os.path.join(ROOT, name), tmp_path / "copy" / name)

    def release(*words):
        command = [sys.executable, os.path.join(tmp_path, "copy", PACKAGING, "release.py"), *words]
        return subprocess.run(command, capture_output=True, text=True)

    release.copy = tmp_path / "copy"
    return release


@pytest.fixture
def dist(tmp_path, release):
    """The files of a release, whose archives have a small program."""
    folder = tmp_path / "dist"
    folder.mkdir()
    executable = program(tmp_path)
    for name in archives():
        with tarfile.open(folder / name, "w:gz") as archive:
            # As `tar -C release .` names them.
            archive.add(executable, "./highwater.exe" if "windows" in name else "./highwater")
    (folder / f"highwater_gpu-{version()}.tar.gz").write_bytes(b"the sources")
    done = release("files", "acme/highwater", str(folder))
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def downloads(dist):
    """The address from which the files of a release are downloaded."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=dist))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_every_archive_that_is_downloaded_is_one_that_a_release_has():
    made, named = archives(), set()
    for name in ("install.sh", "install.ps1", "highwater.rb", "Dockerfile"):
        found = set(re.findall(r"highwater-[a-z0-9_]+-[\w-]+\.tar\.gz", read(PACKAGING, name)))
        assert found and found <= made, name
        named |= found
    assert named == made
    # cargo binstall.
    metadata = read("viewer", "Cargo.toml").split("[package.metadata.binstall]\n")[1].split("\n\n")[0]
    url = re.search(r'pkg-url = "\{ repo \}/releases/download/v\{ version \}/(.*)"', metadata)[1]
    assert {url.replace("{ name }", "highwater").replace("{ target }", name[10:-7]) for name in made} == made


def test_the_package_has_one_name_on_the_index():
    package = re.search(r'(?m)^name = "(.+)"', read("recorder", "python", "pyproject.toml"))[1]
    file = package.replace("-", "_")
    action = read(".github", "actions", "memory-check", "memory_check.py")
    assert re.search(r'(?m)^_PACKAGE = "(.+)"', action)[1] == package
    workflow = read(".github", "workflows", "release.yml")
    assert f"https://pypi.org/project/{package}/\n" in workflow
    assert f"wheel/{file}-*.data/" in workflow and f"pip install {file}-*.tar.gz" in workflow
    assert f"/source/h/{package}/{file}-${{{{ version }}}}.tar.gz" in read(PACKAGING, "recipe.yaml")
    # What documents, messages and workflows advise to install.
    texts = [read("README.md"), read(PACKAGING, "README.md"), read("recorder", "python", "highwater", "_binary.py")]
    texts += [read("viewer", "vscode", "src", "program.js"), read("viewer", "vscode", "README.md")]
    pages = glob.glob(os.path.join(ROOT, "docs", "**", "*.md"), recursive=True)
    texts += [read(page) for page in [*pages, os.path.join(ROOT, "recorder", "python", "README.md")]]
    advised = re.findall(r"(?:pip install|uvx(?: --from)?) (highwater[\w-]*)", "\n".join(texts))
    assert set(advised) == {package}


def test_the_documents_use_the_tag_that_releases_move():
    tag = f"v{version().split('.')[0]}"
    pages = glob.glob(os.path.join(ROOT, "docs", "**", "*.md"), recursive=True)
    used = [found for page in pages for found in re.findall(r"/memory-check@(\S+)", read(page))]
    assert len(used) >= 2 and set(used) == {tag}
    steps = read(PACKAGING, "README.md")
    assert f"`git tag --force {tag} && git push --force origin {tag}`" in steps
    # Whoever publishes the repository writes its address there.
    placeholders = {os.path.relpath(page, ROOT) for page in pages if "OWNER/highwater" in read(page)}
    assert placeholders and all(f"`{page}`" in steps for page in placeholders)


def test_the_version_stands_in_one_place():
    manifests = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if name != "target" and not name.startswith(".")]
        manifests += [os.path.relpath(os.path.join(folder, name), ROOT) for name in names if name == "Cargo.toml"]
    # Packages of their own have no version of ours.
    stated = {path for path in manifests if re.search(r'(?m)^version = "(?!0\.0\.0")', read(path))}
    assert stated == {"Cargo.toml"}
    assert 'dynamic = ["version"]' in read("recorder", "python", "pyproject.toml")
    for name in os.listdir(os.path.join(ROOT, PACKAGING)):
        # Neither this version nor the tag of another one; requirements such as `maturin==1.16.0` are of other packages.
        assert not re.search(rf"\bv\d+\.\d+|(?<![\d.=]){re.escape(version())}(?!\.?\d)", read(PACKAGING, name)), name
    highwater = shutil.which("highwater")
    if highwater is not None:
        stated = subprocess.run([highwater, "--version"], capture_output=True, text=True, check=True).stdout
        assert stated.split() == ["highwater", version()]


def test_sources_get_the_address_of_their_repository(release):
    done = release("sources", "acme/fork", "v9.9.9")
    assert done.returncode == 1 and "the tag is v9.9.9" in done.stderr
    done = release("sources", "acme/fork", f"v{version()}")
    assert done.returncode == 0, done.stderr
    python = release.copy / "recorder" / "python"
    assert 'repository = "https://github.com/acme/fork"' in (release.copy / "Cargo.toml").read_text()
    assert "OWNER" not in (python / "pyproject.toml").read_text()
    extension = json.loads((release.copy / "viewer/vscode/package.json").read_text())
    assert extension["version"] == version() and "OWNER" not in json.dumps(extension)
    assert (python / "LICENSE-MIT").read_text() == read("LICENSE-MIT")
    readme = (python / "README.md").read_text()
    assert f"(https://raw.githubusercontent.com/acme/fork/v{version()}/docs/images/" in readme
    assert f"(https://github.com/acme/fork/blob/v{version()}/docs/pytorch.md)" in readme and "../" not in readme
    for link in re.findall(r"\]\(\.\./\.\./([^)#]+)", read("recorder", "python", "README.md")):
        assert os.path.exists(os.path.join(ROOT, link)), link


@pytest.mark.skipif(shutil.which("cargo") is None, reason="needs cargo")
def test_licences_of_the_crates_and_fonts_in_the_program_come_with_it(monkeypatch):
    monkeypatch.setenv("CARGO_NET_OFFLINE", "true")
    release = runpy.run_path(os.path.join(ROOT, PACKAGING, "release.py"))
    host = re.search("host: (.+)", subprocess.run(["rustc", "-vV"], stdout=subprocess.PIPE, text=True).stdout)[1]
    text = release["third_party"]([host])
    for crate in ("egui", "epaint_default_fonts", "flate2", "libc", "zstd"):
        assert re.search(rf"(?m)^{crate} \d", text), crate
    assert not re.search(r"(?m)^(highwater\S*|criterion|egui_kittest|proptest) \d", text)
    assert "SIL OPEN FONT LICENSE" in text and "UBUNTU FONT LICENCE" in text
    # Each text once, below all of its crates.
    texts = [part.split("\n\n", 1)[1] for part in text.split("=" * 100)[1:]]
    assert len(texts) == len(set(texts)) > 100


def test_files_of_a_release_have_addresses_and_checksums(release, dist):
    names = set(os.listdir(dist))
    assert names - archives() == {
        f"highwater_gpu-{version()}.tar.gz",
        "highwater-installer.sh",
        "highwater-installer.ps1",
        "highwater.rb",
        "recipe.yaml",
        "SHA256SUMS",
    }
    for name in names - archives() - {f"highwater_gpu-{version()}.tar.gz", "SHA256SUMS"}:
        text = (dist / name).read_text()
        assert not re.search(PLACEHOLDERS, text), name
        assert f"{version()}" in text and re.search(r"\b[0-9a-f]{64}\b", text), name
    lines = [line.split("  ") for line in (dist / "SHA256SUMS").read_text().splitlines()]
    assert {name for _, name in lines} == names - {"SHA256SUMS"}
    assert all(hashlib.sha256((dist / name).read_bytes()).hexdigest() == digest for digest, name in lines)
    (dist / "highwater-aarch64-apple-darwin.tar.gz").unlink()
    done = release("files", "acme/highwater", str(dist))
    assert done.returncode == 1 and "highwater-aarch64-apple-darwin.tar.gz" in done.stderr


@pytest.mark.skipif(os.name == "nt" or not (shutil.which("curl") or shutil.which("wget")), reason="needs curl or wget")
def test_the_installer_verifies_what_it_downloads(dist, downloads, tmp_path):
    folder = tmp_path / "a folder"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LD_")}
    environment.update(HIGHWATER_DOWNLOAD_URL=downloads, HIGHWATER_INSTALL_DIR=str(folder))

    def install(text, **variables):
        return subprocess.run(["sh"], input=text, env={**environment, **variables}, capture_output=True, text=True)

    script = (dist / "highwater-installer.sh").read_text()
    done = install(script)
    assert done.returncode == 0 and f"installed {folder}/highwater" in done.stdout, done.stderr
    assert "is not on PATH" in done.stdout and os.listdir(folder) == ["highwater"]
    output = subprocess.run([folder / "highwater"], capture_output=True, text=True).stdout
    assert output == "highwater of the archive\n"
    # The computer decides which archive, and no variable of the environment.
    (tmp_path / "uname").write_text('#!/bin/sh\n[ "$1" = -s ] && echo Darwin || echo arm64\n')
    (tmp_path / "uname").chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{environment['PATH']}"
    done = install(script.replace("tar -xzf", "echo unpacks $archive; tar -xzf"), PATH=path, system="linux")
    assert done.returncode == 0 and "unpacks highwater-aarch64-apple-darwin.tar.gz" in done.stdout, done.stderr
    # A script that was cut off does nothing.
    (folder / "highwater").write_text("the former program")
    assert install(script[: script.rindex("main")]).stdout == ""
    for name in archives():
        with open(dist / name, "ab") as archive:
            archive.write(b"more")
    done = install(script)
    assert done.returncode == 1 and "it is damaged or was replaced" in done.stderr
    for name in archives():
        (dist / name).unlink()
    done = install(script)
    assert done.returncode == 1 and "cannot download http" in done.stderr
    assert (folder / "highwater").read_text() == "the former program"


@pytest.mark.skipif(shutil.which("pwsh") is None, reason="needs PowerShell")
def test_the_installer_for_windows_verifies_what_it_downloads(dist, downloads, tmp_path):
    folder, temporary = tmp_path / "a folder", tmp_path / "temporary"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary), "TEMP": str(temporary), "TMP": str(temporary)}
    environment.update(HIGHWATER_DOWNLOAD_URL=downloads, HIGHWATER_INSTALL_DIR=str(folder), NO_COLOR="1")

    def install():
        command = ["pwsh", "-NoProfile", "-NonInteractive", "-File", dist / "highwater-installer.ps1"]
        return subprocess.run(command, env=environment, capture_output=True, text=True)

    done = install()
    program = folder / "highwater.exe"
    assert done.returncode == 0 and f"installed {program}" in done.stdout, done.stderr
    assert "is not on PATH" in done.stdout and os.listdir(folder) == ["highwater.exe"]
    assert "highwater of the archive" in program.read_text()
    program.write_text("the former program")
    name = "highwater-x86_64-pc-windows-msvc.tar.gz"
    with open(dist / name, "ab") as archive:
        archive.write(b"more")
    done = install()
    assert done.returncode == 1 and "damaged" in done.stderr
    (dist / name).unlink()
    done = install()
    assert done.returncode == 1 and "404" in done.stderr
    assert program.read_text() == "the former program"
    assert not [found for found in os.listdir(temporary) if os.path.exists(temporary / found / name)]


def test_the_installer_for_windows_leaves_the_shell_as_it_was():
    # `irm … | iex` runs it in the shell itself.
    assert not re.search(r"(?m)^\$", read(PACKAGING, "install.ps1"))


@pytest.mark.skipif(shutil.which("rustc") is None, reason="needs rustc")
def test_sources_bring_the_app_for_browsers_wherever_cargo_puts_its_output(tmp_path):
    script, sources = tmp_path / "script", tmp_path / "sources"
    command = ["rustc", "--edition", "2024", os.path.join(ROOT, "viewer", "build.rs"), "-o", script]
    subprocess.run(command, check=True, cwd=tmp_path)
    for folder in ("viewer", "recorder/python/highwater", "target/page"):
        (sources / folder).mkdir(parents=True)
    names = ("app.wasm.gz", "app.js.gz")
    for name in names:
        (sources / "target" / "page" / name).write_text(f"{name} of the sources")
    for output in (sources / "target", tmp_path / "cache" / "x86_64-unknown-linux-gnu"):
        out = output / "debug" / "build" / "highwater-0" / "out"
        out.mkdir(parents=True)
        environment = {**os.environ, "OUT_DIR": str(out), "CARGO_MANIFEST_DIR": str(sources / "viewer")}
        subprocess.run([script], check=True, cwd=sources / "viewer", env={**environment, "HIGHWATER_REQUIRE_PAGE": "1"})
        assert [(out / name).read_text() for name in names] == [f"{name} of the sources" for name in names]


def test_workflows_pin_actions_and_give_each_job_what_it_needs():
    workflows = glob.glob(os.path.join(ROOT, ".github", "workflows", "*.yml"))
    actions = glob.glob(os.path.join(ROOT, ".github", "actions", "*", "action.yml"))
    assert len(workflows) >= 2 and actions
    for path in [*workflows, *actions]:
        for used in re.findall(r"uses: (.*)", read(path)):
            assert re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v[\d.]+", used), f"{path}: {used}"
    jobs = re.split(r"(?m)^  (?=[\w-]+:$)", read(".github", "workflows", "release.yml").split("\njobs:\n")[1])
    assert [job.split(":")[0] for job in jobs if "id-token: write" in job] == ["attest", "pypi"]
    assert [job.split(":")[0] for job in jobs if "contents: write" in job] == ["publish"]
    assert all(re.search(r"(?m)^    permissions:", job) for job in jobs if job)
