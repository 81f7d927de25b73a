//! The links over which KV moves between replicas, and how transfers share them.
#![expect(clippy::indexing_slicing, reason = "ends are numbered within their lists")]
#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "times are non-negative; floats saturate")]

/// A transfer under way.
#[derive(Debug)]
struct Moving {
    number: u32,
    from: usize,
    to: usize,
    left_bytes: f64,
    bytes_per_ns: f64,
    /// When it ends if no other begins or ends before.
    end_ns: u64,
}

/// Links of the replicas that send, then of those that receive.
///
/// # Formula
/// A transfer gets the smaller of two shares, of its sender's and its receiver's link: the link's rate over the number of transfers that it is an
/// end of. What a transfer leaves of its share of one end, since its other end is slower, no other gets.
#[derive(Debug)]
pub(super) struct TransferLinks {
    bytes_per_ns: Vec<f64>,
    active: Vec<u32>,
    moving: Vec<Moving>,
    now_ns: u64,
}

impl TransferLinks {
    /// Idle links of so many bytes per second each.
    pub(super) fn new(bytes_per_s: impl IntoIterator<Item = f64>) -> Self {
        let bytes_per_ns: Vec<f64> = bytes_per_s.into_iter().map(|rate| rate / 1e9).collect();
        TransferLinks { active: vec![0; bytes_per_ns.len()], bytes_per_ns, moving: Vec::new(), now_ns: 0 }
    }

    /// Queues bytes of request `number` behind its transfers in flight.
    pub(super) fn begin(&mut self, now_ns: u64, number: u32, (from, to): (usize, usize), bytes: f64) {
        self.advance(now_ns);
        match self.moving.iter_mut().find(|of| of.number == number) {
            Some(of) => of.left_bytes += bytes,
            None => {
                self.active[from] += 1;
                self.active[to] += 1;
                self.moving.push(Moving { number, from, to, left_bytes: bytes, bytes_per_ns: 0.0, end_ns: 0 });
            }
        }
        self.share();
    }

    /// When the next transfer ends.
    pub(super) fn next_end_ns(&self) -> Option<u64> {
        self.moving.iter().map(|of| of.end_ns).min()
    }

    /// Ends a transfer that is due by `now_ns`, of several the one that began first. Returns its request.
    pub(super) fn end(&mut self, now_ns: u64) -> Option<u32> {
        let at = self.moving.iter().position(|of| of.end_ns <= now_ns)?;
        self.advance(now_ns);
        let of = self.moving.remove(at);
        self.active[of.from] -= 1;
        self.active[of.to] -= 1;
        self.share();
        Some(of.number)
    }

    fn advance(&mut self, now_ns: u64) {
        let passed_ns = now_ns.saturating_sub(self.now_ns) as f64;
        self.now_ns = self.now_ns.max(now_ns);
        for of in &mut self.moving {
            let moved = if of.end_ns <= now_ns { of.left_bytes } else { of.bytes_per_ns * passed_ns };
            of.left_bytes = (of.left_bytes - moved).max(0.0);
        }
    }

    /// Gives each transfer its share.
    fn share(&mut self) {
        for of in &mut self.moving {
            let share = |end: usize| self.bytes_per_ns[end] / f64::from(self.active[end]);
            of.bytes_per_ns = share(of.from).min(share(of.to));
            let left_ns = if of.left_bytes > 0.0 { (of.left_bytes / of.bytes_per_ns).round() as u64 } else { 0 };
            of.end_ns = self.now_ns.saturating_add(left_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests that end, with their times, of transfers of (begin ns, from, to, bytes).
    fn ends(rates: &[f64], transfers: &[(u64, usize, usize, f64)]) -> Vec<(u32, u64)> {
        let mut links = TransferLinks::new(rates.iter().map(|bytes_per_ns| 1e9 * bytes_per_ns));
        let (mut found, mut next) = (Vec::new(), 0);
        loop {
            let begin_ns = transfers.get(next).map(|of| of.0);
            let Some(now_ns) = [begin_ns, links.next_end_ns()].into_iter().flatten().min() else { return found };
            if let Some(number) = links.end(now_ns) {
                found.push((number, now_ns));
            } else if let Some((_, from, to, bytes)) = transfers.get(next) {
                links.begin(now_ns, next as u32, (*from, *to), *bytes);
                next += 1;
            }
        }
    }

    #[test]
    fn transfers_that_share_an_end_take_twice_as_long() {
        // Senders 0 and 1, receivers 2 and 3, all of 2 bytes/ns: 100 bytes take 50 ns alone.
        let all = [2.0; 4];
        assert_eq!(ends(&all, &[(0, 0, 2, 100.0)]), [(0, 50)]);
        assert_eq!(ends(&all, &[(0, 0, 2, 100.0), (0, 0, 3, 100.0)]), [(0, 100), (1, 100)]);
        assert_eq!(ends(&all, &[(0, 0, 2, 100.0), (0, 1, 2, 100.0)]), [(0, 100), (1, 100)]);
        assert_eq!(ends(&all, &[(0, 0, 2, 100.0), (0, 1, 3, 100.0)]), [(0, 50), (1, 50)]);
        // The second begins when the first has moved 40 bytes. The first's other 60 take 60 ns, in which the second moves 60 of its own; its other
        // 40 take 20 ns.
        assert_eq!(ends(&all, &[(0, 0, 2, 100.0), (20, 0, 2, 100.0)]), [(0, 80), (1, 100)]);
    }

    #[test]
    fn a_slow_end_leaves_the_other_ends_share_unused() {
        // Receiver 2 takes 1 byte/ns, receiver 1 takes 8. Sender 0 has 8: each transfer's share is 4, of which the one to 2 uses 1.
        assert_eq!(ends(&[8.0, 8.0, 1.0], &[(0, 0, 1, 80.0), (0, 0, 2, 80.0)]), [(0, 20), (1, 80)]);
    }

    #[test]
    fn bytes_of_a_request_that_is_under_way_join_it_and_infinite_links_take_no_time() {
        let mut links = TransferLinks::new([1e9; 2]);
        links.begin(0, 7, (0, 1), 10.0);
        links.begin(4, 7, (0, 1), 10.0);
        assert_eq!(
            (links.next_end_ns(), links.end(19), links.end(20), links.next_end_ns()),
            (Some(20), None, Some(7), None)
        );
        let infinite = ends(&[f64::INFINITY; 2], &[(5, 0, 1, 1e12), (5, 0, 1, 1e12), (9, 0, 1, 0.0)]);
        assert_eq!(infinite, [(0, 5), (1, 5), (2, 9)]);
    }
}
