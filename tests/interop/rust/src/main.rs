// SPDX-License-Identifier: MIT
// main.rs - the lock of rslock, as a neighbour. See ../../common.sh.
use rslock::{LockError, LockManager};
use std::io::Write;
use std::time::Duration;
use std::{env, fs, path::Path, process, thread};

/// The section that the lock protects.
fn section(file: &str) {
    let marker = format!("{file}.in");
    if fs::OpenOptions::new().write(true).create_new(true).open(&marker).is_err() {
        println!("OVERLAP");
        process::exit(1);
    }
    let n: u64 = fs::read_to_string(file).unwrap().trim().parse().unwrap();
    thread::sleep(Duration::from_millis(2));
    fs::write(file, format!("{}\n", n + 1)).unwrap();
    let mut log = fs::OpenOptions::new().create(true).append(true).open(format!("{file}.log")).unwrap();
    writeln!(log, "theirs").unwrap();
    fs::remove_file(&marker).unwrap();
}

// rust-worker CLIENT try|hold|count SOCKET KEY ROUNDS FILE
#[tokio::main(flavor = "current_thread")]
async fn main() {
    let a: Vec<String> = env::args().collect();
    let (what, socket, key, file) = (a[2].as_str(), &a[3], a[4].as_str(), a[6].as_str());
    let mut manager = LockManager::new(vec![format!("redis+unix://{socket}")]);
    manager.set_retry(if what == "try" { 1 } else { 100_000 }, Duration::from_millis(5));
    let rounds: u64 = if what == "count" { a[5].parse().unwrap() } else { 1 };
    for _ in 0..rounds {
        let lock = match manager.lock(key, Duration::from_secs(10)).await {
            Ok(lock) => lock,
            Err(LockError::Unavailable) if what == "try" => process::exit(3),
            Err(e) => {
                eprintln!("worker: {e}");
                process::exit(1);
            }
        };
        match what {
            "hold" => {
                fs::write(format!("{file}.held"), "").unwrap();
                while !Path::new(&format!("{file}.go")).exists() {
                    thread::sleep(Duration::from_millis(10));
                }
            }
            "count" => section(file),
            _ => (),
        }
        manager.unlock(&lock).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
