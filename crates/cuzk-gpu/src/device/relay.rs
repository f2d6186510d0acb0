//! Several proofs that go through one key together: who gathers, and whose turn it is.
//!
//! A key that is streamed crosses the bus once a pass. Proofs of it that are ready at the
//! same time make one pass: each piece is brought once, and each proof in turn sums it
//! before the next one comes. What a proof uses while it has the baton is nobody else's
//! then. One that fails leaves the others running.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Poll, Waker};

use super::oneshot::{self, oneshot};
use super::turn::News;

/// The proofs of one pass. In each lap everyone who still runs has the baton once, in the
/// order of their numbers.
pub(crate) struct Relay(RefCell<Laps>);

struct Laps {
    lap: usize,
    /// Whose turn it is, and whether the baton is out.
    at: usize,
    is_out: bool,
    /// Who still runs, and what wakes those who wait.
    is_running: Vec<bool>,
    waiting: Vec<Option<Waker>>,
}

impl Relay {
    /// Everyone of a relay of so many.
    pub(crate) fn of(count: usize) -> Vec<Runner> {
        let relay = Rc::new(Self(RefCell::new(Laps {
            lap: 0,
            at: 0,
            is_out: false,
            is_running: vec![true; count],
            waiting: vec![None; count],
        })));
        let runner = |number| Runner {
            relay: Rc::clone(&relay),
            number,
            lap: 0,
        };
        (0..count).map(runner).collect()
    }
}

impl Laps {
    /// On to the next who runs, in this lap or the one after.
    fn advance(&mut self) -> Option<Waker> {
        self.is_out = false;
        if !self.is_running.contains(&true) {
            return None;
        }
        loop {
            self.at += 1;
            if self.at == self.is_running.len() {
                (self.at, self.lap) = (0, self.lap + 1);
            }
            if self.is_running[self.at] {
                return self.waiting[self.at].take();
            }
        }
    }
}

/// One of a relay. It leaves when dropped.
pub(crate) struct Runner {
    relay: Rc<Relay>,
    number: usize,
    /// The lap that it runs next.
    lap: usize,
}

impl Runner {
    /// Waits for the baton of its next lap.
    pub(crate) async fn turn(&mut self) -> Baton {
        poll_fn(|context| {
            let mut laps = self.relay.0.borrow_mut();
            if laps.lap == self.lap && laps.at == self.number && !laps.is_out {
                laps.is_out = true;
                return Poll::Ready(());
            }
            laps.waiting[self.number] = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
        self.lap += 1;
        Baton(Rc::clone(&self.relay))
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        let waker = {
            let mut laps = self.relay.0.borrow_mut();
            laps.is_running[self.number] = false;
            // Of a baton that is out the drop sees to what follows.
            match laps.at == self.number && !laps.is_out {
                true => laps.advance(),
                false => None,
            }
        };
        wake(waker);
    }
}

/// The turn, passed on when dropped.
pub(crate) struct Baton(Rc<Relay>);

impl Drop for Baton {
    fn drop(&mut self) {
        let waker = self.0.0.borrow_mut().advance();
        wake(waker);
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// Where proofs gather that could go together: those with equal `K`. Who leads hands each
/// of the others a `T`.
pub(crate) struct Lobby<K, T> {
    guests: RefCell<Vec<Entry<K, T>>>,
    next: Cell<u64>,
    news: News,
}

struct Entry<K, T> {
    number: u64,
    key: K,
    /// How it is invited, once it is ready.
    invite: Option<oneshot::Sender<T>>,
}

impl<K, T> Default for Lobby<K, T> {
    fn default() -> Self {
        Self {
            guests: RefCell::default(),
            next: Cell::default(),
            news: News::default(),
        }
    }
}

impl<K: PartialEq + Clone, T> Lobby<K, T> {
    /// A guest that is on its way.
    pub(crate) fn enter(&self, key: K) -> Guest<'_, K, T> {
        let number = self.next.replace(self.next.get() + 1);
        let entry = Entry {
            number,
            key: key.clone(),
            invite: None,
        };
        self.guests.borrow_mut().push(entry);
        Guest {
            lobby: self,
            number,
            key,
            invited: None,
        }
    }
}

/// One of a lobby, in the order in which they came. It leaves when dropped.
pub(crate) struct Guest<'a, K: PartialEq + Clone, T> {
    lobby: &'a Lobby<K, T>,
    number: u64,
    key: K,
    invited: Option<oneshot::Receiver<T>>,
}

/// What comes first.
pub(crate) enum First<A, T> {
    /// What was waited for.
    Own(A),
    /// Somebody else's invitation.
    Invited(T),
}

impl<K: PartialEq + Clone, T> Guest<'_, K, T> {
    /// From now on it may be invited.
    pub(crate) fn ready(&mut self) {
        let (invite, invited) = oneshot();
        self.invited = Some(invited);
        let mut guests = self.lobby.guests.borrow_mut();
        let entry = guests.iter_mut().find(|entry| entry.number == self.number);
        entry.expect("it has not left").invite = Some(invite);
        drop(guests);
        self.lobby.news.tell();
    }

    /// Waits until `count` of its key are ready, itself among them, or all of them, and then
    /// for what it needs to lead them, unless it is invited before. What came too late, when
    /// those that were ready had gone with another, is given back: those on their way may
    /// need it.
    pub(crate) async fn enough<A, Own>(
        &mut self,
        count: usize,
        own: impl Fn() -> Own,
    ) -> First<A, T>
    where
        Own: Future<Output = A>,
    {
        let lobby = self.lobby;
        loop {
            let moment = lobby.news.now();
            if !self.has_enough(count) {
                if let First::Invited(with) = self.or_invited(lobby.news.since(moment)).await {
                    return First::Invited(with);
                }
                continue;
            }
            match self.or_invited(own()).await {
                First::Own(_) if !self.has_enough(count) => {}
                first => return first,
            }
        }
    }

    /// Whether `count` of its key are ready, or none is on its way.
    fn has_enough(&self, count: usize) -> bool {
        let (ready, coming) = self.of_its_key();
        coming == 0 || ready >= count
    }

    /// How many of its key are ready, and how many on their way.
    fn of_its_key(&self) -> (usize, usize) {
        let guests = self.lobby.guests.borrow();
        let of_key = guests.iter().filter(|entry| entry.key == self.key);
        let (ready, coming): (Vec<_>, Vec<_>) = of_key.partition(|entry| entry.invite.is_some());
        (ready.len(), coming.len())
    }

    /// Waits for something, unless it is invited before.
    async fn or_invited<A>(&mut self, own: impl Future<Output = A>) -> First<A, T> {
        let mut own = pin!(own);
        let invited = self.invited.as_mut().expect("it is ready");
        poll_fn(|context| {
            if let Poll::Ready(Some(with)) = Pin::new(&mut *invited).poll(context) {
                return Poll::Ready(First::Invited(with));
            }
            own.as_mut().poll(context).map(First::Own)
        })
        .await
    }

    /// Takes up to `count` others of its key that are ready, those first who came first.
    /// None of them, nor itself, is counted or invited any more.
    pub(crate) fn lead(&mut self, count: usize) -> Vec<oneshot::Sender<T>> {
        let mut invites = Vec::new();
        self.lobby.guests.borrow_mut().retain_mut(|entry| {
            if entry.number == self.number {
                return false;
            }
            if entry.key != self.key || invites.len() == count {
                return true;
            }
            let invite = entry.invite.take();
            let stays = invite.is_none();
            invites.extend(invite);
            stays
        });
        self.lobby.news.tell();
        invites
    }
}

impl<K: PartialEq + Clone, T> Drop for Guest<'_, K, T> {
    fn drop(&mut self) {
        let mut guests = self.lobby.guests.borrow_mut();
        guests.retain(|entry| entry.number != self.number);
        drop(guests);
        self.lobby.news.tell();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::super::executor::give_way;
    use super::super::executor::tests::run_all;
    use super::super::turn::Turn;
    use super::*;

    type Task<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

    #[test]
    fn each_lap_is_run_by_all_in_their_order_and_by_one_at_a_time() {
        let seen = RefCell::new(Vec::new());
        let is_out = Cell::new(false);
        let tasks = Relay::of(3)
            .into_iter()
            .rev()
            .map(|mut runner| -> Task<'_> {
                let (seen, is_out) = (&seen, &is_out);
                Box::pin(async move {
                    for lap in 0..4 {
                        let _baton = runner.turn().await;
                        assert!(!is_out.replace(true), "one at a time");
                        give_way().await;
                        seen.borrow_mut().push((lap, runner.number));
                        is_out.set(false);
                    }
                })
            });
        run_all(tasks.collect());
        let expected: Vec<_> = (0..4)
            .flat_map(|lap| (0..3).map(move |number| (lap, number)))
            .collect();
        assert_eq!(seen.into_inner(), expected);
    }

    /// Whoever leaves, with the baton, before its turn, after it, or before the start:
    /// the others run all laps.
    #[test]
    fn who_leaves_is_passed_over() {
        for leaver in 0..3 {
            for (laps, has_baton) in [(0, false), (0, true), (1, false), (2, true)] {
                let seen = RefCell::new(Vec::new());
                let tasks = Relay::of(3).into_iter().map(|mut runner| -> Task<'_> {
                    let seen = &seen;
                    Box::pin(async move {
                        for lap in 0..4 {
                            let is_last = runner.number == leaver && lap == laps;
                            if is_last && !has_baton {
                                return;
                            }
                            let _baton = runner.turn().await;
                            give_way().await;
                            if is_last {
                                return;
                            }
                            seen.borrow_mut().push((lap, runner.number));
                        }
                    })
                });
                run_all(tasks.collect());
                let expected: Vec<_> = (0..4)
                    .flat_map(|lap| (0..3).map(move |number| (lap, number)))
                    .filter(|&(lap, number)| number != leaver || lap < laps)
                    .collect();
                assert_eq!(seen.into_inner(), expected, "{leaver} {laps} {has_baton}");
            }
        }
    }

    /// Proofs with these keys, all there at once, in passes of up to `count`: the numbers
    /// of those that went together. From number `late` on they need a turn to compute
    /// before they are ready, which the first pass keeps for a while.
    fn passes(keys: &[char], count: usize, late: usize) -> Vec<Vec<usize>> {
        let lobby = Lobby::<char, usize>::default();
        let (uploads, compute) = (Turn::new(()), Turn::new(()));
        let led_by = RefCell::new(vec![Vec::new(); keys.len()]);
        let a_pass_before = async {
            let _turn = compute.take().await;
            for _ in 0..64 {
                give_way().await;
            }
        };
        let tasks = keys.iter().enumerate().map(|(number, &key)| -> Task<'_> {
            let (lobby, uploads, compute, led_by) = (&lobby, &uploads, &compute, &led_by);
            Box::pin(async move {
                let mut guest = lobby.enter(key);
                {
                    let _turn = uploads.take().await;
                    give_way().await;
                }
                if number >= late {
                    let _turn = compute.take().await;
                    give_way().await;
                }
                guest.ready();
                let leader = match guest.enough(count, || compute.take()).await {
                    First::Invited(leader) => leader,
                    First::Own(_turn) => {
                        let others = guest.lead(count - 1);
                        others.into_iter().for_each(|other| other.send(number));
                        give_way().await;
                        number
                    }
                };
                led_by.borrow_mut()[leader].push(number);
            })
        });
        let before: Task<'_> = Box::pin(a_pass_before);
        run_all(std::iter::once(before).chain(tasks).collect());
        let mut passes = led_by.into_inner();
        passes.iter_mut().for_each(|pass| pass.sort_unstable());
        passes.retain(|pass| !pass.is_empty());
        passes.sort_unstable();
        passes
    }

    #[test]
    fn those_on_their_way_are_waited_for_and_no_others() {
        assert_eq!(passes(&['a'; 4], 4, 4), [[0, 1, 2, 3]]);
        assert_eq!(passes(&['a'; 4], 2, 4), [[0, 1], [2, 3]]);
        assert_eq!(passes(&['a'; 3], 1, 0), [[0], [1], [2]]);
        let mixed = passes(&['a', 'b', 'a', 'b', 'a'], 4, 5);
        assert_eq!(mixed, [vec![0, 2, 4], vec![1, 3]]);
    }

    /// The fifth was ready with four others, who then went without it.
    #[test]
    fn who_is_left_over_waits_again_for_those_on_their_way() {
        assert_eq!(passes(&['a'; 8], 4, 5), [[0, 1, 2, 3], [4, 5, 6, 7]]);
        assert_eq!(passes(&['a'; 6], 4, 5), [vec![0, 1, 2, 3], vec![4, 5]]);
    }

    #[test]
    fn a_guest_that_leaves_is_waited_for_no_more() {
        let lobby = Lobby::<char, ()>::default();
        let led = Cell::new(None);
        let leaving = lobby.enter('a');
        let tasks: Vec<Task<'_>> = vec![
            Box::pin(async {
                let mut guest = lobby.enter('a');
                guest.ready();
                assert!(matches!(guest.enough(2, || async {}).await, First::Own(())));
                led.set(Some(guest.lead(1).len()));
            }),
            Box::pin(async {
                let leaving = leaving;
                give_way().await;
                drop(leaving);
            }),
        ];
        run_all(tasks);
        assert_eq!(led.get(), Some(0));
    }
}
