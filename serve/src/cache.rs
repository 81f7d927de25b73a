//! A cache of built values by text, bounded in bytes: those that were not used for longest go first. Requests for a value that is being
//! built wait for it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use tokio::sync::OnceCell;

use crate::problem::Problem;

/// Values by key.
#[derive(Debug)]
pub struct Cache<T> {
    entries: RwLock<HashMap<String, Arc<Entry<T>>>>,
    max_bytes: usize,
    /// Time of the last use, as a count of uses.
    uses: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
}

#[derive(Debug)]
struct Entry<T> {
    value: OnceCell<Arc<T>>,
    bytes: AtomicUsize,
    last_use: AtomicU64,
}

/// An entry that is being built. Without a value in the end, it leaves the cache.
struct Building<'a, T> {
    cache: &'a Cache<T>,
    key: &'a str,
    entry: Arc<Entry<T>>,
}

impl<T> Drop for Building<'_, T> {
    fn drop(&mut self) {
        if self.entry.value.initialized() {
            return;
        }
        let mut entries = self.cache.entries.write().unwrap_or_else(PoisonError::into_inner);
        // The map and this one hold it: nobody else builds it.
        if Arc::strong_count(&self.entry) <= 2
            && entries.get(self.key).is_some_and(|entry| Arc::ptr_eq(entry, &self.entry))
        {
            entries.remove(self.key);
        }
    }
}

impl<T> Cache<T> {
    /// An empty cache of at most `max_bytes`, as their builders estimate them.
    pub fn new(max_bytes: usize) -> Self {
        Cache {
            entries: RwLock::default(),
            max_bytes,
            uses: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    /// Hits and misses so far.
    pub fn hits_and_misses(&self) -> (u64, u64) {
        (self.hits.load(Ordering::Relaxed), self.misses.load(Ordering::Relaxed))
    }

    /// Entries and their bytes.
    pub fn size(&self) -> (usize, usize) {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        (entries.len(), entries.values().map(|entry| entry.bytes.load(Ordering::Relaxed)).sum())
    }

    /// The value of a key, if it is built.
    pub fn get(&self, key: &str) -> Option<Arc<T>> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.get(key)?;
        let value = entry.value.get()?.clone();
        self.touch(entry);
        self.hits.fetch_add(1, Ordering::Relaxed);
        Some(value)
    }

    /// The value of a key, which `build` makes with its size in bytes if it is not there.
    ///
    /// # Errors
    /// Those of `build`, which are not kept.
    pub async fn get_or_build(
        &self,
        key: &str,
        build: impl Future<Output = Result<(T, usize), Problem>>,
    ) -> Result<Arc<T>, Problem> {
        if let Some(found) = self.get(key) {
            return Ok(found);
        }
        self.misses.fetch_add(1, Ordering::Relaxed);
        let building = Building { cache: self, key, entry: self.entry(key) };
        let entry = &building.entry;
        let built = entry.value.get_or_try_init(|| async {
            let (value, bytes) = build.await?;
            entry.bytes.store(bytes + key.len(), Ordering::Relaxed);
            Ok::<_, Problem>(Arc::new(value))
        });
        let value = built.await?.clone();
        self.touch(entry);
        self.make_room();
        Ok(value)
    }

    fn touch(&self, entry: &Entry<T>) {
        entry.last_use.store(self.uses.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    }

    fn entry(&self, key: &str) -> Arc<Entry<T>> {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        let new = || {
            let (bytes, last_use) = (AtomicUsize::new(key.len()), AtomicU64::new(u64::MAX));
            Arc::new(Entry { value: OnceCell::new(), bytes, last_use })
        };
        Arc::clone(entries.entry(key.to_owned()).or_insert_with(new))
    }

    /// Removes built entries until the others fit.
    fn make_room(&self) {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        let mut bytes: usize = entries.values().map(|entry| entry.bytes.load(Ordering::Relaxed)).sum();
        while bytes > self.max_bytes {
            let built = entries.iter().filter(|(_, entry)| entry.value.initialized());
            let oldest = built.min_by_key(|(_, entry)| entry.last_use.load(Ordering::Relaxed));
            let Some(key) = oldest.map(|(key, _)| key.clone()) else { return };
            let removed = entries.remove(&key);
            bytes -= removed.map_or(0, |entry| entry.bytes.load(Ordering::Relaxed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    async fn built(cache: &Cache<u32>, key: &str, value: u32, bytes: usize) -> u32 {
        *cache.get_or_build(key, async { Ok((value, bytes)) }).await.unwrap()
    }

    #[test]
    fn the_value_that_was_not_used_for_longest_goes_first() {
        block_on(async {
            let cache = Cache::new(30);
            for (key, value) in [("a", 1), ("b", 2), ("c", 3)] {
                assert_eq!(built(&cache, key, value, 9).await, value);
            }
            assert_eq!(cache.get("a").as_deref(), Some(&1));
            built(&cache, "d", 4, 9).await;
            assert_eq!((cache.get("a").as_deref(), cache.get("b"), cache.size()), (Some(&1), None, (3, 30)));
            // A value that alone is too large is returned and not kept.
            assert_eq!(built(&cache, "e", 5, 1000).await, 5);
            assert_eq!(cache.get("e"), None);
            assert!(cache.size().1 <= 30);
        });
    }

    #[test]
    fn an_error_is_not_kept_and_a_build_that_is_dropped_leaves_nothing() {
        block_on(async {
            let cache: Cache<u32> = Cache::new(100);
            let failed = cache.get_or_build("a", async { Err(Problem::invalid("no")) }).await;
            assert!(failed.is_err());
            assert_eq!(cache.size(), (0, 0));
            {
                let mut never = Box::pin(cache.get_or_build("b", std::future::pending()));
                let waited = tokio::select! {
                    biased;
                    _ = &mut never => true,
                    () = async {} => false,
                };
                assert_eq!((waited, cache.size().0), (false, 1));
            }
            assert_eq!(cache.size(), (0, 0));
            assert_eq!(built(&cache, "a", 1, 1).await, 1);
        });
    }

    #[test]
    fn requests_for_one_value_build_it_once() {
        block_on(async {
            let cache = Cache::new(100);
            let (open, gate) = tokio::sync::oneshot::channel();
            let first = cache.get_or_build("a", async {
                gate.await.map_err(|_| Problem::invalid("gone"))?;
                Ok((1, 1))
            });
            let second = cache.get_or_build("a", async { Err(Problem::invalid("built twice")) });
            let opener = async {
                tokio::task::yield_now().await;
                open.send(()).unwrap();
            };
            let (first, second, ()) = tokio::join!(first, second, opener);
            assert_eq!((*first.unwrap(), *second.unwrap()), (1, 1));
        });
    }
}
