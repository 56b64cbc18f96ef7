//! The app for browsers: a page and a WebAssembly module that `cargo page` builds. This program embeds both.

use std::io::Read as _;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use flate2::read::GzDecoder;
use highwater_app::files::{is_stdin, recording_name};
use serde::Serialize;

use crate::output::Failure;

/// The script of the page, which starts the app and connects it with the browser.
pub(crate) const SCRIPT: &str = include_str!("../web/page.js");

/// The page, without the scripts that it loads.
const START: &str = include_str!("../web/page.html");

/// The module and the script that loads it, each compressed with gzip; empty if they were not built.
static MODULE: [&[u8]; 2] =
    [include_bytes!(concat!(env!("OUT_DIR"), "/app.wasm.gz")), include_bytes!(concat!(env!("OUT_DIR"), "/app.js.gz"))];

#[derive(Clone, Copy, Debug)]
pub(crate) struct Module {
    /// The module, compressed with gzip.
    pub wasm: &'static [u8],
    /// The script that loads the module, compressed with gzip.
    pub loader: &'static [u8],
}

/// Returns the embedded module.
///
/// # Errors
/// Returns an error if this program was built without the module.
pub(crate) fn module() -> Result<Module, Failure> {
    let [wasm, loader] = MODULE;
    if wasm.is_empty() {
        let text = "this build does not include the browser app: run `rustup target add wasm32-unknown-unknown` and \
                    `cargo page` in Highwater's source folder, then build highwater again";
        return Err(Failure::Usage(text.to_owned()));
    }
    Ok(Module { wasm, loader })
}

/// A recording that the page opens.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Listed {
    pub name: String,
    /// The URL of the recording, relative to that of the page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The id of the page element that contains the recording.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub element: Option<String>,
    /// Whether the recording is still being written.
    pub growing: bool,
}

/// Returns the name of a recording in the page: its file name, or its path if one of `others` has the same name. Adds a
/// number if the path occurs twice. The page identifies recordings by name.
pub(crate) fn name_of(file: &Path, others: &[&str]) -> String {
    let name = recording_name(file);
    if is_stdin(file) {
        return name;
    }
    let path = file.display().to_string();
    let numbered = (2..).map(|number| format!("{path} ({number})"));
    let mut names = [name, path.clone()].into_iter().chain(numbered);
    names.find(|name| !others.contains(&name.as_str())).unwrap_or(path)
}

/// Returns a page that loads its scripts and the recordings from its server. If the server has a folder of ranks, the
/// page shows the ranks too.
pub(crate) fn served_page(recordings: &[Listed], has_ranks: bool) -> String {
    let list = list(recordings);
    let start = if has_ranks { START.replacen("<body>", "<body data-ranks=\"yes\">", 1) } else { START.to_owned() };
    format!("{start}{list}<script src=\"page.js\"></script>\n<script src=\"app.js\"></script>\n</body>\n</html>\n")
}

/// Returns a self-contained page; `recordings` contains names and contents of .snap files.
///
/// # Errors
/// Returns an error if this program was built without the app for browsers.
pub(crate) fn whole_page(recordings: &[(String, Vec<u8>)]) -> Result<String, Failure> {
    let Module { wasm, loader } = module()?;
    let mut script = String::new();
    GzDecoder::new(loader).read_to_string(&mut script)?;
    // Nothing else may be loaded or sent anywhere.
    let policy = "default-src 'none'; script-src 'unsafe-inline' 'wasm-unsafe-eval'; style-src 'unsafe-inline'; \
                  img-src data:; connect-src data:";
    let policy = format!("<meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n");
    let mut page = START.replacen("<title>", &format!("{policy}<title>"), 1);
    let element = |row: usize| format!("recording-{row}");
    let listed = recordings.iter().enumerate().map(|(row, (name, _))| Listed {
        name: name.clone(),
        url: None,
        element: Some(element(row)),
        growing: false,
    });
    if recordings.len() == 2 {
        page = page.replacen("<body>", "<body data-compare=\"yes\">", 1);
    }
    page += &list(&listed.collect::<Vec<_>>());
    let mut data = |id: &str, packed: &[u8]| {
        page += &format!("<script type=\"text/plain\" id=\"{id}\">");
        BASE64_STANDARD.encode_string(packed, &mut page);
        page += "</script>\n";
    };
    data("module", wasm);
    for (row, (_, content)) in recordings.iter().enumerate() {
        data(&element(row), &gzip(content)?);
    }
    for script in [SCRIPT, script.as_str()] {
        page += &format!("<script>{}</script>\n", script.replace("</script", "<\\/script"));
    }
    page += "</body>\n</html>\n";
    Ok(page)
}

/// Names are untrusted text, and must not close the element.
fn list(recordings: &[Listed]) -> String {
    let json =
        serde_json::to_string(recordings).expect("a text or flag cannot be written as JSON").replace('<', "\\u003c");
    format!("<script type=\"application/json\" id=\"recordings\">{json}</script>\n")
}

fn gzip(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    use std::io::Write as _;
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packed.write_all(bytes)?;
    packed.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recordings_of_one_name_get_different_ones() {
        let mut names: Vec<String> = Vec::new();
        for file in ["before/step.snap", "after/step.snap", "after/step.snap", "-"] {
            let name = name_of(Path::new(file), &names.iter().map(String::as_str).collect::<Vec<_>>());
            names.push(name);
        }
        assert_eq!(names, ["step.snap", "after/step.snap", "after/step.snap (2)", "standard input"]);
    }

    #[test]
    fn a_name_cannot_leave_its_element() {
        let name = "</script><script>alert(1)</script>".to_owned();
        let listed = Listed { name: name.clone(), url: Some("recording/0".into()), element: None, growing: false };
        let page = served_page(&[listed], false);
        assert!(!page.contains("alert(1)<") && page.matches("</script>").count() == 3, "{page}");
        let json = page.split("id=\"recordings\">").nth(1).unwrap().split("</script>").next().unwrap();
        let listed: serde_json::Value = serde_json::from_str(json).unwrap();
        assert_eq!(listed[0]["name"], name.as_str());
    }
}
