use super::*;

const KEPT: Kept = Kept {
    count_max: 2,
    age_max: Duration::from_secs(60),
};

fn jobs(jobs_max: usize) -> Jobs {
    Jobs::new(jobs_max, KEPT)
}

fn claim(jobs: &Jobs, name: &str, content: u8, now: Instant) -> Result<Claim, Status> {
    let content = Content::from([content; 32]);
    let priority = Priority::Normal;
    jobs.claim(name.to_owned(), content, ProofKind::PoRep, priority, now)
}

fn new(jobs: &Jobs, name: &str, content: u8, now: Instant) -> Arc<Job> {
    match claim(jobs, name, content, now) {
        Ok(Claim::New(job)) => job,
        Ok(Claim::Same(job)) => panic!("attached to {}", job.id),
        Err(status) => panic!("{status}"),
    }
}

fn finish(jobs: &Jobs, job: &Arc<Job>, end: End, now: Instant) {
    jobs.table().by_id.insert(job.id.clone(), Arc::clone(job));
    let mut answer = AwaitProofResponse::default();
    answer.set_status(end);
    jobs.finish(job, answer, now);
}

#[test]
fn a_name_stands_for_one_content_while_its_job_is_live() {
    let (jobs, now) = (jobs(8), Instant::now());
    let first = new(&jobs, "a", 1, now);
    assert!(matches!(claim(&jobs, "a", 1, now), Ok(Claim::Same(job)) if job.id == first.id));
    let conflict = claim(&jobs, "a", 2, now).err().expect("other content");
    assert_eq!(conflict.code(), tonic::Code::AlreadyExists);
    assert_eq!(jobs.live(), 1);

    finish(&jobs, &first, End::Completed, now);
    assert!(matches!(claim(&jobs, "a", 1, now), Ok(Claim::Same(job)) if job.id == first.id));
    let second = new(&jobs, "a", 2, now);
    assert_ne!(first.id, second.id);
    // The first job is known by its id, its name is the second one's.
    assert!(jobs.job(&first.id, now).is_ok());
    let back = claim(&jobs, "a", 1, now).err().expect("other content");
    assert_eq!(back.code(), tonic::Code::AlreadyExists);
}

#[test]
fn what_failed_is_tried_again() {
    let (jobs, now) = (jobs(8), Instant::now());
    for end in [End::Failed, End::Cancelled] {
        let first = new(&jobs, "a", 1, now);
        finish(&jobs, &first, end, now);
        let again = new(&jobs, "a", 1, now);
        finish(&jobs, &again, End::Cancelled, now);
    }
}

#[test]
fn jobs_without_a_name_are_all_new() {
    let (jobs, now) = (jobs(2), Instant::now());
    assert_ne!(new(&jobs, "", 1, now).id, new(&jobs, "", 1, now).id);
    let full = claim(&jobs, "", 1, now).err().expect("two are the most");
    assert_eq!(full.code(), tonic::Code::ResourceExhausted);
}

#[test]
fn results_are_kept_up_to_a_number_and_an_age() {
    let (jobs, now) = (jobs(8), Instant::now());
    let made: Vec<_> = ["a", "b", "c"]
        .iter()
        .map(|name| {
            let job = new(&jobs, name, 1, now);
            finish(&jobs, &job, End::Completed, now);
            job
        })
        .collect();
    let known = |at| {
        made.iter()
            .map(|job| jobs.job(&job.id, at).is_ok())
            .collect::<Vec<_>>()
    };
    assert_eq!(known(now), [false, true, true]);
    let later = now + KEPT.age_max;
    assert_eq!(known(later - Duration::from_nanos(1)), [false, true, true]);
    assert_eq!(known(later), [false, false, false]);
    assert!(jobs.table().by_name.is_empty());
    new(&jobs, "c", 1, later);
}

/// A client that cancels or fails again and again makes no proof go, nor the other way.
#[test]
fn proofs_and_ends_without_one_are_kept_apart() {
    let (jobs, now) = (jobs(8), Instant::now());
    let end = |name, end| {
        let job = new(&jobs, name, 1, now);
        finish(&jobs, &job, end, now);
        job
    };
    let proofs = ["a", "b"].map(|name| end(name, End::Completed));
    let cancelled = ["c", "d", "e"].map(|name| end(name, End::Cancelled));
    let failed = end("f", End::Failed);
    let known = |job: &Arc<Job>| jobs.job(&job.id, now).is_ok();
    assert!(proofs.iter().all(known));
    assert_eq!(cancelled.each_ref().map(known), [false, false, true]);
    assert!(known(&failed));
    end("g", End::Completed);
    assert_eq!(proofs.each_ref().map(known), [false, true]);
    assert!(known(&cancelled[2]) && known(&failed));
}

/// Whatever the clock says meanwhile.
#[test]
fn what_is_kept_for_no_time_is_not_kept() {
    let kept = Kept {
        age_max: Duration::ZERO,
        ..KEPT
    };
    let (jobs, now) = (Jobs::new(8, kept), Instant::now());
    for end in [End::Completed, End::Failed] {
        let job = new(&jobs, "a", 1, now);
        // It is known while it is live, and those who have it get the answer.
        jobs.admit(&job, Priority::Normal, || (), |_| (), Timeline::start());
        assert!(jobs.job(&job.id, now).is_ok());
        finish(&jobs, &job, end, now);
        assert_eq!(job.end(), Some(end));
        assert!(jobs.job(&job.id, now).is_err());
    }
    assert!(jobs.table().by_name.is_empty() && jobs.table().by_id.is_empty());
}

#[test]
fn a_known_job_is_raised_and_never_lowered() {
    let (jobs, now) = (jobs(8), Instant::now());
    let again = |priority| {
        let content = Content::from([1; 32]);
        let claimed = jobs.claim("a".to_owned(), content, ProofKind::PoRep, priority, now);
        match claimed {
            Ok(Claim::Same(job) | Claim::New(job)) => job,
            Err(status) => panic!("{status}"),
        }
    };
    let job = again(Priority::Low);
    // Before the engine has it, and between its submission and its admission.
    again(Priority::Normal);
    assert_eq!(job.priority(), Priority::Normal);
    let raised = Arc::new(Mutex::new(Vec::new()));
    let raise = {
        let raised = Arc::clone(&raised);
        move |priority| raised.lock().expect("no panic").push(priority)
    };
    let timeline = Timeline::start();
    jobs.admit(&job, Priority::Low, || (), raise, timeline);
    again(Priority::Low);
    again(Priority::Critical);
    again(Priority::Critical);
    again(Priority::High);
    let want = [Priority::Normal, Priority::Critical];
    assert_eq!(*raised.lock().expect("no panic"), want);
    assert_eq!(job.priority(), Priority::Critical);
    finish(&jobs, &job, End::Completed, now);
    again(Priority::Critical);
    assert_eq!(raised.lock().expect("no panic").len(), 2);
}

#[test]
fn a_finished_job_keeps_nothing_of_the_engine() {
    let (jobs, now) = (jobs(8), Instant::now());
    let job = new(&jobs, "a", 1, now);
    let given_up = Arc::new(AtomicBool::new(false));
    let timeline = Timeline::start();
    let give_up = {
        let given_up = Arc::clone(&given_up);
        move || given_up.store(true, Ordering::Relaxed)
    };
    jobs.admit(&job, Priority::Normal, give_up, |_| (), timeline.clone());
    timeline.time("queue", Some(0), || ());
    assert!(job.is_running());
    assert!(jobs.cancel(&job.id, now).expect("known"));
    assert!(given_up.load(Ordering::Relaxed));
    finish(&jobs, &job, End::Completed, now);
    assert_eq!(Arc::strong_count(&given_up), 1);
    assert!(job.in_engine().is_none());
    // It is known all the same, and nothing is left to give up.
    assert!(!jobs.cancel(&job.id, now).expect("known"));
}

#[test]
fn a_refused_job_leaves_nothing() {
    let (jobs, now) = (jobs(1), Instant::now());
    let job = new(&jobs, "a", 1, now);
    jobs.refuse(&job, status::internal("test"));
    assert_eq!(jobs.live(), 0);
    assert!(jobs.job(&job.id, now).is_err());
    new(&jobs, "a", 2, now);
}

#[test]
fn draining_refuses_what_is_new() {
    let (jobs, now) = (jobs(8), Instant::now());
    let job = new(&jobs, "a", 1, now);
    jobs.drain();
    assert!(matches!(claim(&jobs, "a", 1, now), Ok(Claim::Same(_))));
    let refused = claim(&jobs, "b", 1, now).err().expect("draining");
    assert_eq!(refused.code(), tonic::Code::Unavailable);
    finish(&jobs, &job, End::Completed, now);
    assert!(matches!(claim(&jobs, "a", 1, now), Ok(Claim::Same(_))));
}
