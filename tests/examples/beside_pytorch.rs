//! Measures the tables of `docs/beside-pytorch.md`. With words as arguments, only runs whose command or variant
//! contains them; with `--write`, writes into that page.
#![expect(clippy::print_stdout, reason = "printing is what this program is for")]

use std::error::Error;

use highwater_tests::pytorch_table::Comparison;
use highwater_tests::workspace_root;

fn main() -> Result<(), Box<dyn Error>> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let writes = words.iter().any(|word| word == "--write");
    words.retain(|word| word != "--write");
    let folder = tempfile::tempdir()?;
    let comparison = Comparison::measure(&words, folder.path());
    print!("{}", comparison.text);
    for sentence in &comparison.above {
        println!("{sentence}");
    }
    if writes && words.is_empty() {
        let page = workspace_root().join("docs/beside-pytorch.md");
        let text = std::fs::read_to_string(&page)?;
        let head = text.split("\n## ").next().unwrap_or_default();
        std::fs::write(&page, format!("{head}{}", comparison.text))?;
    }
    Ok(())
}
