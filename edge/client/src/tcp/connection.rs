//! The task that owns a client's socket.
//!
//! Owns the socket and when to open a new one: lazily, for the next request after the old one was lost.
//! A connection that is lost with requests on it ends its *session*: everything in flight fails, and so does
//! every later request that names the ended session, because requests sent one after another must not
//! overtake a lost one on a new connection. A connection that was idle is replaced without anybody noticing.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, sleep_until};
use wire::response::Hello;
use wire::{Request, Response};

use super::Options;
use super::socket::Socket;
use crate::Error;
use crate::link::Received;

/// An idle connection is given up after this long: brokers close them after 30 s, and a request sent into
/// that close would be lost.
const IDLE: Duration = Duration::from_secs(20);
/// Bytes waiting to be sent before further requests wait in their channel.
const OUTGOING_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Where an answer goes.
#[derive(Debug)]
pub(super) struct Ticket(Option<oneshot::Sender<Result<Response, Error>>>);

impl Ticket {
    /// For an answer that is read where the request was sent.
    pub(super) fn none() -> Self {
        Self(None)
    }

    fn settle(self, result: Result<Response, Error>) {
        // Nobody waits any more when the caller timed out or was dropped.
        if let Some(sender) = self.0 {
            let _ = sender.send(result);
        }
    }
}

/// The time between two losses of a connection with work on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Session(u64);

/// A request on its way to the task.
#[derive(Debug)]
pub(super) struct Command {
    request: Request,
    ticket: Ticket,
    session: Session,
}

/// The caller's end.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    commands: mpsc::Sender<Command>,
    /// Counts connections lost with work on them.
    session: Arc<AtomicU64>,
    hello: Arc<Mutex<Option<Hello>>>,
    /// Told when a connection is to be given up.
    renew: Arc<Notify>,
}

/// An answer that will come.
pub(super) type Pending = oneshot::Receiver<Result<Response, Error>>;

impl Connection {
    /// Opens a connection and starts its task, which ends after the last clone is dropped.
    pub(super) async fn open(options: Options) -> Result<Self, Error> {
        let (at, socket) = open_first(&options, 0).await?;
        let (commands, receiver) = mpsc::channel(options.in_flight_max.max(1));
        let session = Arc::new(AtomicU64::new(0));
        let hello = Arc::new(Mutex::new(socket.hello.clone()));
        let renew = Arc::new(Notify::new());
        let task = Task {
            options,
            at,
            renew: Arc::clone(&renew),
            commands: receiver,
            session: Arc::clone(&session),
            hello: Arc::clone(&hello),
            lost: Error::Closed,
        };
        tokio::spawn(task.run(Some(socket)));
        Ok(Self { commands, session, hello, renew })
    }

    /// What the broker of the newest connection said of itself.
    pub(super) fn hello(&self) -> Option<Hello> {
        self.hello.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether it has all of these features.
    pub(super) fn has(&self, features: u64) -> bool {
        let hello = self.hello.lock().unwrap_or_else(PoisonError::into_inner);
        hello.as_ref().is_some_and(|hello| hello.features & features == features)
    }

    /// Gives the connection up, if there is one: everything on it fails.
    pub(super) fn renew(&self) {
        self.renew.notify_waiters();
    }

    /// Which connection requests go to now, as far as losses with work on them are known.
    pub(super) fn session(&self) -> Session {
        Session(self.session.load(Ordering::Acquire))
    }

    /// Hands a request in, waiting while too many are in flight. It fails when its session is over: whoever
    /// sends requests that build on one another names the same session for all of them.
    pub(super) async fn submit(&self, request: Request, session: Session) -> Result<Pending, Error> {
        let (sender, pending) = oneshot::channel();
        let command = Command { request, ticket: Ticket(Some(sender)), session };
        self.commands.send(command).await.map_err(|_| Error::Closed)?;
        Ok(pending)
    }
}

struct Task {
    options: Options,
    /// Which of the addresses the connection is to.
    at: usize,
    renew: Arc<Notify>,
    commands: mpsc::Receiver<Command>,
    session: Arc<AtomicU64>,
    hello: Arc<Mutex<Option<Hello>>>,
    /// Why the last session was lost.
    lost: Error,
}

impl Task {
    async fn run(mut self, mut socket: Option<Socket>) {
        loop {
            let Some(open) = &mut socket else {
                let Some(command) = self.commands.recv().await else { return };
                socket = self.reopen(command).await;
                continue;
            };
            match self.serve(open).await {
                Ok(()) => return,
                Err(error) => {
                    self.give_up(open, error);
                    socket = None;
                }
            }
        }
    }

    /// Runs one connection until it is lost; `Ok` when nobody needs it any more.
    async fn serve(&mut self, socket: &mut Socket) -> Result<(), Error> {
        let mut used = Instant::now();
        let mut wanted = true;
        // Kept over all turns: to ask for it anew each time costs a lock.
        let mut idle = pin!(sleep_until(used + IDLE));
        loop {
            let in_flight = socket.link.in_flight();
            if !wanted && in_flight == 0 {
                return Ok(());
            }
            let takes_more = wanted && self.has_room(socket);
            tokio::select! {
                command = self.commands.recv(), if takes_more => match command {
                    None => wanted = false,
                    Some(command) => {
                        self.send(socket, command);
                        self.send_waiting(socket);
                        used = Instant::now();
                    }
                },
                moved = socket.transfer() => {
                    if settle(socket)? {
                        used = Instant::now();
                    }
                    moved?;
                },
                () = self.renew.notified() => return Err(Error::TimedOut),
                () = &mut idle, if in_flight == 0 => {
                    // It was set when it was used less lately.
                    if used + IDLE <= Instant::now() {
                        return Err(Error::Closed);
                    }
                    idle.as_mut().reset(used + IDLE);
                }
            }
        }
    }

    fn has_room(&self, socket: &mut Socket) -> bool {
        socket.link.in_flight() < self.options.in_flight_max.max(1)
            && socket.link.outgoing().len() < OUTGOING_BYTES_MAX
    }

    /// Takes what else is there already, so that many small requests share a write.
    fn send_waiting(&mut self, socket: &mut Socket) {
        while self.has_room(socket) {
            let Ok(command) = self.commands.try_recv() else { return };
            self.send(socket, command);
        }
    }

    fn is_current(&self, command: &Command) -> bool {
        command.session == Session(self.session.load(Ordering::Acquire))
    }

    fn send(&self, socket: &mut Socket, command: Command) {
        if self.is_current(&command) {
            socket.link.send(&command.request, command.ticket);
        } else {
            command.ticket.settle(Err(self.lost.clone()));
        }
    }

    async fn reopen(&mut self, command: Command) -> Option<Socket> {
        if !self.is_current(&command) {
            command.ticket.settle(Err(self.lost.clone()));
            return None;
        }
        match open_first(&self.options, self.at).await {
            Ok((at, mut socket)) => {
                self.at = at;
                *self.hello.lock().unwrap_or_else(PoisonError::into_inner) = socket.hello.clone();
                socket.link.send(&command.request, command.ticket);
                Some(socket)
            }
            Err(error) => {
                self.fail_session(error.clone());
                command.ticket.settle(Err(error));
                None
            }
        }
    }

    fn give_up(&mut self, socket: &mut Socket, error: Error) {
        if socket.link.in_flight() == 0 {
            return;
        }
        self.fail_session(error.clone());
        // Whoever it was, another may be in better health.
        self.at += 1;
        for ticket in socket.link.abandon() {
            ticket.settle(Err(error.clone()));
        }
    }

    fn fail_session(&mut self, error: Error) {
        self.lost = error;
        self.session.fetch_add(1, Ordering::AcqRel);
    }
}

/// Opens a connection to the first of the addresses that answers, beginning with the one of that number.
async fn open_first(options: &Options, from: usize) -> Result<(usize, Socket), Error> {
    let count = 1 + options.others.len();
    let mut failed = Error::Closed;
    for at in (0..count).map(|step| (from + step) % count) {
        let address = at.checked_sub(1).map_or(&options.address, |at| &options.others[at]);
        match Socket::open(&Options { address: address.clone(), ..options.clone() }).await {
            Ok(socket) => return Ok((at, socket)),
            // Whoever answers has judged; the others would say the same.
            Err(error) if !error.lost_connection() => return Err(error),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// Hands out the answers that have arrived; whether there were any.
fn settle(socket: &mut Socket) -> Result<bool, Error> {
    let mut any = false;
    while let Some(received) = socket.link.receive()? {
        match received {
            Received::Answer(ticket, response) => ticket.settle(Ok(response)),
            Received::Push(_) | Received::Ended(..) | Received::AckRefused(..) => {
                unreachable!("streams have connections of their own")
            }
        }
        any = true;
    }
    Ok(any)
}
