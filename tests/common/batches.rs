//! Random batches for laws.

use proptest::prelude::*;
use ridgepoint::Request;

pub fn any_request() -> impl Strategy<Value = Request> {
    let lengths = prop_oneof![
        4 => (1u32..4000, Just(1u32)),
        2 => (0u32..4000, 1u32..700),
        1 => (0u32..20, 1u32..20),
        1 => (0u32..200_000, 1u32..20_000),
    ];
    (lengths, any::<bool>()).prop_map(|((c, q), samples)| Request::new(c, q, samples))
}

pub fn any_batch() -> impl Strategy<Value = Vec<Request>> {
    let decode = (1u32..8000).prop_map(Request::decode);
    prop_oneof![prop::collection::vec(any_request(), 1..40), prop::collection::vec(decode, 1..300)]
}

/// Whatever fits the types, requests that schedule nothing among it.
pub fn absurd_batch() -> impl Strategy<Value = Vec<Request>> {
    let length = prop_oneof![any::<u32>(), Just(u32::MAX), Just(0), 0u32..10_000];
    let request = (length.clone(), length, any::<bool>());
    let request = request.prop_map(|(c, q, samples)| Request::new(c, q, samples));
    prop::collection::vec(request, 0..30)
}
