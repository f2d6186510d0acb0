//! Threads are counted, given in order, and given back whatever becomes of pieces.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use super::*;

const NORMAL: Priority = Priority::Normal;

fn normal() -> Priority {
    NORMAL
}

type Outcome = Result<Vec<usize>, Unfinished<&'static str>>;

/// Threads that work for anybody.
fn working(crew: &Crew) -> usize {
    lock(&crew.desk).working(|_| true)
}

#[test]
fn pieces_are_done_once_and_told_in_order() {
    for threads in 1..5 {
        let crew = Crew::new(threads);
        let done: Outcome = crew.run(
            normal,
            (10..30).collect(),
            || false,
            |index, piece| {
                assert_eq!(piece, index + 10);
                Ok(piece * 2)
            },
        );
        assert_eq!(done, Ok((10..30).map(|piece| piece * 2).collect()));
        assert_eq!(
            crew.run(
                normal,
                Vec::<()>::new(),
                || true,
                |_, ()| Err::<usize, _>("none")
            ),
            Ok(vec![])
        );
    }
}

/// Every piece waits for all others: they end only if all run at the same time.
#[test]
fn a_part_that_is_alone_has_all_threads() {
    let crew = Crew::new(4);
    let meeting = Barrier::new(4);
    let done: Outcome = crew.run(
        normal,
        (0..4).collect(),
        || false,
        |_, piece| {
            meeting.wait();
            Ok(piece)
        },
    );
    assert_eq!(done, Ok(vec![0, 1, 2, 3]));
}

#[test]
fn helpers_work_for_the_engine_of_the_part() {
    let engine = EngineId::new();
    let work = move || {
        EngineId::enter(Some(engine));
        let (crew, meeting) = (Crew::new(2), Barrier::new(2));
        let engines = crew.run(
            normal,
            vec![(); 2],
            || false,
            |_, ()| {
                meeting.wait();
                Ok::<_, &str>(EngineId::of_this_thread())
            },
        );
        assert_eq!(engines, Ok(vec![Some(engine); 2]));
    };
    std::thread::spawn(work).join().expect("as asserted");
    assert_eq!(EngineId::of_this_thread(), None);
    assert_ne!(EngineId::new(), engine);
}

/// Every inner piece waits for the other: they end only if the thread that began them is
/// counted once.
#[test]
fn a_piece_can_have_pieces_of_its_own() {
    let crew = Crew::new(2);
    let meeting = Barrier::new(2);
    let within = |fails: bool| {
        crew.run_within(
            normal,
            vec![1, 2],
            || false,
            |_, piece| {
                meeting.wait();
                assert!(!fails, "a fault of the test");
                Ok::<_, &str>(piece)
            },
        )
    };
    let panics = || catch_unwind(AssertUnwindSafe(|| within(true))).is_err();
    let working = || working(&crew);
    let done: Outcome = crew.run(
        normal,
        vec![0],
        || false,
        |_, _| {
            assert_eq!(within(false), Ok(vec![1, 2]));
            assert_eq!(working(), 1, "it has its place again");
            assert!(panics(), "whatever became of them");
            Ok(working())
        },
    );
    assert_eq!((done, working()), (Ok(vec![1]), 0));
    // One thread does all.
    let crew = Crew::new(1);
    let done: Outcome = crew.run(
        normal,
        vec![0],
        || false,
        |_, _| {
            let within = crew.run_within(normal, vec![5, 6], || false, |_, piece| Ok(piece));
            within
                .map(|pieces: Vec<usize>| pieces.len())
                .map_err(|_: Unfinished<&str>| "within")
        },
    );
    assert_eq!(done, Ok(vec![2]));
}

/// The part that came as that one.
fn number(came: u64) -> Number {
    (came, u64::MAX)
}

/// What those who want a thread may, and those who work must: threads that work for parts that
/// came late and want no other, and parts with whether they want one.
fn desk(threads: usize, working: &[(Priority, usize)], parts: &[(Priority, u64, bool)]) -> Desk {
    let late = working.iter().map(|&(priority, working)| {
        let seat = Seat {
            priority,
            working,
            wants: false,
        };
        (number(100 + priority as u64), seat)
    });
    let parts = parts.iter().map(|&(priority, came, wants)| {
        let seat = Seat {
            priority,
            working: 0,
            wants,
        };
        (number(came), seat)
    });
    Desk {
        threads,
        parts: late.chain(parts).collect(),
    }
}

#[test]
fn the_oldest_part_has_what_is_free() {
    let [old, young] = [1, 2].map(number);
    for (working, wanting, may) in [
        (3, [true, false], [true, false]),
        (4, [true, false], [false, false]),
        (3, [true, true], [true, false]),
        // The old one has no piece left to begin.
        (3, [false, true], [true, true]),
        (4, [false, true], [false, false]),
    ] {
        let parts = [(NORMAL, 1, wanting[0]), (NORMAL, 2, wanting[1])];
        let desk = desk(4, &[(NORMAL, working)], &parts);
        let seen = [old, young].map(|number| desk.may_take(number));
        assert_eq!(seen[1], may[1], "{working} {wanting:?}");
        if wanting[0] {
            assert_eq!(seen[0], may[0], "{working} {wanting:?}");
        }
    }
    // The young one lets threads go for the old one alone, its last one too.
    for working in [1, 4] {
        let desk = |is_wanting| {
            let parts = [(NORMAL, 1, is_wanting), (NORMAL, 2, true)];
            desk(4, &[(NORMAL, working)], &parts)
        };
        assert!(desk(true).must_let_go(young));
        assert!(!desk(true).must_let_go(old) && !desk(false).must_let_go(young));
    }
    // What a piece began goes before other pieces of its part, and after those of older ones.
    let parts = [(NORMAL, 1, false), (NORMAL, 2, true), (NORMAL, 3, true)];
    let mut desk = desk(4, &[], &parts);
    let seat = |wants| Seat {
        priority: NORMAL,
        working: 0,
        wants,
    };
    desk.parts.insert((2, 7), seat(true));
    assert!(desk.may_take((2, 7)) && !desk.may_take(young));
    desk.parts.insert(old, seat(true));
    assert!(!desk.may_take((2, 7)) && desk.may_take(old));
}

#[test]
fn a_higher_priority_waits_for_no_lower_one() {
    let (low, high) = (number(1), number(2));
    let both = [(NORMAL, 1, true), (Priority::High, 2, true)];
    // It begins while a lower one has all threads, and has as many.
    for count in 0..8 {
        let working = [(NORMAL, 8), (Priority::High, count)];
        assert!(desk(8, &working, &both).may_take(high));
    }
    let full = [(NORMAL, 8), (Priority::High, 8)];
    assert!(!desk(8, &full, &both).may_take(high));
    // The lower one lets its threads go meanwhile, but for one, and takes no other.
    let with_high = |own| {
        let parts = [(NORMAL, 1, true), (Priority::High, 2, false)];
        desk(8, &[(NORMAL, own), (Priority::High, 8)], &parts)
    };
    assert!(with_high(8).must_let_go(low) && with_high(2).must_let_go(low));
    assert!(!with_high(1).must_let_go(low) && !with_high(1).may_take(low));
    assert!(with_high(0).may_take(low), "it has one at any time");
    assert!(
        !with_high(1).must_let_go(high),
        "for which no other lets go"
    );
    // What the higher one cannot use it has.
    let half = |own| desk(8, &[(NORMAL, own), (Priority::High, 4)], &both[..1]);
    assert!(half(3).may_take(low) && !half(4).may_take(low));
    assert!(!half(4).must_let_go(low) && half(5).must_let_go(low));
}

/// A part comes late, while one that it is before has both threads: it has them when they
/// are let go, and all of its pieces are begun before another of the other part.
#[test]
fn a_part_that_one_came_before_is_served_after_it() {
    let crew = Crew::new(2);
    let order = Mutex::new(Vec::new());
    let (begun, go) = (Barrier::new(3), Barrier::new(3));
    let second = |index: usize, ()| {
        lock(&order).push("second");
        if index < 2 {
            begun.wait();
            go.wait();
        }
        Ok::<_, &str>(())
    };
    let first = |_: usize, ()| {
        lock(&order).push("first");
        Ok::<_, &str>(())
    };
    std::thread::scope(|scope| {
        // The first has its number before the second comes.
        let place = crew.came.fetch_add(1, Ordering::Relaxed);
        scope.spawn(|| crew.run(normal, vec![(); 4], || false, second));
        begun.wait();
        let state = State {
            left: 3,
            done: vec![None; 3],
            pieces: vec![(); 3].into_iter().enumerate(),
            end: None,
        };
        let run = Run {
            crew: &crew,
            number: number(place),
            engine: None,
            priority: normal,
            stop: || false,
            work: first,
            state: Mutex::new(state),
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let is_wanting = || lock(&crew.desk).parts.contains_key(&run.number);
                while !is_wanting() {
                    std::thread::yield_now();
                }
                go.wait();
            });
            run.start_workers(scope);
        });
    });
    // Its last piece is begun before theirs, and told at the same time.
    assert_eq!(lock(&order)[..4], ["second", "second", "first", "first"]);
    assert_eq!(lock(&order).len(), 7);
}

#[test]
fn nothing_begins_after_a_failure_or_a_stop() {
    let crew = Crew::new(1);
    let begun = AtomicUsize::new(0);
    let work = |_: usize, piece: usize| {
        begun.fetch_add(1, Ordering::Relaxed);
        if piece == 2 { Err("two") } else { Ok(piece) }
    };
    let failed: Outcome = crew.run(normal, (0..9).collect(), || false, work);
    assert_eq!(
        (failed, begun.load(Ordering::Relaxed)),
        (Err(Unfinished::Failed("two")), 3)
    );
    let stop = || begun.load(Ordering::Relaxed) >= 5;
    let stopped: Outcome = crew.run(normal, vec![0, 1, 3, 4], stop, work);
    assert_eq!(
        (stopped, begun.load(Ordering::Relaxed)),
        (Err(Unfinished::Stopped), 5)
    );
}

#[test]
fn a_panic_is_its_parts_alone() {
    let crew = Crew::new(3);
    let panic = catch_unwind(AssertUnwindSafe(|| {
        let _: Outcome = crew.run(
            normal,
            (0..9).collect(),
            || false,
            |_, piece| {
                assert_ne!(piece, 4, "a fault of the test");
                Ok(piece)
            },
        );
    }));
    let message = panic.expect_err("it panics");
    let message = message.downcast_ref::<String>().expect("a text");
    assert!(message.contains("a fault of the test"), "{message}");
    assert_eq!(working(&crew), 0, "its threads are given back");
    assert!(lock(&crew.desk).parts.is_empty());
    let done: Outcome = crew.run(normal, vec![1], || false, |_, piece| Ok(piece));
    assert_eq!(done, Ok(vec![1]));
}

/// Pieces that hang, until a test lets them go on.
fn hang(crew: &Crew, stop: &AtomicBool, begun: &Barrier, go: &Barrier) -> Outcome {
    crew.run(
        normal,
        vec![0, 1, 2],
        || stop.load(Ordering::SeqCst),
        |_, piece| {
            if piece < 2 {
                begun.wait();
                go.wait();
            }
            Ok(piece)
        },
    )
}

#[test]
fn threads_of_a_part_that_is_given_up_are_others() {
    let crew = Crew::new(2);
    let (begun, go) = (Barrier::new(3), Barrier::new(3));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let hangs = scope.spawn(|| hang(&crew, &stop, &begun, &go));
        begun.wait();
        let next =
            scope.spawn(|| -> Outcome { crew.run(normal, vec![5], || false, |_, five| Ok(five)) });
        stop.store(true, Ordering::SeqCst);
        crew.look_again();
        assert_eq!(next.join().expect("no panic"), Ok(vec![5]));
        go.wait();
        assert_eq!(hangs.join().expect("no panic"), Err(Unfinished::Stopped));
    });
    assert!(lock(&crew.desk).parts.is_empty());
}

/// A part that waits behind one that hangs is given up, and one is raised: neither waits for
/// the other to end.
#[test]
fn who_waits_for_a_thread_hears_that_it_stands_otherwise() {
    let crew = Crew::new(2);
    let (begun, go) = (Barrier::new(3), Barrier::new(3));
    let is_told = AtomicBool::new(false);
    let told = || is_told.load(Ordering::SeqCst);
    let raised = || if told() { Priority::High } else { NORMAL };
    let never = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let hangs = scope.spawn(|| hang(&crew, &never, &begun, &go));
        begun.wait();
        let stopped =
            scope.spawn(|| -> Outcome { crew.run(normal, vec![6], told, |_, six| Ok(six)) });
        let raised = scope
            .spawn(|| -> Outcome { crew.run(raised, vec![7], || false, |_, seven| Ok(seven)) });
        while lock(&crew.desk).parts.len() < 3 {
            std::thread::yield_now();
        }
        is_told.store(true, Ordering::SeqCst);
        crew.look_again();
        assert_eq!(stopped.join().expect("no panic"), Err(Unfinished::Stopped));
        assert_eq!(raised.join().expect("no panic"), Ok(vec![7]));
        go.wait();
        assert_eq!(hangs.join().expect("no panic"), Ok(vec![0, 1, 2]));
    });
    assert!(lock(&crew.desk).parts.is_empty());
}

/// A piece that has begun ends before the next of its part begins: what both hold is not held
/// at the same time if it need not be.
#[test]
fn pieces_of_a_piece_go_before_the_next_one() {
    let crew = Crew::new(1);
    let order = Mutex::new(Vec::new());
    let done: Outcome = crew.run(
        normal,
        vec![0, 1, 2],
        || false,
        |_, piece| {
            lock(&order).push((piece, "begins"));
            let within = |_, ()| {
                lock(&order).push((piece, "within"));
                Ok::<_, &str>(())
            };
            let within = crew.run_within(normal, vec![(); 2], || false, within);
            assert_eq!(within, Ok(vec![(); 2]));
            Ok(piece)
        },
    );
    assert_eq!(done, Ok(vec![0, 1, 2]));
    let want = |piece| [(piece, "begins"), (piece, "within"), (piece, "within")];
    assert_eq!(*lock(&order), [0, 1, 2].map(want).concat());
}
