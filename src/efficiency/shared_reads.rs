//! Keys that several decodes of a step read because their prompts share KV blocks. Those that the L2 cache still holds are not read
//! from memory again.

use crate::units::larger;

/// Share of the time of reading keys from memory that reading them from L2 takes at least.
///
/// # Source
/// L2 of an H100 delivers 5.5 to 5.7 TB/s (Chips and Cheese, *Nvidia's H100*, 2023) against 3.35 TB/s of memory, of which decode kernels
/// reach two thirds; assumed for other GPUs.
const L2_SHARE: f64 = 0.5;

/// Repeated reads of keys by the decode attention of one layer.
#[derive(Debug, Clone, Copy)]
pub struct SharedReads {
    /// Tokens whose keys and values fit into L2.
    l2_tokens: f64,
}

impl SharedReads {
    /// For a cache of `l2_bytes` bytes and keys and values of `bytes_per_token` bytes.
    pub fn new(l2_bytes: f64, bytes_per_token: f64) -> Self {
        SharedReads { l2_tokens: if bytes_per_token > 0.0 { l2_bytes / bytes_per_token } else { 0.0 } }
    }

    /// Returns the keys read from HBM, or as many as take as long, of a call that reads `keys` keys and `shared` of them again.
    ///
    /// # Formula
    /// Thread blocks read the requests in any order, so between two reads of a key lies a random part of all keys. It is still in L2
    /// where that part fits: `c = min(1, L2 / keys)`, and with `n = keys / (keys − shared)` readers of a key the chance that one of
    /// the others was so recent is `1 − (1 − c)ⁿ`. Between two whole numbers of readers, some keys have one and some the other.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "beyond 2³¹ readers nothing is missed")]
    pub fn memory_keys(&self, keys: f64, shared: f64) -> f64 {
        let shared = if shared < keys { shared } else { keys };
        let distinct = larger(keys - shared, 1.0);
        let fits = if self.l2_tokens < keys { self.l2_tokens / keys } else { 1.0 };
        let readers = keys / distinct;
        let whole = readers as i32;
        let alone = 1.0 - fits;
        let missed = shared * alone.powi(whole) * (1.0 - (readers - f64::from(whole)) * fits);
        larger(distinct + missed, L2_SHARE * keys)
    }
}

#[allow(clippy::float_cmp)]
#[cfg(test)]
mod tests {
    use super::SharedReads;

    #[test]
    fn shared_keys_are_read_once_where_all_fit_into_the_cache() {
        let reads = SharedReads::new(4e6, 4096.0);
        assert_eq!(reads.memory_keys(900.0, 0.0), 900.0);
        assert_eq!(reads.memory_keys(900.0, 300.0), 600.0);
        // From L2 they take half as long.
        assert_eq!(reads.memory_keys(900.0, 899.0), 450.0);
    }

    #[test]
    fn fewer_shared_keys_are_found_the_more_are_read_between() {
        // Two readers of each of 1,000 keys, and room for 500: 1 − (1 − 1/4)² of the repeated reads are found.
        let reads = SharedReads::new(500.0, 1.0);
        assert!((reads.memory_keys(2000.0, 1000.0) - 1562.5).abs() < 1e-9);
        let read: Vec<f64> = [2e3, 2e4, 2e5, 2e6].map(|keys| reads.memory_keys(keys, 0.5 * keys) / keys).to_vec();
        assert!(read.is_sorted() && read[3] > 0.999, "{read:?}");
    }
}
