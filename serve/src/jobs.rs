//! Work that takes long, on threads of its own behind a bounded queue. Work whose client is gone, or whose time is up, is told to stop.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use hyper::StatusCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::problem::Problem;

/// Threads and a queue before them.
#[derive(Debug)]
pub struct Jobs {
    /// A permit for each thread.
    threads: Arc<Semaphore>,
    /// Jobs that run or wait.
    present: Arc<AtomicUsize>,
    most_present: usize,
    num_threads: usize,
    /// Takes the text of the last panic.
    last_panic: fn() -> String,
}

/// The flag that tells a job to stop.
pub type Stop = Arc<AtomicBool>;

/// One of the jobs that run or wait.
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Tells the job to stop when nobody waits for it any more.
struct StopOnDrop(Stop);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Jobs {
    /// `num_threads` jobs at once, and `max_queued` that wait.
    pub fn new(num_threads: usize, max_queued: usize, last_panic: fn() -> String) -> Self {
        Jobs {
            threads: Arc::new(Semaphore::new(num_threads)),
            present: Arc::default(),
            most_present: num_threads + max_queued,
            num_threads,
            last_panic,
        }
    }

    /// Threads.
    pub fn num_threads(&self) -> usize {
        self.num_threads
    }

    /// Jobs that run, and jobs that wait.
    pub fn running_and_queued(&self) -> (usize, usize) {
        let running = self.num_threads.saturating_sub(self.threads.available_permits());
        (running, self.present.load(Ordering::Relaxed).saturating_sub(running))
    }

    /// Runs `work` on one of the threads. Dropping the future tells it to stop, as does the end of its time.
    ///
    /// # Errors
    /// A full queue, the end of its time, a panic, and what `work` returns.
    pub async fn run<T: Send + 'static>(
        &self,
        deadline: Instant,
        work: impl FnOnce(&Stop) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let place = self.place()?;
        let Ok(thread) = timeout_at(deadline, Arc::clone(&self.threads).acquire_owned()).await else {
            return Err(Problem::busy("the request waited in the queue for all of its time; try again later"));
        };
        let thread = thread.map_err(|_| Problem::busy("the server stops"))?;
        let stop = Stop::default();
        let on_drop = StopOnDrop(Arc::clone(&stop));
        let last_panic = self.last_panic;
        let job = tokio::task::spawn_blocking(move || {
            let result = guarded(work, &stop, (place, thread));
            result.unwrap_or_else(|()| Err(Problem::defect(&last_panic())))
        });
        match timeout_at(deadline, job).await {
            Ok(Ok(result)) => {
                drop(on_drop);
                result
            }
            Ok(Err(error)) => Err(Problem::defect(&error.to_string())),
            Err(_) => Err(Problem::new(
                StatusCode::GATEWAY_TIMEOUT,
                "compute_timeout",
                "the result takes longer than --request-timeout-s allows; ask for fewer requests or configurations",
            )),
        }
    }

    fn place(&self) -> Result<Place, Problem> {
        let before = self.present.fetch_add(1, Ordering::Relaxed);
        let place = Place(Arc::clone(&self.present));
        if before >= self.most_present {
            return Err(Problem::busy(format!(
                "{} requests run or wait, as many as --max-queued allows; try again later",
                self.most_present
            )));
        }
        Ok(place)
    }
}

/// Runs `work`; its thread and its place are free only after it. The error is a panic.
fn guarded<T>(
    work: impl FnOnce(&Stop) -> Result<T, Problem>,
    stop: &Stop,
    taken: (Place, OwnedSemaphorePermit),
) -> Result<Result<T, Problem>, ()> {
    let result = catch_unwind(AssertUnwindSafe(|| work(stop)));
    drop(taken);
    result.map_err(drop)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_multi_thread().enable_time().build().unwrap().block_on(future)
    }

    fn soon(seconds: u64) -> Instant {
        Instant::now() + Duration::from_secs(seconds)
    }

    #[test]
    fn a_full_queue_refuses_and_a_place_is_free_again_afterwards() {
        block_on(async {
            let jobs = Jobs::new(1, 0, String::new);
            let (release, wait) = mpsc::channel::<()>();
            let first = jobs.run(soon(600), move |_| wait.recv().map_err(|_| Problem::invalid("gone")));
            let second = async {
                let refused = jobs.run(soon(600), |_| Ok(())).await.unwrap_err();
                release.send(()).unwrap();
                refused
            };
            let (first, second) = tokio::join!(first, second);
            assert!(first.is_ok());
            assert!(format!("{second:?}").contains("1 requests run or wait"), "{second:?}");
            assert_eq!(jobs.run(soon(600), |_| Ok(7)).await.unwrap(), 7);
            assert_eq!(jobs.running_and_queued(), (0, 0));
        });
    }

    #[test]
    fn work_is_told_to_stop_when_its_time_is_up() {
        block_on(async {
            let jobs = Jobs::new(1, 1, String::new);
            let (told, stopped) = mpsc::channel();
            let work = move |stop: &Stop| {
                while !stop.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                told.send(()).map_err(|_| Problem::invalid("gone"))
            };
            let late = jobs.run(Instant::now() + Duration::from_millis(20), work).await.unwrap_err();
            assert!(format!("{late:?}").contains("compute_timeout"), "{late:?}");
            stopped.recv_timeout(Duration::from_secs(600)).unwrap();
        });
    }

    #[test]
    fn a_panic_is_a_defect_and_frees_the_thread() {
        block_on(async {
            let jobs = Jobs::new(1, 0, String::new);
            let broken = jobs.run::<()>(soon(600), |_| panic!("planted")).await.unwrap_err();
            assert!(format!("{broken:?}").contains("this is a defect"), "{broken:?}");
            assert_eq!(jobs.run(soon(600), |_| Ok(1)).await.unwrap(), 1);
        });
    }
}
