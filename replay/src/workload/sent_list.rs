//! A list of requests or sessions without times, sent at a rate or so many at once. Uses `request_source`, `starts`.

use ridgepoint::Result;
use ridgepoint::input::check;

use super::arrivals::ArrivalTimes;
use super::fixed_list::FixedList;
use super::seed::{Stream, generator};
use super::starts::{Concurrency, Starts, check_concurrency, check_rate};
use super::{GeneratedLoad, ReplicaShare, RequestSource, Workload, WorkloadRequest};

impl RequestSource {
    /// Returns the requests as a load that is sent as `load` says: its rate and burstiness, or its concurrency, of which one replica gets
    /// its share. Sessions start so.
    ///
    /// # Errors
    /// `ErrorKind::Invalid` for a rate, burstiness or concurrency that is out of range, or for a load without a rate and a concurrency.
    pub fn sent_as(&self, load: &GeneratedLoad, share: ReplicaShare, seed: u64) -> Result<Box<dyn Workload + Send>> {
        let number = match self {
            RequestSource::Requests(list) => list.requests().len(),
            RequestSource::Sessions(list) => list.sessions().len(),
        } as u64;
        let (mut problems, starts) = (Vec::new(), "starts");
        let starts = match (load.request_rate.map(|rate| share.rate_per_s(rate)), load.concurrency) {
            (Some(rate_per_s), None) => {
                check_rate(&mut problems, load.pattern(), rate_per_s, number, starts);
                check("load", problems)?;
                let rng = generator(seed, Stream::Arrivals, 0);
                Starts::Rate(ArrivalTimes::pattern(load.pattern(), rng, number, rate_per_s))
            }
            (None, Some(concurrency)) => {
                check_concurrency(&mut problems, concurrency, number, starts);
                check("load", problems)?;
                Starts::Concurrency(Concurrency::new(share.concurrency(concurrency), number))
            }
            _ => {
                return check("load", vec!["has no request_rate and no concurrency, or both".to_owned()])
                    .map(|()| self.workload());
            }
        };
        Ok(match self {
            RequestSource::Requests(list) => Box::new(SentList { list: list.clone(), next: 0, starts }),
            RequestSource::Sessions(list) => Box::new(list.started(starts)),
        })
    }
}

/// A list of requests, each sent at the next start.
struct SentList {
    list: FixedList,
    next: usize,
    starts: Starts,
}

impl Workload for SentList {
    fn next_arrival_ns(&self) -> Option<u64> {
        self.list.requests().get(self.next).and_then(|_| self.starts.next_ns())
    }

    fn next_request(&mut self) -> Option<WorkloadRequest> {
        let request = self.list.requests().get(self.next)?.clone();
        let arrival_ns = self.starts.start()?;
        self.next += 1;
        Some(WorkloadRequest { arrival_ns, ..request })
    }

    fn finished(&mut self, now_ns: u64, _stage: u32, _request: u32) {
        self.starts.ended(now_ns);
    }

    fn expected_requests(&self) -> Option<usize> {
        Some(self.list.requests().len())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Session, SessionList, Turn};
    use super::*;

    fn list() -> RequestSource {
        FixedList::new((1..=4).map(|tokens| WorkloadRequest::new(0, tokens, 5)).collect()).unwrap().into()
    }

    fn sent(load: &mut dyn Workload) -> Vec<(u64, u32)> {
        std::iter::from_fn(|| load.next_request()).map(|r| (r.arrival_ns, r.num_prompt_tokens)).collect()
    }

    #[test]
    fn a_loop_sends_the_rows_in_order_as_others_finish() {
        let load = GeneratedLoad { concurrency: Some(2), ..GeneratedLoad::default() };
        let mut load = list().sent_as(&load, ReplicaShare::new(1), 0).unwrap();
        assert_eq!(sent(&mut *load), [(0, 1), (0, 2)]);
        load.finished(70, 0, 1);
        assert_eq!((sent(&mut *load), load.expected_requests()), (vec![(70, 3)], Some(4)));
        load.finished(80, 0, 0);
        load.finished(90, 0, 2);
        assert_eq!(sent(&mut *load), [(80, 4)]);
    }

    #[test]
    fn a_rate_draws_the_times_from_the_seed() {
        let load = GeneratedLoad { request_rate: Some(2.0), ..GeneratedLoad::default() };
        let times = |rate, seed| {
            let load = GeneratedLoad { request_rate: Some(rate), ..load };
            sent(&mut *list().sent_as(&load, ReplicaShare::new(1), seed).unwrap())
        };
        assert_eq!(times(2.0, 1).len(), 4);
        assert_eq!(times(2.0, 1).iter().map(|(_, tokens)| *tokens).collect::<Vec<u32>>(), [1, 2, 3, 4]);
        assert_ne!(times(2.0, 1), times(2.0, 2));
        assert!(times(200.0, 1)[3].0 < times(2.0, 1)[3].0);
    }

    #[test]
    fn sessions_start_one_after_the_other() {
        let turn = |prompt, think_ns| Turn { request: WorkloadRequest::new(0, prompt, 1), think_ns };
        let session = |prompt| Session { turns: vec![turn(prompt, 0), turn(prompt + 1, 5)] };
        let list: RequestSource = SessionList::new(vec![session(10), session(20)]).unwrap().into();
        let load = GeneratedLoad { concurrency: Some(1), ..GeneratedLoad::default() };
        let mut load = list.sent_as(&load, ReplicaShare::new(1), 0).unwrap();
        assert_eq!(sent(&mut *load), [(0, 10)]);
        load.finished(100, 0, 0);
        assert_eq!(sent(&mut *load), [(105, 11)]);
        load.finished(200, 0, 1);
        assert_eq!(sent(&mut *load), [(200, 20)]);
    }

    #[test]
    fn a_load_without_starts_is_refused() {
        let error = list().sent_as(&GeneratedLoad::default(), ReplicaShare::new(1), 0).err().unwrap().to_string();
        assert!(error.contains("no request_rate"), "{error}");
    }
}
