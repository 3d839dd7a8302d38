//! A connected stream, in plain or inside TLS.
//!
//! Owns the socket's options and moving bytes both ways at once. Does not know what they say.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;

use super::Options;
use crate::Error;

/// A silent broker is asked for a sign of life after this long, so often, so many times. A subscription has no other
/// way to notice that its broker's machine is gone.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(30), Duration::from_secs(10), 3);

/// A connected stream.
#[derive(Debug)]
pub struct Transport {
    stream: Stream,
    /// Whether bytes that were taken may not have left yet: TLS keeps what it could not send.
    unflushed: bool,
    /// Whether sending is looked at first, so that neither way can hold up the other.
    sends_first: bool,
}

#[derive(Debug)]
enum Stream {
    Plain(TcpStream),
    #[cfg(feature = "tls")]
    Tls(Box<tokio_rustls::client::TlsStream<TcpStream>>),
}

impl Transport {
    /// Connects, and shakes hands when the options say so. Takes as long as it takes: whoever calls bounds the time.
    pub async fn open(options: &Options) -> Result<Self, Error> {
        let unconnected = |error| Error::Unconnected(Arc::new(error));
        let stream = TcpStream::connect(&options.address).await.map_err(unconnected)?;
        prepare(&stream);
        #[cfg(feature = "tls")]
        if let Some(tls) = &options.tls {
            let stream = tls.connect(&options.address, stream).await?;
            return Ok(Self::of(Stream::Tls(Box::new(stream))));
        }
        Ok(Self::of(Stream::Plain(stream)))
    }

    fn of(stream: Stream) -> Self {
        Self { stream, unflushed: false, sends_first: false }
    }

    /// Sends some of `outgoing` or receives some bytes behind `incoming`, whichever can be done first; gives how
    /// many bytes were received when it received, 0 at the end. Cancelling it loses nothing.
    pub async fn transfer(
        &mut self,
        outgoing: &mut BytesMut,
        incoming: &mut BytesMut,
    ) -> io::Result<Option<usize>> {
        let moved = poll_fn(|context| {
            self.sends_first = !self.sends_first;
            if self.sends_first
                && let Poll::Ready(sent) = self.poll_send(context, outgoing)
            {
                return Poll::Ready(sent.map(|()| None));
            }
            if let Poll::Ready(read) = pin!(self.read_buf(incoming)).poll(context) {
                return Poll::Ready(read.map(Some));
            }
            self.poll_send(context, outgoing).map(|sent| sent.map(|()| None))
        });
        moved.await
    }

    /// Pending when there is nothing to send, too.
    fn poll_send(&mut self, context: &mut Context<'_>, outgoing: &mut BytesMut) -> Poll<io::Result<()>> {
        if !outgoing.is_empty() {
            return pin!(self.write_buf(outgoing)).poll(context).map(|written| written.map(drop));
        }
        if self.unflushed { Pin::new(self).poll_flush(context) } else { Poll::Pending }
    }
}

/// Sets what every connection needs. What the system refuses is left: the connection works without.
fn prepare(stream: &TcpStream) {
    let (idle, interval, times) = KEEPALIVE;
    let _ = stream.set_nodelay(true);
    let _ = sockopt::set_socket_keepalive(stream, true);
    let _ = sockopt::set_tcp_keepidle(stream, idle);
    let _ = sockopt::set_tcp_keepintvl(stream, interval);
    let _ = sockopt::set_tcp_keepcnt(stream, times);
}

impl AsyncRead for Transport {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Transport {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        match &mut this.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => {
                this.unflushed = true;
                Pin::new(stream).poll_write(context, bytes)
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = match &mut this.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(context),
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => Pin::new(stream).poll_flush(context),
        };
        if let Poll::Ready(Ok(())) = flushed {
            this.unflushed = false;
        }
        flushed
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
