//! Every state machine that several threads share, run through random schedules by `shuttle`: no deadlock, no lost
//! gradient, no lost or misplaced hook. `cargo test -p firebrand-core --features shuttle --lib schedules`
//! explores `SCHEDULES` (10,000) of them for each test.

use super::arrivals::{Arrivals, FirstArrival};
use super::grad_slot::{GradSlot, Sum};
use super::hook_table::HookTable;
use super::stamp::{Claims, Stamp};
use shuttle::thread;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

fn explore(test: impl Fn() + Send + Sync + 'static) {
    let schedules = std::env::var("SCHEDULES").ok().and_then(|n| n.parse().ok()).unwrap_or(10_000);
    shuttle::check_random(test, schedules);
}

type Log = Arc<Mutex<Vec<u32>>>;

/// What the hooks of a table note when they run.
fn run(table: &HookTable<Arc<u32>>) -> Vec<u32> {
    let mut seen = Vec::new();
    let Ok(()) = table.try_for_each(|hook| -> Result<(), Infallible> {
        seen.push(**hook);
        thread::yield_now();
        Ok(())
    });
    seen
}

/// Hooks are added and removed while two threads run them: everyone sees them in order of registration, those that
/// stay are always seen, and what is removed is dropped when all is over.
#[test]
fn hook_tables_change_while_they_run() {
    explore(|| {
        let table = Arc::new(HookTable::default());
        let removed = Arc::new(2);
        table.add(Arc::new(1));
        let handle = table.add(removed.clone());
        table.add(Arc::new(3));
        let runners: Vec<_> = (0..2)
            .map(|_| {
                let table = table.clone();
                thread::spawn(move || run(&table))
            })
            .collect();
        let adder = {
            let table = table.clone();
            thread::spawn(move || {
                table.add(Arc::new(4));
                table.insert(Arc::new(0), true);
            })
        };
        handle.remove();
        for runner in runners {
            let seen = runner.join().unwrap();
            assert!(seen.is_sorted(), "out of order: {seen:?}");
            assert!(seen.contains(&1) && seen.contains(&3), "lost: {seen:?}");
        }
        adder.join().unwrap();
        assert_eq!(run(&table), [0, 1, 3, 4]);
        assert_eq!(Arc::strong_count(&removed), 1, "a removed hook is dropped");
    });
}

/// A change counts for every run that begins after it, though another thread is running the hooks.
#[test]
fn changes_count_at_once() {
    explore(|| {
        let table = Arc::new(HookTable::default());
        table.add(Arc::new(1));
        let other = {
            let table = table.clone();
            thread::spawn(move || run(&table))
        };
        let handle = table.add(Arc::new(2));
        assert_eq!(run(&table), [1, 2]);
        handle.remove();
        assert_eq!(run(&table), [1]);
        other.join().unwrap();
    });
}

/// Three members of one run arrive on three threads, while another run has its own: each calls once, with all.
#[test]
fn multi_grad_arrivals() {
    explore(|| {
        let arrivals = Arc::new(Arrivals::<u32, u32>::new(4));
        let calls: Arc<Mutex<Vec<Vec<Option<u32>>>>> = Arc::default();
        let runs = [Arc::new(1), Arc::new(2)];
        let threads: Vec<_> = runs
            .iter()
            .flat_map(|run| (0..3).map(move |k| (run.clone(), k)))
            .map(|(run, k)| {
                let (arrivals, calls) = (arrivals.clone(), calls.clone());
                thread::spawn(move || {
                    // Member 3 is not part of these runs.
                    let Ok(ready) = arrivals.arrive(&run, k, Some(*run * 10 + k as u32), || Ok::<_, Infallible>(3));
                    calls.lock().unwrap().extend(ready);
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        let mut calls = calls.lock().unwrap().clone();
        calls.sort();
        let all = |run: u32| vec![Some(run * 10), Some(run * 10 + 1), Some(run * 10 + 2), None];
        assert_eq!(calls, [all(1), all(2)]);
    });
}

/// Of the arrivals of a run exactly one is the first.
#[test]
fn first_arrivals() {
    explore(|| {
        let first = Arc::new(FirstArrival::<u32>::new());
        let firsts: Log = Arc::default();
        let runs = [Arc::new(1), Arc::new(2)];
        let threads: Vec<_> = (0..6)
            .map(|k| {
                let (first, firsts, run) = (first.clone(), firsts.clone(), runs[k % 2].clone());
                thread::spawn(move || {
                    if first.arrive(&run) {
                        firsts.lock().unwrap().push(*run);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        let mut firsts = firsts.lock().unwrap().clone();
        firsts.sort();
        assert_eq!(firsts, [1, 2]);
    });
}

/// Four threads add to one gradient, some in place and some not, under the lock and outside it where others may watch:
/// nothing is lost, and no thread writes what another reads.
#[test]
fn gradients_add_up() {
    explore(|| {
        let slot = Arc::new(GradSlot::<Shared>::default());
        let threads: Vec<_> = (0..4)
            .map(|k: u32| {
                let slot = slot.clone();
                thread::spawn(move || {
                    let g = 1 << k;
                    let g = Arc::new((Mutex::new(g), AtomicBool::new(false)));
                    let in_place = move |_: &Shared| k % 2 == 0;
                    let Ok(()) = match k {
                        0 | 1 => slot.add(g, |old, g, may_write| Ok::<_, Infallible>(sum(old, g, may_write && k == 0))),
                        _ => {
                            let add = |old: Option<&Shared>, g, may_write| Ok(sum(old, g, may_write));
                            slot.add_watched(g, in_place, add, add)
                        }
                    };
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(*slot.get().unwrap().0.lock().unwrap(), 0b1111);
    });
}

/// A number, and whether it is being written.
type Shared = Arc<(Mutex<u32>, AtomicBool)>;

fn sum(old: Option<&Shared>, g: Shared, in_place: bool) -> Sum<Shared> {
    let number = |s: &Shared| *s.0.lock().unwrap();
    let Some(old) = old else { return Sum::New(g) };
    if in_place {
        assert!(!old.1.swap(true, SeqCst), "two write at once");
        thread::yield_now();
        *old.0.lock().unwrap() += number(&g);
        old.1.store(false, SeqCst);
        return Sum::InPlace;
    }
    let before = number(old);
    thread::yield_now();
    assert!(!old.1.load(SeqCst) && number(old) == before, "written while it is read");
    Sum::New(Arc::new((Mutex::new(before + number(&g)), AtomicBool::new(false))))
}

/// Two runs walk the same nodes: each finds its own indices whatever the other does, and both leave the stamps free.
#[test]
fn runs_share_nodes() {
    explore(|| {
        let nodes: Arc<[Stamp; 3]> = Arc::default();
        let walk = |run: u32, nodes: Arc<[Stamp; 3]>| {
            let mut claims = Claims::new(run);
            for (address, stamp) in nodes.iter().enumerate() {
                assert_eq!(claims.find(stamp, address), None);
                claims.claim(stamp, address, 10 + address as u32);
            }
            thread::yield_now();
            for (address, stamp) in nodes.iter().enumerate() {
                assert_eq!(claims.find(stamp, address), Some(10 + address as u32));
            }
            nodes.iter().for_each(|stamp| claims.release(stamp));
        };
        let shared = nodes.clone();
        let other = thread::spawn(move || walk(1, shared));
        walk(2, nodes.clone());
        other.join().unwrap();
        let mut after = Claims::new(3);
        for (address, stamp) in nodes.iter().enumerate() {
            after.claim(stamp, address, 7);
            assert_eq!(after.find(stamp, usize::MAX), Some(7), "the stamp itself was free");
        }
    });
}
