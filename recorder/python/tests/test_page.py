"""Pages with the app in them."""

import pytest

import highwater
from highwater import _binary


@pytest.fixture
def snapshot(tmp_path):
    path = str(tmp_path / "step.snap")
    _binary.run(["record", "mlp", "--out", path, "--json"])
    try:
        highwater.Snapshot(path).to_html(tmp_path / "probe.html")
    except highwater.HighwaterError as error:
        assert "cargo page" in str(error)
        pytest.skip("highwater was built without the app for browsers")
    return highwater.Snapshot(path)


def test_a_page_is_written_beside_the_recording(snapshot, tmp_path):
    assert snapshot.to_html() == str(tmp_path / "step.html")
    text = (tmp_path / "step.html").read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>") and '"name":"step.snap"' in text


def test_a_page_can_be_of_some_events_without_stacks(snapshot, tmp_path):
    whole = snapshot.to_html(tmp_path / "whole.html")
    part = snapshot.to_html(tmp_path / "part.html", events=(0, 10), no_stacks=True)
    sizes = [(tmp_path / name).stat().st_size for name in ("part.html", "whole.html")]
    assert sizes[0] < sizes[1] and whole != part


def test_a_notebook_shows_the_app_in_a_frame(snapshot):
    page = snapshot.show(height=500)
    text = page._repr_html_()
    assert text.startswith("<iframe ") and "height: 500px" in text and 'srcdoc="&lt;!DOCTYPE html&gt;' in text
    assert text.count('"') == 4, "nothing of the page ends the attribute"
