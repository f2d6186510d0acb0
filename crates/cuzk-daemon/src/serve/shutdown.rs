//! How a server is told to end: first gently, then at once.

use tokio::sync::watch;

/// How far the end has come; it never goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Running,
    Draining,
    Stopping,
}

/// Tells a server to end. Dropping it tells nothing.
#[derive(Debug)]
pub struct ShutdownHandle(watch::Sender<Stage>);

/// What a server hears of its end.
#[derive(Clone, Debug)]
pub struct Shutdown(watch::Receiver<Stage>);

/// Both ends.
pub fn shutdown() -> (ShutdownHandle, Shutdown) {
    let (sender, receiver) = watch::channel(Stage::Running);
    (ShutdownHandle(sender), Shutdown(receiver))
}

impl ShutdownHandle {
    /// No new jobs; the running ones finish.
    pub fn drain(&self) {
        self.raise(Stage::Draining);
    }

    /// Ends now, whatever runs.
    pub fn stop(&self) {
        self.raise(Stage::Stopping);
    }

    fn raise(&self, stage: Stage) {
        self.0.send_if_modified(|now| {
            let raised = *now < stage;
            *now = stage.max(*now);
            raised
        });
    }
}

impl Shutdown {
    /// Returns when the server is to drain or to stop.
    pub(super) async fn drain(&mut self) {
        self.reach(Stage::Draining).await;
    }

    /// Returns when the server is to stop.
    pub(super) async fn stop(&mut self) {
        self.reach(Stage::Stopping).await;
    }

    /// Whether the server is to stop.
    pub(super) fn is_stopping(&self) -> bool {
        *self.0.borrow() == Stage::Stopping
    }

    async fn reach(&mut self, stage: Stage) {
        if self.0.wait_for(|now| *now >= stage).await.is_err() {
            // Nobody is left who could ask for it.
            std::future::pending::<()>().await;
        }
    }
}
