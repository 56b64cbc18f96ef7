//! Reports calls that cannot be simulated exactly to a listener, at the time of the call. The listener is the Python
//! package, which can determine the line of the program.
#![cfg_attr(not(test), expect(unsafe_code, reason = "calls a listener of another language"))]

use std::ffi::{CString, c_char, c_int};
use std::sync::Mutex;
use std::sync::OnceLock;

use crate::abi::{answer, functions};

/// The kind of a note. The values are those of `highwater/_simulated.py`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// A function that is not simulated was called, and the program cannot continue.
    Missing = 0,
    /// A function was called whose workspace size on a GPU is unknown.
    UnknownWorkspace = 1,
    /// Unknown contents of device memory were read, and zeros or an assumed value were returned.
    UnknownValue = 2,
    /// The duration of work on the device was read.
    Time = 3,
    /// A device that does not exist was used.
    MissingDevice = 4,
}

/// A listener, which is called with the kind of the note and the name of the function.
type Listener = extern "C" fn(c_int, *const c_char);

static LISTENER: OnceLock<Listener> = OnceLock::new();

/// Notes made before a listener was set.
static EARLY: Mutex<Vec<(Kind, String)>> = Mutex::new(Vec::new());

fn notify(listener: Listener, kind: Kind, name: &str) {
    if let Ok(name) = CString::new(name) {
        listener(kind as c_int, name.as_ptr());
    }
}

pub(crate) fn note(kind: Kind, name: &str) {
    match LISTENER.get() {
        Some(listener) => notify(*listener, kind, name),
        None => EARLY.lock().expect("a thread panicked while it held the lock").push((kind, name.to_owned())),
    }
}

pub(crate) fn is_heard() -> bool {
    LISTENER.get().is_some()
}

functions! {
    /// Sets the listener, and passes earlier notes to it. Can be called only once.
    fn highwater_simulate_listen(listener: Listener) {
        if LISTENER.set(listener).is_ok() {
            let early = std::mem::take(&mut *EARLY.lock().expect("a thread panicked while it held the lock"));
            early.iter().for_each(|(kind, name)| notify(listener, *kind, name));
        }
        crate::abi::SUCCESS
    }
}
