//! An engine with planted prices: it takes all requests into each step, and a step lasts as long as its formula says.
#![allow(dead_code)]

use std::io::Result;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use super::mock::{After, Duplex, Incoming, Mock, end, events, last, piece, token};

/// Prices of a step, µs.
#[derive(Clone, Copy)]
pub struct Prices {
    pub step_us: f64,
    pub decode_us: f64,
    pub prefill_token_us: f64,
    /// Added to the first step of all.
    pub cold_us: f64,
}

impl Prices {
    pub fn step(&self, decodes: u64, prefill_tokens: u64) -> Duration {
        let us = self.step_us + self.decode_us * decodes as f64 + self.prefill_token_us * prefill_tokens as f64;
        Duration::from_secs_f64(us * 1e-6)
    }
}

struct Request {
    prompt_tokens: u64,
    left: u64,
    is_new: bool,
    out: Sender<()>,
}

/// Starts a server in front of such an engine.
pub fn start(prices: Prices) -> Mock {
    let (queue, arrivals) = channel::<Request>();
    std::thread::spawn(move || engine(prices, &arrivals));
    Mock::start(move |incoming, out| reply(&queue, incoming, out))
}

fn engine(prices: Prices, arrivals: &Receiver<Request>) {
    let (mut running, mut cold_us) = (Vec::<Request>::new(), prices.cold_us);
    loop {
        if running.is_empty() {
            let Ok(first) = arrivals.recv() else { return };
            running.push(first);
        }
        running.extend(arrivals.try_iter());
        let begin = Instant::now();
        let prefill: u64 = running.iter().filter(|of| of.is_new).map(|of| of.prompt_tokens).sum();
        let decodes = running.iter().filter(|of| !of.is_new).count() as u64;
        let period = prices.step(decodes, prefill) + Duration::from_secs_f64(std::mem::take(&mut cold_us) * 1e-6);
        std::thread::sleep((begin + period).saturating_duration_since(Instant::now()));
        running.retain_mut(|request| {
            request.is_new = false;
            request.left -= 1;
            request.out.send(()).is_ok() && request.left > 0
        });
    }
}

fn reply(queue: &Sender<Request>, incoming: &Incoming, out: &mut dyn Duplex) -> Result<After> {
    let (sender, tokens) = channel();
    let (prompt_tokens, left) = (incoming.prompt_tokens(), incoming.max_tokens());
    queue.send(Request { prompt_tokens, left, is_new: true, out: sender }).map_err(std::io::Error::other)?;
    events(out)?;
    for () in tokens {
        piece(out, token("a"))?;
    }
    piece(out, last(incoming, left))?;
    end(out)
}
