//! Threads that hash passwords and do nothing else.
//!
//! A hash takes a tenth of a second and 64 MiB, so as many run at a time as there are threads here, and few wait.
//! One more is refused before anything is spent on it.

use std::num::NonZeroUsize;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio::sync::oneshot;

use super::password::Passwords;

const THREADS_MAX: usize = 4;
/// Passwords waiting for a thread.
const WAITING_MAX: usize = 64;

type Job = Box<dyn FnOnce() + Send>;

/// As many passwords as may wait are waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many passwords are being hashed")]
pub(crate) struct Overloaded;

/// The way to the threads; they end when it is dropped.
#[derive(Debug)]
pub(crate) struct Pool {
    jobs: SyncSender<Job>,
    passwords: Passwords,
}

impl Pool {
    /// Starts the threads: half as many as there are processors.
    ///
    /// # Errors
    /// Fails when a thread cannot be started.
    pub(crate) fn start(passwords: Passwords) -> std::io::Result<Self> {
        let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self::with_threads(passwords, processors.div_ceil(2).min(THREADS_MAX))
    }

    fn with_threads(passwords: Passwords, threads: usize) -> std::io::Result<Self> {
        let (jobs, waiting) = sync_channel::<Job>(WAITING_MAX);
        let waiting = Arc::new(Mutex::new(waiting));
        for number in 0..threads {
            let waiting = waiting.clone();
            std::thread::Builder::new().name(format!("password-{number}")).spawn(move || work(&waiting))?;
        }
        Ok(Self { jobs, passwords })
    }

    /// Whether this is the password of that hash; the same time without a hash.
    pub(crate) async fn verify(
        &self,
        hash: Option<Arc<str>>,
        password: Option<Bytes>,
    ) -> Result<bool, Overloaded> {
        let passwords = self.passwords;
        let (tell, told) = oneshot::channel();
        self.run(move || {
            let given = password.as_deref().unwrap_or_default();
            let right = passwords.verify(hash.as_deref(), given) && password.is_some();
            // Whoever asked may have gone.
            let _ = tell.send(right);
        })?;
        Ok(told.await.unwrap_or(false))
    }

    /// Hashes a new password; `done` runs on the hashing thread, with `None` when that cannot be done.
    pub(crate) fn hash(
        &self,
        password: Bytes,
        done: impl FnOnce(Option<Arc<str>>) + Send + 'static,
    ) -> Result<(), Overloaded> {
        let passwords = self.passwords;
        self.run(move || match passwords.hash(&password) {
            Ok(hash) => done(Some(hash.into())),
            Err(error) => {
                tracing::error!(reason = %error, "password not hashed");
                done(None);
            }
        })
    }

    fn run(&self, job: impl FnOnce() + Send + 'static) -> Result<(), Overloaded> {
        match self.jobs.try_send(Box::new(job)) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => Err(Overloaded),
        }
    }
}

fn work(waiting: &Mutex<Receiver<Job>>) {
    loop {
        // Whoever waits for a job holds the lock; the others wait for the lock.
        let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match next {
            Ok(job) => job(),
            Err(_) => return,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::password::Cost;
    use super::*;

    const LIGHT: Passwords = Passwords { cost: Cost::Light, strong: false, chars_min: 12 };

    #[tokio::test]
    async fn passwords_are_verified_elsewhere_and_null_is_never_right() {
        let pool = Pool::start(LIGHT).unwrap();
        let hash: Arc<str> = LIGHT.hash(b"").unwrap().into();
        assert_eq!(pool.verify(Some(hash.clone()), None).await, Ok(false));
        let (tell, told) = oneshot::channel();
        pool.hash(Bytes::from_static(b"secret"), move |hash| drop(tell.send(hash))).unwrap();
        let hash = told.await.unwrap();
        assert_eq!(pool.verify(hash.clone(), Some("secret".into())).await, Ok(true));
        assert_eq!(pool.verify(hash, Some("other".into())).await, Ok(false));
        assert_eq!(pool.verify(None, Some("secret".into())).await, Ok(false));
    }

    #[test]
    fn what_cannot_wait_is_refused_before_it_costs_anything() {
        let pool = Pool::with_threads(LIGHT, 1).unwrap();
        let (hold, held) = sync_channel::<()>(0);
        let (started, has_started) = sync_channel::<()>(0);
        pool.run(move || {
            started.send(()).unwrap();
            let _ = held.recv();
        })
        .unwrap();
        has_started.recv().unwrap();
        for _ in 0..WAITING_MAX {
            pool.run(|| {}).unwrap();
        }
        assert_eq!(pool.run(|| unreachable!("it was refused")), Err(Overloaded));
        drop(hold);
    }
}
