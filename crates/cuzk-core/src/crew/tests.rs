//! Who is given a thread and who lets one go, from tables; that pieces are done once, and threads
//! given back whatever ends a part, with threads.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use super::*;

const NORMAL: Priority = Priority::Normal;

type Outcome = Result<Vec<usize>, Unfinished<&'static str>>;

/// Threads that work for anybody.
fn working(crew: &Crew) -> usize {
    lock(&crew.desk).working_from(Priority::Low)
}

#[test]
fn pieces_are_done_once_and_told_in_order() {
    for threads in 1..5 {
        let crew = Crew::new(threads);
        let done: Outcome = crew.run(
            NORMAL,
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
                NORMAL,
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
        NORMAL,
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
            NORMAL,
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
            NORMAL,
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
        NORMAL,
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
        NORMAL,
        vec![0],
        || false,
        |_, _| {
            let within = crew.run_within(NORMAL, vec![5, 6], || false, |_, piece| Ok(piece));
            within
                .map(|pieces: Vec<usize>| pieces.len())
                .map_err(|_: Unfinished<&str>| "within")
        },
    );
    assert_eq!(done, Ok(vec![2]));
}

/// The part that came as that number.
fn turn(priority: Priority, number: u64) -> Turn {
    (Reverse(priority), number)
}

/// What those who want a thread may, and those who work must.
fn desk(threads: usize, working: &[(Priority, usize)], wanting: &[Turn]) -> Desk {
    let mut desk = Desk::new(threads);
    for &(priority, count) in working {
        desk.working[priority as usize] = count;
    }
    desk.wanting.extend(wanting);
    desk
}

#[test]
fn the_oldest_part_has_what_is_free() {
    let [old, young] = [1, 2].map(|number| turn(NORMAL, number));
    for (working, wanting, may) in [
        (3, vec![old], [true, false]),
        (4, vec![old], [false, false]),
        (3, vec![old, young], [true, false]),
        // The old one has no piece left to begin.
        (3, vec![young], [true, true]),
        (4, vec![young], [false, false]),
    ] {
        let desk = desk(4, &[(NORMAL, working)], &wanting);
        let seen = [old, young].map(|turn| desk.may_take(turn));
        assert_eq!(seen[1], may[1], "{working} {wanting:?}");
        if wanting.contains(&old) {
            assert_eq!(seen[0], may[0], "{working} {wanting:?}");
        }
    }
    // The young one lets threads go for the old one alone, its last one too.
    for working in [1, 4] {
        let desk = |wanting: &[Turn]| desk(4, &[(NORMAL, working)], wanting);
        assert!(desk(&[old, young]).must_let_go(young));
        assert!(!desk(&[old, young]).must_let_go(old) && !desk(&[young]).must_let_go(young));
    }
}

#[test]
fn a_higher_priority_waits_for_no_lower_one() {
    let (normal, high) = (turn(NORMAL, 1), turn(Priority::High, 2));
    // It begins while a lower one has all threads, and has as many.
    for count in 0..8 {
        let working = [(NORMAL, 8), (Priority::High, count)];
        assert!(desk(8, &working, &[normal, high]).may_take(high));
    }
    let full = [(NORMAL, 8), (Priority::High, 8)];
    assert!(!desk(8, &full, &[normal, high]).may_take(high));
    // The lower one lets its threads go meanwhile, but for one, and takes no other.
    let with_high = |own| desk(8, &[(NORMAL, own), (Priority::High, 8)], &[normal]);
    assert!(with_high(8).must_let_go(normal) && with_high(2).must_let_go(normal));
    assert!(!with_high(1).must_let_go(normal) && !with_high(1).may_take(normal));
    assert!(with_high(0).may_take(normal), "it has one at any time");
    assert!(
        !with_high(1).must_let_go(high),
        "for which no other lets go"
    );
    // What the higher one cannot use it has.
    let half = |own| desk(8, &[(NORMAL, own), (Priority::High, 4)], &[normal]);
    assert!(half(3).may_take(normal) && !half(4).may_take(normal));
    assert!(!half(4).must_let_go(normal) && half(5).must_let_go(normal));
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
        scope.spawn(|| crew.run(NORMAL, vec![(); 4], || false, second));
        begun.wait();
        let state = State {
            left: 3,
            done: vec![None; 3],
            pieces: vec![(); 3].into_iter().enumerate(),
            end: None,
        };
        let run = Run {
            crew: &crew,
            turn: turn(NORMAL, place),
            engine: None,
            stop: || false,
            work: first,
            state: Mutex::new(state),
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let is_wanting = || lock(&crew.desk).wanting.contains(&run.turn);
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
    let failed: Outcome = crew.run(NORMAL, (0..9).collect(), || false, work);
    assert_eq!(
        (failed, begun.load(Ordering::Relaxed)),
        (Err(Unfinished::Failed("two")), 3)
    );
    let stop = || begun.load(Ordering::Relaxed) >= 5;
    let stopped: Outcome = crew.run(NORMAL, vec![0, 1, 3, 4], stop, work);
    assert_eq!(
        (stopped, begun.load(Ordering::Relaxed)),
        (Err(Unfinished::Stopped), 5)
    );
}

/// The only thread is let go after the part that waits for it was told to stop, and has.
#[test]
fn who_waits_for_a_thread_that_hangs_can_be_stopped() {
    let crew = Crew::new(1);
    let (begun, go) = (Barrier::new(2), Barrier::new(2));
    let stop = AtomicBool::new(false);
    let is_told = || stop.load(Ordering::Relaxed);
    let hangs = |_: usize, piece| {
        begun.wait();
        go.wait();
        Ok(piece)
    };
    let never = |_: usize, _: usize| -> Result<usize, &str> { panic!("no thread is free") };
    std::thread::scope(|scope| {
        let first = scope.spawn(|| -> Outcome { crew.run(NORMAL, vec![1], || false, hangs) });
        begun.wait();
        let second = scope.spawn(|| -> Outcome { crew.run(NORMAL, vec![2], is_told, never) });
        while lock(&crew.desk).wanting.is_empty() {
            std::thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
        crew.look_again();
        let second = second.join().expect("no piece of it is begun");
        assert_eq!(second, Err(Unfinished::Stopped));
        assert!(lock(&crew.desk).wanting.is_empty());
        go.wait();
        assert_eq!(first.join().expect("no panic"), Ok(vec![1]));
    });
}

#[test]
fn a_panic_is_its_parts_alone() {
    let crew = Crew::new(3);
    let panic = catch_unwind(AssertUnwindSafe(|| {
        let _: Outcome = crew.run(
            NORMAL,
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
    assert!(lock(&crew.desk).wanting.is_empty());
    let done: Outcome = crew.run(NORMAL, vec![1], || false, |_, piece| Ok(piece));
    assert_eq!(done, Ok(vec![1]));
}
