//! Ctrl-C: the first one asks to stop in order, a second one ends the process at once.

use tokio::sync::watch;

/// Becomes true, once, when the user asked to stop.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt(watch::Receiver<bool>);

impl Interrupt {
    /// Starts to listen; from here on Ctrl-C does not end the process by itself.
    pub(crate) fn listen() -> Self {
        let (sender, receiver) = watch::channel(false);
        tokio::spawn(async move {
            if tokio::signal::ctrl_c().await.is_ok() {
                // Kept alive: a receiver takes a dropped sender for one that will never speak.
                sender.send_replace(true);
                if tokio::signal::ctrl_c().await.is_ok() {
                    std::process::exit(130);
                }
            }
            std::future::pending::<()>().await;
        });
        Self(receiver)
    }

    /// Whether the user asked to stop.
    pub(crate) fn is_set(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until the user asks to stop.
    pub(crate) async fn wait(&mut self) {
        if self.0.wait_for(|set| *set).await.is_err() {
            // Nobody can ask any more.
            std::future::pending::<()>().await;
        }
    }
}
