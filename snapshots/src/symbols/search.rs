//! Search: which file has the lines of a binary: itself, or a separate debug file made for it.

use std::path::PathBuf;

use addr2line::Loader;

use super::line::Binary;
use super::object_file::{Facts, checksum, hex, inspect};

/// Where distributions put separate debug files.
pub const SYSTEM_DEBUG_FOLDER: &str = "/usr/lib/debug";

/// Opens the best file for `binary`, or says why there is none.
pub(super) fn open(binary: &Binary, debug_folders: &[PathBuf]) -> Result<Loader, String> {
    let mut tried = Vec::new();
    let mut own = None;
    match inspect(&binary.path) {
        Ok(facts) if facts.build_id == binary.build_id => own = Some(facts),
        Ok(facts) => tried.push(format!(
            "the file there now has build id {}, the recorded one had {}: it was rebuilt",
            hex(&facts.build_id),
            hex(&binary.build_id)
        )),
        Err(why) => tried.push(why),
    }
    let has_lines = own.as_ref().is_some_and(|facts| facts.has_lines);
    let separate = if has_lines { None } else { separate_file(binary, own.as_ref(), debug_folders) };
    let path = separate.or_else(|| own.is_some().then(|| binary.path.clone()));
    let Some(path) = path else {
        if !binary.build_id.is_empty() {
            tried.push(format!("no debug file with build id {} in {debug_folders:?}", hex(&binary.build_id)));
        }
        return Err(tried.join("; "));
    };
    Loader::new(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

/// A debug file made for `binary`: by its build id, else by the name that the binary gives.
fn separate_file(binary: &Binary, own: Option<&Facts>, debug_folders: &[PathBuf]) -> Option<PathBuf> {
    let id = hex(&binary.build_id);
    let belongs =
        |path: &PathBuf| inspect(path).is_ok_and(|facts| facts.has_lines && facts.build_id == binary.build_id);
    if binary.build_id.len() > 1 {
        let name = format!(".build-id/{}/{}.debug", &id[..2], &id[2..]);
        if let Some(found) = debug_folders.iter().map(|folder| folder.join(&name)).find(belongs) {
            return Some(found);
        }
    }
    let (name, sum) = own?.debug_link.as_ref()?;
    let beside = binary.path.parent()?;
    let mut places = vec![beside.join(name), beside.join(".debug").join(name)];
    let below_root = beside.strip_prefix("/").unwrap_or(beside);
    places.extend(debug_folders.iter().map(|folder| folder.join(below_root).join(name)));
    // A file without a build id is known by its checksum.
    let matches = |path: &PathBuf| belongs(path) && (!binary.build_id.is_empty() || checksum(path) == Some(*sum));
    places.into_iter().find(matches)
}
