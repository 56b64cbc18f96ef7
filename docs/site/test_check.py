"""Tests of the checks of the site."""

import os

import build
import check
import pytest


def page(folder, name, body, head=""):
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"<html><head>{head}</head><body>{body}</body></html>")


@pytest.fixture
def site(tmp_path):
    """A site without problems: two pages that link to each other and to a heading."""
    page(tmp_path, "index.html", '<a href="docs/run.html#limits">Limits</a><a href="https://example.org">out</a>')
    page(tmp_path, "docs/run.html", '<h2 id="limits">Limits</h2><a href="../">up</a><img src="../a.png">')
    (tmp_path / "a.png").write_bytes(b"x" * 1000)
    return tmp_path


def test_a_site_without_problems_has_none(site):
    assert [*check.problems(site)] == []


@pytest.mark.parametrize(
    ("body", "head", "why"),
    [
        ('<a href="no.html">x</a>', "", "link to no.html: there is no such file"),
        ('<a href="docs/run.html#no">x</a>', "", "link to docs/run.html#no: the page has no such heading"),
        ('<a href="#no">x</a>', "", "link to #no: the page has no such heading"),
        ('<img src="no.png">', "", "loads no.png: there is no such file"),
        ('<script src="https://example.org/a.js"></script>', "", "loads https://example.org/a.js from another host"),
        ("", '<link rel="stylesheet" href="//example.org/a.css">', "loads //example.org/a.css from another host"),
        ("<p>Some text:\n- an item</p>", "", "Markdown that is shown as text"),
        ("<p>| a | b |\n|---|---|</p>", "", "Markdown that is shown as text"),
        ("x" * (1 << 20), "", "more than the limit of 1 MiB"),
    ],
)
def test_a_problem_is_found_and_named(site, body, head, why):
    page(site, "index.html", f'<a href="docs/run.html">x</a>{body}', head)
    found = [*check.problems(site)]
    assert len(found) == 1 and found[0].startswith("index.html: ") and why in found[0], found


def test_a_page_without_a_link_to_it_is_found(site):
    page(site, "docs/alone.html", '<a href="alone.html">self</a>')
    assert [*check.problems(site)] == ["docs/alone.html: no page links to it"]


def test_what_a_page_loads_counts_towards_its_weight(site):
    (site / "a.png").write_bytes(b"x" * (1 << 20))
    assert [text.split(":")[0] for text in check.problems(site)] == ["docs/run.html"]


def test_a_style_sheet_that_loads_from_another_host_is_found(site):
    (site / "a.css").write_text("@font-face { src: url(https://example.org/a.woff2) }")
    assert [*check.problems(site)] == ["a.css: loads https://example.org/a.woff2 from another host"]


def test_pages_that_the_navigation_lacks_are_found(tmp_path):
    page(tmp_path, "docs/a.md", "")
    page(tmp_path, "docs/tasks/b.md", "")
    assert [*check.missing_pages(tmp_path, ["docs/a.md"])] == [
        "docs/tasks/b.md: missing in the navigation of docs/site/zensical.toml"
    ]


def test_links_to_files_that_are_no_pages_lead_to_the_repository():
    text = "[`lib.rs`](../recorder/src/lib.rs), [the recorder](../recorder), [app](app.md#keys), `[x](../Cargo.toml)`"
    pages = {"docs/app.md", "recorder/README.md"}
    repository = "https://example.org/highwater"
    assert build.with_links(text, "docs/web.md", pages, repository) == (
        f"[`lib.rs`]({repository}/blob/main/recorder/src/lib.rs), [the recorder](../recorder/README.md), "
        "[app](app.md#keys), `[x](../Cargo.toml)`"
    )
    assert build.with_links(text, "docs/web.md", pages, None) == (
        "`lib.rs`, [the recorder](../recorder/README.md), [app](app.md#keys), `[x](../Cargo.toml)`"
    )


def test_a_page_is_described_by_its_first_sentence():
    text = "# Title\n\n```\ncode\n```\n\nWhat **it** [does](a.md): this. More.\n"
    assert build.first_sentence(text) == "What it does: this."
    assert build.first_sentence("# Title\n\n| a |\n|---|\n") == ""
