//! Writes a document as JSON. JSON has no references, so every value is written in full.

use std::io::Write;

use super::document::{Document, Output, Plain, Shared};
use highwater_snapshots::error::{Error, Result};

#[derive(Debug)]
pub(super) struct JsonWriter<W: Write> {
    out: Output<W>,
    /// Whether each open dict or list, outermost first, has items.
    open: Vec<bool>,
    has_key: bool,
}

impl<W: Write> JsonWriter<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out: Output::new(out), open: Vec::new(), has_key: false }
    }

    fn item(&mut self) -> Result<()> {
        let has_items = self.open.last_mut().is_some_and(|has_items| std::mem::replace(has_items, true));
        if has_items { self.out.put(b",") } else { Ok(()) }
    }

    fn begin_value(&mut self) -> Result<()> {
        if std::mem::take(&mut self.has_key) { Ok(()) } else { self.item() }
    }

    fn put_text(&mut self, text: &str) -> Result<()> {
        let written = self.out.fill(|bytes| serde_json::to_writer(bytes, text))?;
        written.map_err(|why| Error::Encode { what: why.to_string() })
    }

    fn put_display(&mut self, value: impl std::fmt::Display) -> Result<()> {
        self.begin_value()?;
        let written = self.out.fill(|bytes| write!(bytes, "{value}"))?;
        written.map_err(|why| Error::Encode { what: why.to_string() })
    }
}

impl<W: Write> Document for JsonWriter<W> {
    fn open_dict(&mut self) -> Result<()> {
        self.begin_value()?;
        self.open.push(false);
        self.out.put(b"{")
    }

    fn close_dict(&mut self) -> Result<()> {
        self.open.pop();
        self.out.put(b"}")
    }

    fn open_list(&mut self) -> Result<()> {
        self.begin_value()?;
        self.open.push(false);
        self.out.put(b"[")
    }

    fn close_list(&mut self) -> Result<()> {
        self.open.pop();
        self.out.put(b"]")
    }

    fn key(&mut self, name: &'static str) -> Result<()> {
        self.free_key(name)
    }

    fn free_key(&mut self, name: &str) -> Result<()> {
        self.item()?;
        self.put_text(name)?;
        self.has_key = true;
        self.out.put(b":")
    }

    fn plain(&mut self, value: Plain) -> Result<()> {
        match value {
            Plain::Number(value) => self.put_display(value),
            Plain::Negative(value) => self.put_display(value),
            // `{:?}` keeps the decimal point of whole values, so that they remain floats.
            Plain::Float(value) => self.put_display(format_args!("{value:?}")),
            Plain::Truth(value) => self.put_display(value),
            Plain::None => self.put_display("null"),
        }
    }

    fn pair(&mut self, first: u64, second: u64) -> Result<()> {
        self.put_display(format_args!("[{first},{second}]"))
    }

    fn word(&mut self, word: &'static str) -> Result<()> {
        self.text(word)
    }

    fn text(&mut self, text: &str) -> Result<()> {
        self.begin_value()?;
        self.put_text(text)
    }

    fn again(&mut self, _value: Shared) -> Result<bool> {
        Ok(false)
    }

    fn keep(&mut self, _value: Shared) -> Result<()> {
        Ok(())
    }

    fn base64(&mut self, prefix: &str, bytes: &[u8]) -> Result<()> {
        self.begin_value()?;
        self.out.put(b"\"")?;
        self.out.put(prefix.as_bytes())?;
        self.out.put_base64(bytes)?;
        self.out.put(b"\"")
    }

    fn finish(&mut self) -> Result<()> {
        self.out.put(b"\n")?;
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_value_reads_back() {
        let mut bytes = Vec::new();
        let mut json = JsonWriter::new(&mut bytes);
        json.open_dict().unwrap();
        json.free_key("a \"key\"\u{1}").unwrap();
        json.open_list().unwrap();
        json.number(u64::MAX).unwrap();
        json.plain(Plain::Negative(-1)).unwrap();
        json.plain(Plain::Float(1.0)).unwrap();
        json.plain(Plain::Truth(true)).unwrap();
        json.plain(Plain::None).unwrap();
        json.pair(1, 2).unwrap();
        json.base64("p:", b"hello").unwrap();
        json.open_dict().unwrap();
        json.close_dict().unwrap();
        json.close_list().unwrap();
        json.close_dict().unwrap();
        json.finish().unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let expected = r#"{"a \"key\"\u0001":[18446744073709551615,-1,1.0,true,null,[1,2],"p:aGVsbG8=",{}]}"#;
        assert_eq!(text.trim_end(), expected);
        assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok());
    }
}
