//! Tests of web pages that contain a snapshot.

use highwater_pytorch::open::{FileKind, open_bytes};

use crate::made::{events, go, page, pickle, snapshot};

fn open(text: &str) -> Result<highwater_snapshots::Trace, String> {
    let opened = open_bytes(text.as_bytes(), &mut go).map_err(|error| error.to_string())?;
    assert_eq!(opened.format.kind, FileKind::Page);
    Ok(opened.trace)
}

fn problems(trace: &highwater_snapshots::Trace) -> Vec<String> {
    trace.problems.iter().map(ToString::to_string).collect()
}

#[test]
fn a_page_holds_the_same_as_the_pickle_in_it_however_it_is_padded() {
    for protocol in [2, 4, 5] {
        for padding in 0..3 {
            let mut value = snapshot();
            value["highwater"] = "x".repeat(padding).into();
            let bytes = pickle(&value, protocol);
            let alone = open_bytes(&bytes, &mut go).unwrap().trace;
            let trace = open(&page(&[("snapshot.pickle", &bytes)])).unwrap();
            assert_eq!(events(&trace), events(&alone));
            assert!(!trace.events.is_empty());
            assert_eq!(problems(&trace), problems(&alone));
        }
    }
}

#[test]
fn the_list_may_be_handed_over_at_once_and_the_text_may_be_broken_or_escaped() {
    let bytes = pickle(&snapshot(), 4);
    let expected = events(&open_bytes(&bytes, &mut go).unwrap().trace);
    let text = page(&[("a", &bytes)]);
    let (before, rest) = text.split_once("const local_files = ").unwrap();
    let (list, _) = rest.split_once('\n').unwrap();
    let inline = format!("{before}add_local_files({list}, 'x')</script>");
    let spaced = text.replace(r#""base64": ""#, "base64 :\n \"");
    let wrapped = text.replace("AAAA", "AA\nAA").replace('/', "\\/");
    let unpadded = text.replace("=\"", "\"");
    for text in [inline, spaced, wrapped, unpadded] {
        assert_eq!(events(&open(&text).unwrap()), expected, "{text:.300}");
    }
}

#[test]
fn the_first_snapshot_of_a_page_is_read_and_the_others_are_reported() {
    let (bytes, text) = (pickle(&snapshot(), 4), snapshot().to_string());
    let trace = open(&page(&[("notes.txt", b"Dear all"), ("a", text.as_bytes()), ("b", &bytes), ("c", b"")])).unwrap();
    assert!(!trace.events.is_empty());
    let found = problems(&trace);
    assert!(
        found.iter().any(|problem| problem.contains("3 files that are not read ('notes.txt', 'b', 'c')")),
        "{found:?}"
    );
}

#[test]
fn a_page_without_a_snapshot_says_what_it_has() {
    assert!(open("<html>base64: no</html>").unwrap_err().contains("HTML or XML without a snapshot"));
    assert!(open(&page(&[("letter", b"Dear all")])).unwrap_err().contains("1 file that is not a snapshot ('letter')"));
    let old = pickle(&snapshot(), 1);
    assert!(open(&page(&[("old", &old)])).unwrap_err().contains("protocol 1"));
}

#[test]
fn a_page_that_is_cut_or_is_no_base64_says_where() {
    let bytes = pickle(&snapshot(), 4);
    let text = page(&[("a", &bytes)]);
    let start = text.find("gAR").unwrap();
    let error = open(&text[..start + 500]).unwrap_err();
    assert!(error.contains(&format!("damaged at byte {}", start + 500)) && error.contains("the page ends"), "{error}");
    let error = open(&text.replacen("gAR9KIw", "gAR9K*w", 1)).unwrap_err();
    assert!(error.contains("not base64"), "{error}");
    for length in 0..text.len() {
        if let Ok(trace) = open_bytes(&text.as_bytes()[..length], &mut go) {
            assert!(!trace.trace.events.is_empty(), "only what comes after the snapshot may be missing");
            assert!(length > start + bytes.len());
        }
    }
}
