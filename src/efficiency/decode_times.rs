//! Decode attention at every pair of some numbers of requests and some of keys per request: fills the dense step-time
//! tables.

use std::cell::Cell;

use super::curve::{DecodeCurve, mean_attention};
use super::grid::Place;
use super::kernel_model::DecodeModel;
use crate::physics::AttentionHeads;
use crate::physics::attention::AttentionShape;

/// Keys per request that are remembered at a time: all that differ in their octave or in the first four bits behind it.
const REMEMBERED: usize = 512;

/// [`DecodeCurve::time`] for fixed heads, to fourteen digits and without the roofline bound. Remembers the parts that depend
/// on the requests alone, or on the keys alone.
#[derive(Debug)]
pub struct DecodeTimes<'a> {
    curve: &'a DecodeCurve,
    /// One request with one key.
    one: AttentionShape,
    requests: Cell<(f64, Place)>,
    keys: Vec<Cell<OfKeys>>,
}

#[derive(Debug, Clone, Copy)]
struct OfKeys {
    keys: f64,
    place: Place,
    split_us: f64,
}

impl<'a> DecodeTimes<'a> {
    pub(super) fn new(curve: &'a DecodeCurve, heads: AttentionHeads) -> Self {
        let nothing = OfKeys { keys: f64::NAN, place: Place::default(), split_us: 0.0 };
        let requests = Cell::new((f64::NAN, Place::default()));
        DecodeTimes {
            curve,
            one: mean_attention(1.0, 1.0, 1.0, 1.0, &heads),
            requests,
            keys: vec![Cell::new(nothing); REMEMBERED],
        }
    }

    /// Time of one call over `kv_tokens` keys of `requests` requests in all, µs.
    pub fn us(&self, requests: f64, kv_tokens: f64) -> f64 {
        let keys = kv_tokens / requests;
        let shape = AttentionShape { batch: requests, visible: keys, keys, ..self.one };
        let (c, chip, residuals) = self.curve.parts();
        let [keys, batch] = self.curve.point(&shape);
        let of_keys = self.of_keys(keys, shape.keys);
        let modelled_us = DecodeModel::tabulated_us(c, &shape, chip, of_keys.split_us);
        modelled_us * residuals.at(&[of_keys.place, self.of_requests(batch)]).0.exp()
    }

    fn of_requests(&self, batch: f64) -> Place {
        let (known, place) = self.requests.get();
        if known.to_bits() == batch.to_bits() {
            return place;
        }
        let place = self.curve.parts().2.place(1, batch);
        self.requests.set((batch, place));
        place
    }

    fn of_keys(&self, keys: f64, split_keys: f64) -> OfKeys {
        let remembered = &self.keys[(split_keys.to_bits() >> 48) as usize % REMEMBERED];
        let known = remembered.get();
        if known.keys.to_bits() == split_keys.to_bits() {
            return known;
        }
        let (c, _, residuals) = self.curve.parts();
        let found = OfKeys {
            keys: split_keys,
            place: residuals.place(0, keys),
            split_us: DecodeModel::split_us(c, split_keys),
        };
        remembered.set(found);
        found
    }
}
