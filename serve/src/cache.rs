//! Caches of built values by text, bounded in bytes. Requests for a value that is being built wait for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use moka::future::Cache as Moka;
use moka::policy::EvictionPolicy;

use crate::problem::Problem;

/// Values by key; those that were not used for longest go first.
pub struct Cache<T> {
    values: Moka<String, Built<T>>,
    hits: AtomicU64,
    misses: AtomicU64,
}

/// A value, and the bytes that it takes by an estimate of its builder.
struct Built<T> {
    value: Arc<T>,
    bytes: usize,
}

impl<T> Clone for Built<T> {
    fn clone(&self) -> Self {
        Built { value: Arc::clone(&self.value), bytes: self.bytes }
    }
}

impl<T: Send + Sync + 'static> Cache<T> {
    /// An empty cache of at most `max_bytes`.
    pub fn new(max_bytes: usize) -> Self {
        let weight = |key: &String, built: &Built<T>| u32::try_from(key.len() + built.bytes).unwrap_or(u32::MAX);
        let values = Moka::builder()
            .max_capacity(max_bytes as u64)
            .weigher(weight)
            .eviction_policy(EvictionPolicy::lru())
            .build();
        Cache { values, hits: AtomicU64::new(0), misses: AtomicU64::new(0) }
    }

    /// Hits and misses so far.
    pub fn hits_and_misses(&self) -> (u64, u64) {
        (self.hits.load(Ordering::Relaxed), self.misses.load(Ordering::Relaxed))
    }

    /// Bytes of all values and their keys.
    pub async fn bytes(&self) -> u64 {
        self.values.run_pending_tasks().await;
        self.values.weighted_size()
    }

    /// The value of a key, which `build` makes with its size in bytes if it is not there. Of several requests at once for a value one
    /// builds it.
    ///
    /// # Errors
    /// Those of `build`, which are not kept. If another request runs out of its time while it builds the value, this one builds it.
    pub async fn get_or_build<F>(&self, key: &str, build: impl Fn() -> F) -> Result<Arc<T>, Problem>
    where
        F: Future<Output = Result<(T, usize), Problem>>,
    {
        if let Some(found) = self.values.get(key).await {
            self.hits.fetch_add(1, Ordering::Relaxed);
            return Ok(found.value);
        }
        self.misses.fetch_add(1, Ordering::Relaxed);
        loop {
            let is_own = AtomicBool::new(false);
            let own = async {
                is_own.store(true, Ordering::Relaxed);
                let (value, bytes) = build().await?;
                Ok(Built { value: Arc::new(value), bytes })
            };
            let built: Result<_, Arc<Problem>> = self.values.try_get_with_by_ref(key, own).await;
            match built {
                Ok(built) => return Ok(built.value),
                Err(problem) if is_own.load(Ordering::Relaxed) || !problem.is_of_time() => {
                    return Err(Problem::clone(&problem));
                }
                Err(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use hyper::StatusCode;

    use super::*;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    async fn built(cache: &Cache<u32>, key: &str, value: u32, bytes: usize) -> u32 {
        *cache.get_or_build(key, || async { Ok((value, bytes)) }).await.unwrap()
    }

    #[test]
    fn the_value_that_was_not_used_for_longest_goes_first() {
        block_on(async {
            let cache = Cache::new(30);
            for (key, value) in [("a", 1), ("b", 2), ("c", 3)] {
                assert_eq!(built(&cache, key, value, 9).await, value);
            }
            // Uses are noted with the next count of bytes.
            assert_eq!(cache.bytes().await, 30);
            assert_eq!((built(&cache, "a", 9, 9).await, cache.bytes().await), (1, 30));
            built(&cache, "d", 4, 9).await;
            assert_eq!(cache.bytes().await, 30);
            assert_eq!((built(&cache, "a", 9, 9).await, built(&cache, "b", 9, 9).await), (1, 9));
            assert_eq!(cache.hits_and_misses(), (2, 5));
            // A value that alone is too large is returned and not kept.
            assert_eq!(built(&cache, "e", 5, 1000).await, 5);
            assert!(cache.bytes().await <= 30);
            assert_eq!(built(&cache, "e", 6, 1000).await, 6);
        });
    }

    #[test]
    fn an_error_is_not_kept_and_a_build_that_is_dropped_leaves_nothing() {
        block_on(async {
            let cache: Cache<u32> = Cache::new(100);
            let failed = cache.get_or_build("a", || async { Err(Problem::invalid("no")) }).await;
            assert!(failed.is_err());
            {
                let mut never = Box::pin(cache.get_or_build("b", std::future::pending));
                let waited = tokio::select! {
                    biased;
                    _ = &mut never => true,
                    () = async {} => false,
                };
                assert!(!waited);
            }
            assert_eq!(cache.bytes().await, 0);
            assert_eq!((built(&cache, "a", 1, 1).await, built(&cache, "b", 2, 1).await), (1, 2));
        });
    }

    #[test]
    fn requests_for_one_value_build_it_once() {
        block_on(async {
            let cache = Cache::new(100);
            let (gate, opened) = tokio::sync::watch::channel(false);
            let first = cache.get_or_build("a", || async {
                let _ = opened.clone().wait_for(|is_open| *is_open).await;
                Ok((1, 1))
            });
            let second = cache.get_or_build("a", || async { Err(Problem::invalid("built twice")) });
            let opener = async {
                tokio::task::yield_now().await;
                gate.send(true).unwrap();
            };
            let (first, second, ()) = tokio::join!(first, second, opener);
            assert_eq!((*first.unwrap(), *second.unwrap()), (1, 1));
        });
    }

    #[test]
    fn who_waited_for_a_request_that_ran_out_of_time_builds_the_value() {
        block_on(async {
            let cache = Cache::new(100);
            let late = || Problem::new(StatusCode::GATEWAY_TIMEOUT, "compute_timeout", "late");
            let first = cache.get_or_build("a", || async {
                tokio::task::yield_now().await;
                Err(late())
            });
            let second = cache.get_or_build("a", || async { Ok((2, 1)) });
            let (first, second) = tokio::join!(first, second);
            assert!(first.is_err());
            assert_eq!(*second.unwrap(), 2);
        });
    }
}
