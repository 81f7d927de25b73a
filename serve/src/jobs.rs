//! Work that takes long, on threads of its own behind a bounded queue. Clients that wait get threads in turn. Work whose client is gone, or
//! whose time is up, gets a signal to stop.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hyper::StatusCode;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use crate::listen::Peer;
use crate::problem::Problem;

/// Threads and a queue before them.
#[derive(Debug)]
pub struct Jobs {
    queue: Arc<Mutex<Queue>>,
    max_queued: usize,
    num_threads: usize,
    /// Takes the text of the last panic.
    last_panic: fn() -> String,
}

/// The flag that stops a job.
pub type Stop = Arc<AtomicBool>;

/// The jobs that run, and those that wait.
#[derive(Debug, Default)]
struct Queue {
    free_threads: usize,
    running: HashMap<IpAddr, usize>,
    waiting: VecDeque<(IpAddr, oneshot::Sender<()>)>,
    /// When each client that waits got a thread last, as a number of such turns.
    last_turns: HashMap<IpAddr, u64>,
    num_turns: u64,
}

impl Queue {
    /// Gives free threads to clients with the fewest running jobs, and among these to the one whose last turn is longest ago.
    fn dispatch(&mut self) {
        self.waiting.retain(|(_, start)| !start.is_closed());
        while self.free_threads > 0 {
            let running = |peer: &IpAddr| self.running.get(peer).copied().unwrap_or(0);
            let last = |peer: &IpAddr| self.last_turns.get(peer).copied().unwrap_or(0);
            let next = self.waiting.iter().enumerate().min_by_key(|(at, (peer, _))| (running(peer), last(peer), *at));
            let Some((peer, start)) = next.map(|(at, _)| at).and_then(|at| self.waiting.remove(at)) else { return };
            if start.send(()).is_ok() {
                self.free_threads -= 1;
                *self.running.entry(peer).or_default() += 1;
                self.num_turns += 1;
                self.last_turns.insert(peer, self.num_turns);
            }
        }
    }

    /// Number of jobs of a client that wait.
    fn num_waiting(&self, peer: IpAddr) -> usize {
        self.waiting.iter().filter(|(of, _)| *of == peer).count()
    }

    /// Makes room for a client in a full queue: the client with most jobs in it loses its last one, if it has two more than this one.
    fn make_room(&mut self, peer: IpAddr) -> bool {
        let longest = self.waiting.iter().map(|(of, _)| (self.num_waiting(*of), *of)).max();
        let Some((_, longest)) = longest.filter(|(number, _)| *number > self.num_waiting(peer) + 1) else {
            return false;
        };
        let last = self.waiting.iter().rposition(|(of, _)| *of == longest);
        last.and_then(|at| self.waiting.remove(at)).is_some()
    }
}

/// A job that waits or runs.
struct Turn {
    queue: Arc<Mutex<Queue>>,
    peer: IpAddr,
    start: oneshot::Receiver<()>,
    has_thread: bool,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.start.close();
        let has_thread = self.has_thread || self.start.try_recv().is_ok();
        let mut queue = lock(&self.queue);
        if has_thread {
            queue.free_threads += 1;
            if let Some(running) = queue.running.get_mut(&self.peer) {
                *running = running.saturating_sub(1);
            }
            let Queue { running, waiting, last_turns, .. } = &mut *queue;
            running.retain(|_, running| *running > 0);
            last_turns.retain(|peer, _| running.contains_key(peer) || waiting.iter().any(|(of, _)| of == peer));
        }
        queue.dispatch();
    }
}

fn lock(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Stops the job when nobody waits for it any more.
struct StopOnDrop(Stop);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Jobs {
    /// `num_threads` jobs at once, and `max_queued` that wait. `last_panic` takes the text of the last panic.
    pub fn new(num_threads: usize, max_queued: usize, last_panic: fn() -> String) -> Self {
        let queue = Queue { free_threads: num_threads, ..Queue::default() };
        Jobs { queue: Arc::new(Mutex::new(queue)), max_queued, num_threads, last_panic }
    }

    /// Threads.
    pub fn num_threads(&self) -> usize {
        self.num_threads
    }

    /// Jobs that run, and jobs that wait.
    pub fn running_and_queued(&self) -> (usize, usize) {
        let queue = lock(&self.queue);
        let waiting = queue.waiting.iter().filter(|(_, start)| !start.is_closed()).count();
        (self.num_threads.saturating_sub(queue.free_threads), waiting)
    }

    /// Runs `work` for a client on one of the threads. Dropping the future stops it, as does the end of its time.
    ///
    /// # Errors
    /// A full queue, the end of its time, a panic, and what `work` returns.
    pub async fn run<T: Send + 'static>(
        &self,
        Peer(peer): Peer,
        deadline: Instant,
        work: impl FnOnce(&Stop) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let mut turn = self.queue_up(peer)?;
        match timeout_at(deadline, &mut turn.start).await {
            Ok(Ok(())) => turn.has_thread = true,
            Ok(Err(_)) => {
                return Err(Problem::busy("other clients wait, and this one has most of the queue; try again later"));
            }
            Err(_) => {
                return Err(Problem::busy("the request waited in the queue for all of its time; try again later"));
            }
        }
        let stop = Stop::default();
        let on_drop = StopOnDrop(Arc::clone(&stop));
        let last_panic = self.last_panic;
        let job = tokio::task::spawn_blocking(move || {
            let result = catch_unwind(AssertUnwindSafe(|| work(&stop)));
            // The thread is free only now.
            drop(turn);
            result.unwrap_or_else(|_| Err(Problem::defect(&last_panic())))
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

    fn queue_up(&self, peer: IpAddr) -> Result<Turn, Problem> {
        let (sender, start) = oneshot::channel();
        let mut queue = lock(&self.queue);
        queue.dispatch();
        if queue.free_threads == 0 && queue.waiting.len() >= self.max_queued && !queue.make_room(peer) {
            let message =
                format!("{} requests wait, as many as --max-queued allows; try again later", queue.waiting.len());
            return Err(Problem::busy(message));
        }
        queue.waiting.push_back((peer, sender));
        queue.dispatch();
        drop(queue);
        Ok(Turn { queue: Arc::clone(&self.queue), peer, start, has_thread: false })
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_multi_thread().enable_time().build().unwrap().block_on(future)
    }

    fn soon(seconds: u64) -> Instant {
        Instant::now() + Duration::from_secs(seconds)
    }

    fn peer(number: u8) -> Peer {
        Peer(Ipv4Addr::new(10, 0, 0, number).into())
    }

    #[test]
    fn a_full_queue_refuses_and_a_thread_is_free_again_afterwards() {
        block_on(async {
            let jobs = Jobs::new(1, 0, String::new);
            let (release, wait) = mpsc::channel::<()>();
            let first = jobs.run(peer(1), soon(600), move |_| wait.recv().map_err(|_| Problem::invalid("gone")));
            let second = async {
                let refused = jobs.run(peer(1), soon(600), |_| Ok(())).await.unwrap_err();
                release.send(()).unwrap();
                refused
            };
            let (first, second) = tokio::join!(first, second);
            assert!(first.is_ok());
            assert!(format!("{second:?}").contains("--max-queued"), "{second:?}");
            assert_eq!(jobs.run(peer(1), soon(600), |_| Ok(7)).await.unwrap(), 7);
            assert_eq!(jobs.running_and_queued(), (0, 0));
        });
    }

    #[test]
    fn work_is_stopped_when_its_time_is_up() {
        block_on(async {
            let jobs = Jobs::new(1, 1, String::new);
            let (sender, stopped) = mpsc::channel();
            let work = move |stop: &Stop| {
                while !stop.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                sender.send(()).map_err(|_| Problem::invalid("gone"))
            };
            let late = jobs.run(peer(1), Instant::now() + Duration::from_millis(20), work).await.unwrap_err();
            assert!(format!("{late:?}").contains("compute_timeout"), "{late:?}");
            stopped.recv_timeout(Duration::from_secs(600)).unwrap();
        });
    }

    #[test]
    fn a_panic_is_a_defect_and_frees_the_thread() {
        block_on(async {
            let jobs = Jobs::new(1, 0, String::new);
            let broken = jobs.run::<()>(peer(1), soon(600), |_| panic!("planted")).await.unwrap_err();
            assert!(format!("{broken:?}").contains("this is a defect"), "{broken:?}");
            assert_eq!(jobs.run(peer(1), soon(600), |_| Ok(1)).await.unwrap(), 1);
        });
    }

    #[test]
    fn a_client_with_many_jobs_does_not_keep_the_others_out() {
        block_on(async {
            let jobs = Arc::new(Jobs::new(1, 4, String::new));
            let (finished, order) = mpsc::channel();
            let (release, wait) = mpsc::channel::<()>();
            let start = |number, name: &'static str, work: Box<dyn FnOnce() + Send>| {
                let (jobs, finished) = (Arc::clone(&jobs), finished.clone());
                tokio::spawn(async move {
                    let ran = jobs.run(peer(number), soon(600), move |_| {
                        work();
                        finished.send(name).map_err(|_| Problem::invalid("gone"))
                    });
                    ran.await.is_ok()
                })
            };
            let running = start(
                1,
                "running",
                Box::new(move || {
                    let _ = wait.recv();
                }),
            );
            while jobs.running_and_queued() != (1, 0) {
                tokio::task::yield_now().await;
            }
            let mut greedy = Vec::new();
            for number in 1..=4 {
                greedy.push(start(1, "greedy", Box::new(|| ())));
                while jobs.running_and_queued() != (1, number) {
                    tokio::task::yield_now().await;
                }
            }
            // The queue is full. The last job of the client that fills it makes room, and the other one's comes first.
            let other = start(2, "other", Box::new(|| ()));
            assert!(!greedy.pop().unwrap().await.unwrap());
            release.send(()).unwrap();
            assert!(running.await.unwrap() && other.await.unwrap());
            for job in greedy {
                assert!(job.await.unwrap());
            }
            assert_eq!(order.try_iter().collect::<Vec<_>>(), ["running", "other", "greedy", "greedy", "greedy"]);
        });
    }
}
