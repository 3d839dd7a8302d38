//! The bytes of one connection, and how it ends.
//!
//! Owns the socket's options and the last word: a socket that is closed with unread input takes back what was
//! written to it, so the peer gets a moment to read.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;
use wire::{Gather, Reason, Response};

/// How long the peer may take to read a last word before the connection is torn down.
const LINGER: Duration = Duration::from_secs(1);
/// A silent peer is asked for a sign of life after this long, so often, so many times. An open stream has no other
/// way to notice that its peer is gone.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(30), Duration::from_secs(10), 3);

/// Least room for reading.
pub(super) const READ_BYTES_MIN: usize = 16 * 1024;

/// A connection as the listener was told to serve it.
pub(super) enum Socket {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Does the same with either kind.
macro_rules! either {
    ($socket:expr, $inner:ident => $work:expr) => {
        match $socket {
            Socket::Plain($inner) => {
                let $inner = Pin::new($inner);
                $work
            }
            Socket::Tls($inner) => {
                let $inner = Pin::new(&mut **$inner);
                $work
            }
        }
    };
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        either!(self.get_mut(), inner => inner.poll_read(context, buffer))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        either!(self.get_mut(), inner => inner.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        either!(self.get_mut(), inner => inner.poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(inner) => inner.is_write_vectored(),
            Self::Tls(inner) => inner.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self.get_mut(), inner => inner.poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self.get_mut(), inner => inner.poll_shutdown(context))
    }
}

/// Sets what every connection needs. What the system refuses is left: the connection works without.
pub(crate) fn prepare(stream: &TcpStream) {
    let (idle, interval, times) = KEEPALIVE;
    let _ = stream.set_nodelay(true);
    let _ = sockopt::set_socket_keepalive(stream, true);
    let _ = sockopt::set_tcp_keepidle(stream, idle);
    let _ = sockopt::set_tcp_keepintvl(stream, interval);
    let _ = sockopt::set_tcp_keepcnt(stream, times);
}

/// Writes all of `out`; `false` when that cannot be done in time.
pub(super) async fn write(socket: &mut Socket, out: &mut Gather, limit: Duration) -> bool {
    let write = async {
        socket.write_all_buf(out).await?;
        // TLS keeps what it could not send.
        socket.flush().await
    };
    matches!(timeout(limit, write).await, Ok(Ok(())))
}

/// Writes one last refusal and closes.
pub(super) async fn refuse(socket: &mut Socket, correlation_id: u32, reason: Reason, limit: Duration) {
    let mut out = Gather::new();
    Response::Error(reason).encode(correlation_id, &mut out);
    if write(socket, &mut out, limit).await {
        drain(socket).await;
    }
}

/// Lets the peer read what was written before the socket is dropped.
pub(super) async fn drain(socket: &mut Socket) {
    let rest = async {
        socket.shutdown().await?;
        let mut sink = BytesMut::with_capacity(READ_BYTES_MIN);
        while socket.read_buf(&mut sink).await? > 0 {
            sink.clear();
        }
        std::io::Result::Ok(())
    };
    drop(timeout(LINGER, rest).await);
}
