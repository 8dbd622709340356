//! The storage allocator as a whole process sees it: bounded whoever frees, counted right, emptied before it gives up.
//!
//! Counters are of the process, so each test runs in a process of its own: [`alone`] starts this program again.

use firebrand_kernels::{MemoryStats, Storage, empty_cache, memory_stats};
use std::sync::mpsc::sync_channel;

/// Runs `body` in a child process, with at most `kilobytes` of address space if that is given.
fn alone(test: &str, kilobytes: Option<usize>, body: fn()) {
    const CHILD: &str = "FIREBRAND_TEST_ALONE";
    if std::env::var(CHILD).is_ok_and(|name| name == test) {
        return body();
    }
    let program = std::env::current_exe().expect("this program");
    let mut child = std::process::Command::new("sh");
    let limit = kilobytes.map_or(String::new(), |k| format!("ulimit -v {k}; "));
    // `FIREBRAND_TEST_RUNNER`: the emulator under which this program runs, if it does.
    let run = "exec $FIREBRAND_TEST_RUNNER \"$0\"";
    child.arg("-c").arg(format!("{limit}{run} --exact {test} --test-threads 1")).arg(program);
    let out = child.env(CHILD, test).output().expect("a shell");
    let (text, errors) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success() && text.contains("1 passed"), "{}\n{text}\n{errors}", out.status);
}

fn new(bytes: usize) -> Storage {
    Storage::new(bytes).expect("memory")
}

const MIB: usize = 1 << 20;

/// One thread allocates and another frees, as a data loader's workers and its reader do.
#[test]
fn a_producer_and_a_consumer_need_a_bounded_amount() {
    alone("a_producer_and_a_consumer_need_a_bounded_amount", None, || {
        const ROUNDS: usize = 50_000;
        let (send, receive) = sync_channel::<Storage>(16);
        let producer = std::thread::spawn(move || {
            for i in 0..ROUNDS {
                send.send(new(4096 - i % 64)).expect("the consumer listens");
                send.send(new(MIB + i % 64)).expect("the consumer listens");
            }
        });
        let mut most = 0;
        for (i, storage) in receive.iter().enumerate() {
            drop(storage);
            if i % 1000 == 0 {
                most = most.max(memory_stats().reserved);
            }
        }
        producer.join().expect("the producer ends well");
        // 17 of each in flight, the lists of two threads, what a refill takes: far from the 50 GB that went through.
        assert!(most < 64 * MIB, "{most} bytes at most");
        let MemoryStats { live, reserved, cached, .. } = memory_stats();
        assert_eq!(live, 0);
        assert_eq!(reserved, cached, "the producer's list was handed over");
    })
}

/// Sizes that come once each do not pile up.
#[test]
fn ever_new_sizes_need_a_bounded_amount() {
    alone("ever_new_sizes_need_a_bounded_amount", None, || {
        for i in 1..2000 {
            drop(new(i * MIB / 8));
        }
        let MemoryStats { reserved, live, peak, .. } = memory_stats();
        assert_eq!(live, 0);
        assert!(reserved <= 2 * peak + 128 * MIB, "{reserved} bytes kept, {peak} were ever in use");
    })
}

/// A thread that only frees takes its list and its counts nowhere.
#[test]
fn threads_that_end_give_everything_back() {
    alone("threads_that_end_give_everything_back", None, || {
        for _ in 0..20 {
            let many: Vec<Storage> = (0..500).map(|i| new(1000 * (i % 7 + 1))).collect();
            let held = memory_stats();
            assert!(held.live >= 500 * 1000);
            std::thread::spawn(move || drop(many)).join().expect("it only frees");
            assert_eq!(memory_stats().live, 0);
        }
        // One that only allocates, and hands out what outlives it.
        let kept = std::thread::spawn(|| new(5000)).join().expect("it only allocates");
        assert_eq!(memory_stats().live, 5000);
        drop(kept);
        empty_cache();
        assert_eq!((memory_stats().live, memory_stats().cached, memory_stats().reserved), (0, 0, 0));
    })
}

/// Storages that live in thread-locals are freed while the thread ends, after or before its lists are.
#[test]
fn destructors_of_thread_locals_may_free_and_allocate() {
    struct Late(Vec<Storage>);
    impl Drop for Late {
        fn drop(&mut self) {
            self.0.clear();
            drop(new(300));
        }
    }
    thread_local!(static LATE: std::cell::RefCell<Late> = const { std::cell::RefCell::new(Late(Vec::new())) });
    alone("destructors_of_thread_locals_may_free_and_allocate", None, || {
        for first in [true, false] {
            let run = move || {
                let before = first.then(|| new(200));
                LATE.with(|l| l.borrow_mut().0.push(new(200)));
                drop(before);
            };
            std::thread::spawn(run).join().expect("the thread ends well");
            assert_eq!(memory_stats().live, 0);
        }
        empty_cache();
        assert_eq!(memory_stats().reserved, 0);
    })
}

/// What is kept for reuse is given back before memory is refused, and a refusal is an error.
#[cfg(target_os = "linux")]
#[test]
fn the_cache_is_emptied_before_memory_is_refused() {
    alone("the_cache_is_emptied_before_memory_is_refused", Some(2 << 20), || {
        let mut held = Vec::new();
        let refused = loop {
            match Storage::new(64 * MIB) {
                Ok(s) => held.push(s),
                Err(e) => break e,
            }
            assert!(held.len() < 40, "the limit does not hold");
        };
        assert!(refused.bytes == 64 * MIB && held.len() > 8, "{} blocks", held.len());
        let small = new(100); // there is still room for small ones
        drop(held);
        let cached = memory_stats().cached;
        assert!(cached > 512 * MIB, "{cached} bytes are kept");
        let large = new(1024 * MIB); // only fits once the others are gone
        assert!(memory_stats().cached < 64 * MIB);
        assert_eq!(large.view(firebrand_kernels::DType::U8, 1024 * MIB - 1, &[1], &[1]).numel() + small.nbytes(), 101);
        assert!(Storage::new(1024 * MIB).is_err(), "an error, again and again");
        assert!(Storage::new(1024 * MIB).is_err());
        drop(large);
        assert!(Storage::new(1024 * MIB).is_ok());
    })
}
