//! Turns a panic of the command, or of a crate that it uses, into an error with a request to report it.

use std::ffi::OsString;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, Once, PoisonError};

use crate::outcome::{Failure, failed};

/// Number of commands that run. While there are any, panics of all threads are kept for the report instead of printed.
static RUNNING: AtomicUsize = AtomicUsize::new(0);
/// The last panic: what it says and where.
static LAST: Mutex<Option<String>> = Mutex::new(None);
static HOOK: Once = Once::new();

/// Runs a command with these arguments. A panic is printed as an error and becomes exit code 1.
pub fn guarded(arguments: &[OsString], run: impl FnOnce() -> u8) -> u8 {
    caught(arguments, run).unwrap_or_else(|message| failed(Failure::input(message)))
}

/// Runs a command with these arguments. A panic becomes the message of an error.
fn caught(arguments: &[OsString], run: impl FnOnce() -> u8) -> Result<u8, String> {
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| match RUNNING.load(Ordering::SeqCst) {
            0 => before(panic),
            _ => *LAST.lock().unwrap_or_else(PoisonError::into_inner) = Some(described(panic)),
        }));
    });
    RUNNING.fetch_add(1, Ordering::SeqCst);
    let code = panic::catch_unwind(AssertUnwindSafe(run));
    RUNNING.fetch_sub(1, Ordering::SeqCst);
    code.map_err(|_| {
        let last = LAST.lock().unwrap_or_else(PoisonError::into_inner).take();
        message(&last.unwrap_or_default(), arguments)
    })
}

/// Takes the last panic: its message and its place.
#[cfg(feature = "serve")]
pub fn last() -> String {
    LAST.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_default()
}

/// The panic's message and place in one line.
fn described(panic: &PanicHookInfo<'_>) -> String {
    let payload = panic.payload();
    let text = payload.downcast_ref::<&str>().copied().or(payload.downcast_ref::<String>().map(String::as_str));
    let place = panic.location().map_or_else(String::new, |place| format!(" at {place}"));
    format!("{}{place}", text.unwrap_or("unknown").replace('\n', " "))
}

/// The error. Arguments that are paths of files show what was probably read.
fn message(panic: &str, arguments: &[OsString]) -> String {
    let value = |argument: &OsString| {
        let text = argument.to_string_lossy();
        text.rsplit('=').next().filter(|value| Path::new(value).exists()).map(str::to_owned)
    };
    let files: Vec<String> = arguments.iter().skip(1).filter_map(value).collect();
    let subject = if files.is_empty() { String::new() } else { format!("{}: ", files.join(", ")) };
    format!(
        "{subject}this is a defect of ridgepoint or of a crate that it uses: {panic}; nothing more was written. Please \
         report it with the command and its files"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_that_names_message_place_and_files() {
        let arguments = ["ridgepoint", "models", "--data-dir=src", "none.json"].map(OsString::from);
        let values: Vec<u32> = Vec::new();
        // A green run of the tests prints no error: what is caught is looked at here.
        let said = caught(&arguments, || u8::from(values[arguments.len()] > 0)).unwrap_err();
        assert!(said.starts_with("src: this is a defect"), "{said}");
        assert_eq!(caught(&arguments, || 0), Ok(0));
        let message = message("index 4 of 0 at a.rs:1:2", &arguments);
        assert!(
            message.starts_with("src: this is a defect") && message.contains("index 4 of 0 at a.rs:1:2"),
            "{message}"
        );
    }

    #[test]
    fn a_panic_of_another_thread_is_one_too() {
        let run = || {
            std::thread::scope(|scope| {
                scope.spawn(|| panic!("worker")).join().map_or_else(|panic| panic::resume_unwind(panic), |()| 0)
            })
        };
        assert!(caught(&[], run).unwrap_err().contains("this is a defect"));
    }
}
