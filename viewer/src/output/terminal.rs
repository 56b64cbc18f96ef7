//! The width of the terminal.

const USUAL_WIDTH: usize = 80;

/// Returns the width of the terminal in columns. If the terminal does not report it, returns the value of `COLUMNS`, or
/// 80.
pub(crate) fn columns() -> usize {
    let set = || std::env::var("COLUMNS").ok()?.parse().ok().filter(|width| *width > 0);
    columns_of_stdout().or_else(set).unwrap_or(USUAL_WIDTH)
}

#[cfg(unix)]
fn columns_of_stdout() -> Option<usize> {
    columns_of(std::io::stdout())
}

/// Returns the columns of a terminal, even if it reports no rows; `None` if it does not report them.
#[cfg(unix)]
fn columns_of(terminal: impl std::os::fd::AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(terminal).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

#[cfg(not(unix))]
fn columns_of_stdout() -> Option<usize> {
    terminal_size::terminal_size().map(|(width, _)| usize::from(width.0))
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use rustix::termios::{Winsize, tcsetwinsize};

    use super::*;

    #[test]
    fn a_terminal_without_rows_has_its_columns() {
        let terminal = std::fs::File::options().read(true).write(true).open("/dev/ptmx").expect("pseudoterminals");
        let columns = |ws_col: u16, ws_row: u16| {
            tcsetwinsize(&terminal, Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 }).expect("a size");
            columns_of(&terminal)
        };
        assert_eq!(columns(100, 0), Some(100));
        assert_eq!(columns(120, 40), Some(120));
        assert_eq!(columns(0, 0), None);
    }
}
