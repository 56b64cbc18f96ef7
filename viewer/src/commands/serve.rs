//! `highwater serve`: shows recordings in a browser, also on another computer.

mod request;
mod response;
mod part;
mod folder;
mod site;

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use clap::Args;
use highwater_app::files::computed_cache::begins_as_snap;
use highwater_app::files::is_stdin;
use highwater_pytorch::open::FileKind;
use highwater_snapshots::RotatedFiles;
use highwater_snapshots::format::{MAGIC, write_trace};
use tempfile::TempDir;

use self::folder::Folder;
use self::site::{Served, Site, random_token};
use crate::args::CategoryChoice;
use crate::browser;
use crate::input::{Recording, read_with};
use crate::output::{Failure, Page, Status};

/// Arguments of `highwater serve`.
#[derive(Clone, Debug, Args)]
pub struct ServeArguments {
    /// Recordings, or folders with one for each rank; `-` is standard input. Growing files are followed
    #[arg(value_name = "FILE|FOLDER", required = true)]
    pub files: Vec<PathBuf>,
    /// Port to listen on [default: a free one]
    #[arg(long, value_name = "N")]
    pub port: Option<u16>,
    /// Address to listen on, so that other computers can connect without ssh [default: 127.0.0.1]
    #[arg(long, value_name = "ADDRESS")]
    pub host: Option<String>,
    /// Open the page in a browser on this computer
    #[arg(long)]
    pub open: bool,
    /// Stop when standard input is closed, such as when the program that keeps it open ends or is killed
    #[arg(long)]
    pub stop_at_eof: bool,
    /// The source of categories that were not recorded.
    #[command(flatten)]
    pub categories: CategoryChoice,
}

/// Maximum number of clients that are answered at once; further clients wait.
const MAX_CLIENTS: usize = 64;

/// Time limits for a client to send its request; the second applies while many clients are being answered.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
const SHORT_PATIENCE: Duration = Duration::from_millis(500);

/// Pause after a connection could not be accepted.
const RETRY_DELAY: Duration = Duration::from_millis(50);

pub(crate) fn run(arguments: &ServeArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    browser::module()?;
    if arguments.stop_at_eof && arguments.files.iter().any(|file| is_stdin(file)) {
        let text = "--stop-at-eof waits for the end of standard input, which `-` reads: name a file instead of `-`";
        return Err(Failure::Usage(text.to_owned()));
    }
    let host = arguments.host.as_deref().unwrap_or("127.0.0.1");
    let listener = listen(host, arguments.port)?;
    let address = listener.local_addr()?;
    // Until something is written, signals end the program as usual.
    let (folders, files): (Vec<&PathBuf>, Vec<&PathBuf>) = arguments.files.iter().partition(|path| has_several(path));
    let first = files.first().map(|file| read_with(file, &arguments.categories));
    let stop = Stop::watch(address)?;
    if arguments.stop_at_eof {
        stop.at_end_of_input(address)?;
    }
    let folder = tempfile::Builder::new().prefix("highwater-serve-").tempdir()?;
    let Some(recordings) = prepare((arguments, &files), first, &folder, &stop, page)? else {
        return Ok(Status::Fine);
    };
    let paths: Vec<PathBuf> = folders.into_iter().cloned().collect();
    let ranks =
        (!paths.is_empty()).then(|| Folder::open(paths, &arguments.categories, folder.path(), &stop)).transpose()?;
    if stop.is_requested() {
        return Ok(Status::Fine);
    }
    let (token, hosts) = (random_token()?, known_hosts(host, address));
    let url = format!("http://{}/{token}/", shown_host(host, address));
    let site = Arc::new(Site { token, hosts, recordings, folder: ranks });
    print(arguments, &url, address, page)?;
    page.raw().flush()?;
    if arguments.open
        && let Err(why) = open_browser(&folder, &url)
    {
        page.warning(&format!("--open: {why}; open the address yourself."))?;
        page.raw().flush()?;
    }
    serve(&listener, &site, &stop);
    Ok(Status::Fine)
}

/// Returns whether a path can have several recordings: a folder, or the files of a rotation.
fn has_several(path: &Path) -> bool {
    path.is_dir() || RotatedFiles::find(path).is_some()
}

/// Reads each of the files, and converts those that are not .snap files into `folder`; `None` if the user stops the
/// program. The first file was already read.
fn prepare(
    (arguments, files): (&ServeArguments, &[&PathBuf]),
    mut first: Option<Result<Recording, Failure>>,
    folder: &TempDir,
    stop: &Stop,
    page: &mut Page<'_>,
) -> Result<Option<Vec<Served>>, Failure> {
    let mut recordings: Vec<Served> = Vec::new();
    for &file in files {
        if stop.is_requested() {
            return Ok(None);
        }
        let names: Vec<&str> = recordings.iter().map(|other| other.name.as_str()).collect();
        let name = browser::name_of(file, &names);
        let read = match first.take().unwrap_or_else(|| read_with(file, &arguments.categories)) {
            Err(Failure::Unreadable { .. } | Failure::Read { .. }) if has_only_begun(file) => {
                let text = "has no events yet: the page shows them once the recorded program writes them.";
                page.warning(&format!("{} {text}", file.display()))?;
                recordings.push(Served { name, path: std::path::absolute(file)?, is_growing: true });
                continue;
            }
            read => read?,
        };
        let is_as_stored = arguments.categories.categories.is_none();
        // A pipe cannot be read again.
        let is_file = std::fs::metadata(file).is_ok_and(|facts| facts.is_file());
        let is_snap =
            is_file && read.format.kind == FileKind::Snap && !read.format.is_gzipped && !is_stdin(file) && is_as_stored;
        let path = if is_snap {
            std::path::absolute(file)?
        } else {
            let path = folder.path().join(format!("{}.snap", recordings.len()));
            let written = write_trace(std::fs::File::create(&path)?, &read.trace);
            written.map_err(|source| Failure::Read { file: file.clone(), source })?;
            path
        };
        let is_growing = is_snap && read.trace.trust.unfinished && part::is_fresh(&path);
        recordings.push(Served { name, path, is_growing });
    }
    Ok(Some(recordings))
}

/// Returns whether `file` may be a recording that is being written but has no events yet.
fn has_only_begun(file: &Path) -> bool {
    let length = std::fs::metadata(file).ok().filter(|facts| facts.is_file()).map(|facts| facts.len());
    let has_name = file.extension().is_some_and(|ending| ending == "snap");
    let is_short = length.is_some_and(|length| length < MAGIC.len() as u64);
    part::is_fresh(file) && (is_short && has_name || !is_short && begins_as_snap(file))
}

fn listen(host: &str, port: Option<u16>) -> Result<TcpListener, Failure> {
    let port = port.unwrap_or(0);
    TcpListener::bind((host, port)).map_err(|why| {
        let hint = match why.kind() {
            io::ErrorKind::AddrInUse => "; another program uses this port: choose another one, or omit --port",
            io::ErrorKind::PermissionDenied => "; ports below 1024 are reserved: choose a higher one",
            io::ErrorKind::AddrNotAvailable => "; it is not an address of this computer",
            _ => "",
        };
        let port = if port == 0 { String::new() } else { format!(", port {port}") };
        Failure::Usage(format!("cannot listen on {host}{port}: {why}{hint}"))
    })
}

/// Returns the host and port to print; for a wildcard address, this computer's name, or 127.0.0.1 if it is unknown.
fn shown_host(host: &str, address: SocketAddr) -> String {
    let port = address.port();
    match address.ip() {
        ip if ip.is_unspecified() => format!("{}:{port}", host_name().unwrap_or_else(|| "127.0.0.1".to_owned())),
        _ if host.parse::<IpAddr>().is_err() => format!("{host}:{port}"),
        _ => address.to_string(),
    }
}

/// Returns the names by which browsers may address this server, in addition to IP addresses and `localhost`.
fn known_hosts(host: &str, address: SocketAddr) -> Vec<String> {
    let own = host_name().filter(|_| address.ip().is_unspecified());
    own.into_iter().chain([host.to_owned()]).collect()
}

fn print(arguments: &ServeArguments, url: &str, address: SocketAddr, page: &mut Page<'_>) -> io::Result<()> {
    let port = address.port();
    let count = arguments.files.len();
    let what = if count == 1 { arguments.files[0].display().to_string() } else { format!("{count} recordings") };
    page.headline(&format!("Serving {what}. Open this address in a browser:"))?;
    page.gap()?.line(&format!("  {url}"))?;
    page.gap()?;
    if address.ip().is_loopback() {
        let shown = if address.is_ipv6() { format!("[{}]", address.ip()) } else { address.ip().to_string() };
        page.line("To open it on another computer, first run this there, and keep it running:")?;
        page.gap()?;
        let (destination, explained) = destination(|name| std::env::var(name).ok());
        page.line(&format!("  ssh -N -L {port}:{shown}:{port} {destination}"))?;
        if let Some(explained) = explained {
            page.gap()?.line(&explained)?;
        }
    } else {
        page.warning(
            "Anyone who can reach this address and knows the URL can see the recordings, and the connection is not \
             encrypted. Without --host, only this computer can connect.",
        )?;
    }
    page.gap()?.line("Ctrl-C stops.")
}

/// Placeholder for the user's name if it is unknown.
const USER: &str = "USER";
const HOST: &str = "HOST";

/// Returns the ssh destination of this computer, in the form `USER@HOST`, and an explanation of placeholders. The
/// address is known only if the user is connected by ssh, because other computers may not know this one's name.
fn destination(variable: impl Fn(&str) -> Option<String>) -> (String, Option<String>) {
    let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
    let user = variable("USER").or_else(|| variable("LOGNAME"));
    // The client's address and port, then those that it connected to.
    let host = variable("SSH_CONNECTION").and_then(|words| words.split(' ').nth(2).map(str::to_owned));
    let explained = [
        user.is_none().then(|| format!("{USER} is your user name on this computer")),
        host.is_none().then(|| {
            let name = host_name().map_or_else(String::new, |name| format!(", which calls itself {name}"));
            format!("{HOST} is the address of this computer{name}")
        }),
    ];
    let explained: Vec<String> = explained.into_iter().flatten().collect();
    let destination = format!("{}@{}", user.as_deref().unwrap_or(USER), host.as_deref().unwrap_or(HOST));
    (destination, (!explained.is_empty()).then(|| format!("{}.", explained.join(", "))))
}

#[cfg(unix)]
fn host_name() -> Option<String> {
    rustix::system::uname().nodename().to_str().ok().map(str::to_owned)
}

#[cfg(not(unix))]
fn host_name() -> Option<String> {
    None
}

/// Opens the user's browser. The address is passed in a file that only the user can read, since others can see the
/// arguments of programs.
fn open_browser(folder: &TempDir, url: &str) -> io::Result<()> {
    let path = folder.path().join("open.html");
    std::fs::write(&path, format!("<!DOCTYPE html><meta http-equiv=\"refresh\" content=\"0; url={url}\">"))?;
    let program = if cfg!(target_os = "macos") {
        "open"
    } else if cfg!(windows) {
        "explorer"
    } else {
        "xdg-open"
    };
    let started = std::process::Command::new(program).arg(&path).spawn();
    started.map(drop).map_err(|why| io::Error::other(format!("cannot start a browser with {program}: {why}")))
}

/// Wakes the listener at `address` by connecting to it.
fn wake(address: SocketAddr) {
    let loopback =
        if address.is_ipv4() { IpAddr::from([127, 0, 0, 1]) } else { IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1_u16]) };
    let ip = if address.ip().is_unspecified() { loopback } else { address.ip() };
    // If this fails, the next client wakes it.
    let _ = TcpStream::connect((ip, address.port()));
}

#[derive(Clone, Debug, Default)]
struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Starts watching for the signals that end a program. A second signal ends it immediately. A connection to
    /// `address`, the address of the listener, wakes the listener.
    #[cfg(unix)]
    fn watch(address: SocketAddr) -> io::Result<Self> {
        use crate::commands::run::signals::is_ignored;
        use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
        let stop = Self::default();
        // `nohup` makes a program ignore this signal.
        let hangup = Some(SIGHUP).filter(|signal| !is_ignored(*signal));
        let ends: Vec<i32> = [SIGINT, SIGTERM].into_iter().chain(hangup).collect();
        for &signal in &ends {
            signal_hook::flag::register_conditional_default(signal, Arc::clone(&stop.0))?;
            signal_hook::flag::register(signal, Arc::clone(&stop.0))?;
        }
        let mut signals = signal_hook::iterator::Signals::new(&ends)?;
        let wait = move || {
            if signals.forever().next().is_some() {
                wake(address);
            }
        };
        std::thread::Builder::new().name("highwater-signals".to_owned()).spawn(wait)?;
        Ok(stop)
    }

    /// Does nothing. On this system, signals end the program as usual, and the system removes temporary files later.
    #[cfg(not(unix))]
    fn watch(_address: SocketAddr) -> io::Result<Self> {
        Ok(Self::default())
    }

    fn at_end_of_input(&self, address: SocketAddr) -> io::Result<()> {
        let stop = Arc::clone(&self.0);
        let wait = move || {
            // An error is an end, too.
            let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
            stop.store(true, Ordering::Relaxed);
            wake(address);
        };
        std::thread::Builder::new().name("highwater-input".to_owned()).spawn(wait).map(drop)
    }

    fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug, Default)]
struct Clients {
    count: Mutex<usize>,
    fewer: Condvar,
}

impl Clients {
    /// Waits until another client can be served, and counts the client. Returns the time limit for its request, which
    /// is short while many clients are being answered; `None` if the program must stop.
    fn enter(&self, stop: &Stop) -> Option<Duration> {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        while *count >= MAX_CLIENTS {
            if stop.is_requested() {
                return None;
            }
            let waited = self.fewer.wait_timeout(count, RETRY_DELAY).unwrap_or_else(PoisonError::into_inner);
            count = waited.0;
        }
        *count += 1;
        Some(if *count > MAX_CLIENTS / 2 { SHORT_PATIENCE } else { REQUEST_TIMEOUT })
    }

    fn leave(&self) {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.fewer.notify_one();
    }
}

/// Answers clients, each on its own thread, until the user stops the program.
fn serve(listener: &TcpListener, site: &Arc<Site>, stop: &Stop) {
    let clients = Arc::new(Clients::default());
    for client in listener.incoming() {
        if stop.is_requested() {
            return;
        }
        let Ok(client) = client else {
            // A client that is gone already; or too many open files, of which some are closed soon.
            std::thread::sleep(RETRY_DELAY);
            continue;
        };
        let Some(patience) = clients.enter(stop) else { return };
        let (site, clients_then) = (Arc::clone(site), Arc::clone(&clients));
        let work = move || {
            answer(&site, &client, patience);
            clients_then.leave();
        };
        if std::thread::Builder::new().name("highwater-client".to_owned()).spawn(work).is_err() {
            clients.leave();
        }
    }
}

/// Answers one request. A disconnected client is not reported as an error.
fn answer(site: &Site, client: &TcpStream, patience: Duration) {
    let response = match request::read(client, patience) {
        Ok(Some(request)) => site.respond(&request),
        Ok(None) => return,
        Err(status) => response::Response::refusal(status),
    };
    let _ = response.send(client);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_of_this_computer_is_a_placeholder_that_is_explained() {
        let of = |known: &[(&str, &str)]| {
            let value =
                |name: &str| known.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
            destination(value)
        };
        let connected = ("SSH_CONNECTION", "10.0.0.2 50000 10.0.0.1 22");
        assert_eq!(of(&[("USER", "ada"), connected]), ("ada@10.0.0.1".to_owned(), None));
        let (text, explained) = of(&[connected, ("USER", "")]);
        assert_eq!(
            (text.as_str(), explained.as_deref()),
            ("USER@10.0.0.1", Some("USER is your user name on this computer."))
        );
        let (text, explained) = of(&[("LOGNAME", "ada")]);
        assert_eq!(text, "ada@HOST");
        assert!(explained.unwrap().starts_with("HOST is the address of this computer"));
        let (text, explained) = of(&[]);
        assert_eq!(text, "USER@HOST");
        assert!(explained.unwrap().starts_with("USER is your user name on this computer, HOST is the address"));
    }
}
