// SPDX-License-Identifier: MIT
// main.rs - the lock of rslock, with tasks of tokio, on a thread for each core or on one thread
// (KIND one-thread). The protocol is in ../README.md.
use rslock::{Lock, LockManager};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};
use std::{env, process};
use tokio::runtime::Builder;
use tokio::time::sleep;

const LEASE: Duration = Duration::from_secs(10);

#[derive(Clone)]
struct Peer {
    manager: LockManager,
    started: Instant,
    workers: u64,
    warm: Duration,
    seconds: Duration,
    key: String,
}

impl Peer {
    fn now(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    async fn take(&self, name: &str) -> Lock {
        match self.manager.lock(name, LEASE).await {
            Ok(lock) => lock,
            Err(e) => {
                eprintln!("peer: {e}");
                process::exit(1);
            }
        }
    }

    fn begin(&self) -> u64 {
        self.now() + self.warm.as_nanos() as u64
    }

    async fn pairs(&self) {
        let (begin, mut tasks) = (self.begin(), vec![]);
        let end = begin + self.seconds.as_nanos() as u64;
        for i in 0..self.workers {
            let peer = self.clone();
            tasks.push(tokio::spawn(async move {
                let (name, mut took, mut t) = (format!("{}:{i}", peer.key), vec![], peer.now());
                while t < end {
                    let lock = peer.take(&name).await;
                    peer.manager.unlock(&lock).await;
                    let before = t;
                    t = peer.now();
                    if before >= begin && t <= end {
                        took.push((t - before) as f64 / 1000.0);
                    }
                }
                took
            }));
        }
        let (mut done, mut us) = (0, vec![]);
        for task in tasks {
            let took = task.await.unwrap();
            done += took.len();
            us = if self.workers == 1 { took } else { us };
        }
        println!("{{\"pairs\": {done}, \"seconds\": {}, \"us\": {us:?}}}", self.seconds.as_secs_f64());
    }

    async fn contended(&self) {
        let begin = self.begin();
        let end = begin + self.seconds.as_nanos() as u64;
        let events = Arc::new(Mutex::new(Vec::<[u64; 4]>::new()));
        for i in 0..self.workers {
            let (peer, events) = (self.clone(), events.clone());
            tokio::spawn(async move {
                while peer.now() < end {
                    let at = {
                        let mut e = events.lock().unwrap();
                        e.push([i, peer.now(), 0, 0]);
                        e.len() - 1
                    };
                    let lock = peer.take(&peer.key).await;
                    let got = peer.now();
                    events.lock().unwrap()[at][2] = got;
                    hold(got).await;
                    events.lock().unwrap()[at][3] = peer.now();
                    peer.manager.unlock(&lock).await;
                    sleep(Duration::from_micros(peer.workers * 250)).await;
                }
            });
        }
        sleep(self.warm + self.seconds).await;
        let e = events.lock().unwrap();
        println!("{{\"begin\": {begin}, \"end\": {}, \"events\": {:?}}}", self.now(), *e);
        process::exit(0);
    }

    async fn idle(&self) {
        let _lock = self.take(&self.key).await;
        println!("{{\"held\": 1}}");
        for _ in 0..self.workers {
            let peer = self.clone();
            tokio::spawn(async move { peer.take(&peer.key).await });
        }
        println!("{{\"waiting\": {}}}", self.workers);
        sleep(Duration::from_secs(600)).await;
    }

    async fn hold(&self) {
        let _lock = self.take(&self.key).await;
        println!("{{\"held\": 1}}");
        sleep(Duration::from_secs(600)).await;
    }

    async fn wait(&self) {
        println!("{{\"waiting\": 1}}");
        let lock = self.take(&self.key).await;
        println!("{{\"got\": 1}}");
        self.manager.unlock(&lock).await;
    }
}

/// In a thread for blocking work: the timers of tokio know whole milliseconds only.
async fn hold(seed: u64) {
    let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let ns = (seed ^ clock.as_nanos() as u64).wrapping_mul(0x9e3779b97f4a7c15) >> 32;
    let time = Duration::from_nanos(ns % 1_000_000);
    tokio::task::spawn_blocking(move || std::thread::sleep(time)).await.unwrap();
}

async fn run(a: Vec<String>) {
    let number = |i: usize| a[i].parse::<f64>().unwrap();
    let mut manager = LockManager::new(vec![format!("redis://127.0.0.1:{}/", a[2])]);
    // By default it gives up after 3 tries; the 200 ms are its own.
    let retry = if number(7) > 0.0 { number(7) as u64 } else { 200 };
    manager.set_retry(u32::MAX, Duration::from_millis(retry));
    let peer = Peer {
        manager,
        started: Instant::now(),
        workers: number(4) as u64,
        warm: Duration::from_secs_f64(number(5)),
        seconds: Duration::from_secs_f64(number(6)),
        key: a[8].clone(),
    };
    match a[3].as_str() {
        "pairs" => peer.pairs().await,
        "contended" => peer.contended().await,
        "idle" => peer.idle().await,
        "hold" => peer.hold().await,
        _ => peer.wait().await,
    }
}

fn main() {
    let a: Vec<String> = env::args().collect();
    let mut runtime = match a[1].as_str() {
        "one-thread" => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    runtime.enable_all().build().unwrap().block_on(run(a));
}
