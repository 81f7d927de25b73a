//! The order to stop, which the process's handler of signals gives.

use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;

/// The server that runs, if one does.
static RUNNING: Mutex<Option<watch::Sender<bool>>> = Mutex::new(None);

/// Stops the running server. Returns whether there was one that had not been stopped before.
pub fn stop() -> bool {
    let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner).take();
    running.is_some_and(|sender| sender.send(true).is_ok())
}

/// Registers a server; the receiver hears of the stop.
pub fn receiver() -> watch::Receiver<bool> {
    let (sender, receiver) = watch::channel(false);
    *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
    receiver
}
