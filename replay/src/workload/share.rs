//! One replica's share of a load. Uses `request_source`.

use ridgepoint::Result;

use super::RequestSource;

/// The even share that one of several data-parallel replicas gets of a load.
///
/// ```
/// use ridgepoint_replay::workload::ReplicaShare;
///
/// let share = ReplicaShare::new(2);
/// assert_eq!((share.rate_per_s(20.0), share.requests(1001), share.concurrency(5)), (10.0, 501, 3));
/// assert_eq!(share.note(Some(20.0), None).as_deref(), Some("one of 2 replicas is replayed, with 10 of 20 requests/s"));
/// assert!(share.note(None, Some(5)).is_some_and(|note| note.ends_with("with 3 of 5 requests in flight, so that there are 6 over all replicas")));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplicaShare {
    replicas: u32,
}

impl ReplicaShare {
    /// The share of one of `replicas` replicas; 0 counts as 1.
    pub fn new(replicas: u32) -> Self {
        ReplicaShare { replicas: replicas.max(1) }
    }

    /// Whether there is one replica, which gets the whole load.
    pub(super) fn is_whole(self) -> bool {
        self.replicas == 1
    }

    /// The replica's requests per second.
    pub fn rate_per_s(self, total_per_s: f64) -> f64 {
        total_per_s / f64::from(self.replicas)
    }

    /// The replica's number of requests, rounded up.
    pub fn requests(self, total: u64) -> u64 {
        total.div_ceil(u64::from(self.replicas))
    }

    /// The replica's requests in flight, rounded up.
    pub fn concurrency(self, total: u32) -> u32 {
        total.div_ceil(self.replicas)
    }

    /// The replica's part of a list: every n-th request of n replicas. Of sessions it is every n-th session, whole, so that a session
    /// finds its earlier turns in the cache of its replica.
    ///
    /// # Errors
    /// Those of [`FixedList::new`](super::FixedList::new) and [`SessionList::new`](super::sessions::SessionList::new).
    pub fn list(self, list: impl Into<RequestSource>) -> Result<RequestSource> {
        let list = list.into();
        if self.replicas == 1 { Ok(list) } else { list.every_nth(self.replicas as usize) }
    }

    /// [`ReplicaShare::note`] with figures of the replica alone.
    pub fn note_on_figures(self, total_per_s: Option<f64>, concurrency: Option<u32>) -> Option<String> {
        self.note(total_per_s, concurrency)
            .map(|note| format!("{note}; throughput and counts are those of this replica"))
    }

    /// A note that one replica of several is replayed, with its rate or its requests in flight.
    pub fn note(self, total_per_s: Option<f64>, concurrency: Option<u32>) -> Option<String> {
        let share = match (total_per_s, concurrency) {
            (Some(total), _) => format!("{} of {total} requests/s", self.rate_per_s(total)),
            (None, Some(total)) => {
                let own = self.concurrency(total);
                let all = u64::from(own) * u64::from(self.replicas);
                let more = if all > u64::from(total) {
                    format!(", so that there are {all} over all replicas")
                } else {
                    String::new()
                };
                format!("{own} of {total} requests in flight{more}")
            }
            (None, None) => "an even share of the load".to_owned(),
        };
        (self.replicas > 1).then(|| format!("one of {} replicas is replayed, with {share}", self.replicas))
    }
}
